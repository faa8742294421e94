"""A Prometheus that answers as a real one does, from a list of series; objects as from an API server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.console import Console

from gpuform.reports import top
from gpuform.usage.prometheus import Prometheus, Transport
from gpuform.usage.status import summarise_status
from gpuform.usage.top.read import build_view, read_metrics
from gpuform.usage.top.view import Node, View
from infra.model.environment import Environment
from lab.simulator.device_plugin import gpu_id, mig_id
from tests.build.environments import on

Labels = Mapping[str, str]


@dataclass
class Played:
    series: list[tuple[Labels, float]] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def get(self, path: str, params: Mapping[str, str]) -> httpx.Response:
        expression = params.get("query", "")
        self.asked.append(expression)
        if path == "/api/v1/alerts":
            return response({"alerts": self.alerts})
        found = [(labels, value) for labels, value in self.series if _selected(expression, labels)]
        if path == "/api/v1/query":
            result = [{"metric": dict(labels), "value": [1.0, str(value)]} for labels, value in found]
            return response({"resultType": "vector", "result": result})
        start, end, step = (float(params[key]) for key in ("start", "end", "step"))
        times = [start + step * index for index in range(int((end - start) / step) + 1)]
        result = [
            {"metric": dict(labels), "values": [[at, str(value)] for at in times]} for labels, value in found
        ]
        return response({"resultType": "matrix", "result": result})

    def close(self) -> None: ...


def _selected(expression: str, labels: Labels) -> bool:
    name = labels["__name__"]
    if match := re.search(r'__name__=~"([^"]+)"', expression):
        return re.fullmatch(match[1], name) is not None
    return name in expression and not ('pod!=""' in expression and "pod" not in labels)


def response(data: Any, status: str = "success", code: int = 200, **more: str) -> httpx.Response:
    document = {"status": status, "data": data, **more}
    return httpx.Response(code, content=json.dumps(document), request=httpx.Request("GET", "http://played"))


def series(name: str, value: float, **labels: str) -> tuple[Labels, float]:
    return {"__name__": name, **labels}, value


def gpu_series(
    node: str, gpu: int, util: float, used_gib: float, total_gib: float, **labels: str
) -> list[tuple[Labels, float]]:
    tags = {"node": node, "gpu": str(gpu), **labels}
    return [
        series("gpuform:device:util_ratio", util, **tags),
        series("gpuform:device:memory_used_bytes", used_gib * 2**30, **tags),
        series("gpuform:device:memory_total_bytes", total_gib * 2**30, **tags),
    ]


def node(
    name: str,
    pool: str,
    gpus: int = 0,
    layout: Mapping[str, list[str]] | None = None,
    machine: str = "g2.5xlarge",
    **tags: str,
) -> dict[str, Any]:
    """A node; simulated if a number of GPUs is given."""
    notes = {
        "simulator.gpuform.io/gpu": "10de:1eb8",
        "simulator.gpuform.io/gpu-count": str(gpus),
        "simulator.gpuform.io/mig": json.dumps(layout or {}),
    }
    labels = {key.replace("__", "/").replace("_", "."): value for key, value in tags.items()}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"gpuform.io/pool": pool, "node.kubernetes.io/instance-type": machine, **labels},
            "annotations": notes if gpus else {},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    name: str, on: str | None, devices: tuple[str, ...] = (), phase: str = "Running", **asks: int
) -> dict[str, Any]:
    """``asks``: ``gpu_shared`` is ``nvidia.com/gpu.shared``, ``mig_2g_10gb`` ``nvidia.com/mig-2g.10gb``."""
    limits = {f"nvidia.com/{_resource(key)}": str(count) for key, count in asks.items()}
    namespace, _, own = name.rpartition("/")
    notes = {"simulator.gpuform.io/devices": ",".join(devices)} if devices else {}
    return {
        "metadata": {"namespace": namespace or "default", "name": own, "annotations": notes},
        "spec": {"containers": [{"resources": {"limits": limits}}], **({"nodeName": on} if on else {})},
        "status": {"phase": phase},
    }


def _resource(key: str) -> str:
    return key.replace("mig_", "mig-").replace("_", ".")


def gpu_uuid(node: str, index: int, share: int | None = None) -> str:
    found = gpu_id(f"uid-{node}", index)
    return found if share is None else f"{found}::{share}"


def mig_uuid(node: str, index: int, profile: str, start: int) -> str:
    return mig_id(f"uid-{node}", index, profile, start)


MIXED: dict[str, Any] = {"name": "test", "gpu_operator": {"mig_strategy": "mixed"}}
CUT = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
ENV = on(
    "embedded",
    {"name": "t4", "machine": "g2.5xlarge", "sharing": {"kind": "time_slicing", "replicas": 4}},
    {"name": "mig", "machine": "g4.p1.40g", "sharing": CUT},
    {"name": "whole", "machine": "g4.p4.40g"},
    {"name": "cpu", "machine": "m6i.xlarge"},
    **MIXED,
)
LAYOUT = {"0": ["3g.20gb@4", "2g.10gb@0", "2g.10gb@2"]}

GROUPS = on(
    "openstack",
    {"name": "mig", "machine": "g4.p1.40g", "elastic": {"min": 1, "max": {"nodes": 4}}, "sharing": CUT},
    {"name": "whole", "machine": "g4.p4.40g", "elastic": {"max": {"nodes": 2}}},
    {"name": "cpu", "machine": "m2.medium", "elastic": {"min": 0, "max": {"nodes": 9}}},
    cluster={"flavors": {"m2.medium": {"vcpu": 2, "memory_gib": 4}}},
    **MIXED,
)


def view_of(transport: Transport, *objects: dict[str, Any], env: Environment = ENV) -> View:
    pods = [item for item in objects if "containers" in item.get("spec", {})]
    current = summarise_status(env, [item for item in objects if item not in pods], pods)
    return build_view(env, current, *read_metrics(Prometheus(transport, "remedy")))


def only_node(found: View) -> Node:
    (only,) = found.nodes
    return only


def usage_rows(pods: Any) -> list[tuple[str, float, float | None, bool]]:
    used = [None if pod.used is None else round(pod.used, 3) for pod in pods]
    return [(p.name, round(p.requested, 3), of, p.attributed) for p, of in zip(pods, used, strict=True)]


SHARED = [
    node("n0", "t4", gpus=1),
    pod("a/one", "n0", (gpu_uuid("n0", 0, 0),), gpu_shared=1),
    pod("b/two", "n0", (gpu_uuid("n0", 0, 3),), gpu_shared=1),
]


def shown(found: View) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(top.top_table(found))
    return captured.get()

from __future__ import annotations

from typing import Any

from gpuform.reports import top
from gpuform.usage.cluster_objects import Objects
from gpuform.usage.prometheus import Prometheus
from gpuform.usage.top.read import measure, view
from gpuform.usage.top.view import Node, View
from infra.config import parse
from infra.model.environment import Environment
from tests.usage.top.played import Played, node, pod, whole

ENV = parse(
    {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "gpu_operator": {"mig_strategy": "mixed"},
        "pools": [
            {
                "name": "t4",
                "machine": "g2.5xlarge",
                "nodes": 1,
                "sharing": {"kind": "time_slicing", "replicas": 4},
            },
            {
                "name": "mig",
                "machine": "g4.p1.40g",
                "nodes": 1,
                "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
            },
            {"name": "whole", "machine": "g4.p4.40g", "nodes": 1},
            {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
        ],
    }
)
LAYOUT = {"0": ["3g.20gb@4", "2g.10gb@0", "2g.10gb@2"]}


GROUPS = parse(
    {
        "name": "test",
        "cluster": {
            "kind": "openstack",
            "template": "kubernetes-1.30.2-2",
            "version": "1.30",
            "flavors": {"m2.medium": {"vcpu": 2, "memory_gib": 4}},
        },
        "gpu_operator": {"mig_strategy": "mixed"},
        "pools": [
            {
                "name": "mig",
                "machine": "g4.p1.40g",
                "elastic": {"min": 1, "max": {"nodes": 4}},
                "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
            },
            {"name": "whole", "machine": "g4.p4.40g", "elastic": {"max": {"nodes": 2}}},
            {"name": "cpu", "machine": "m2.medium", "elastic": {"min": 0, "max": {"nodes": 9}}},
        ],
    }
)


def seen(played: Played, *objects: dict[str, Any], env: Environment = ENV) -> View:
    nodes = tuple(one for one in objects if "spec" not in one)
    pods = tuple(one for one in objects if "spec" in one)
    return view(env, Objects(nodes, pods), *measure(Prometheus(played, "remedy")))


def one_node(found: View) -> Node:
    (only,) = found.nodes
    return only


def told(pods: Any) -> list[tuple[str, float, float | None, bool]]:
    return [
        (
            pod.name,
            round(pod.requested, 3),
            pod.used if pod.used is None else round(pod.used, 3),
            pod.attributed,
        )
        for pod in pods
    ]


SHARED = [
    node("n0", "t4", gpus=1),
    pod("a/one", "n0", (whole("n0", 0, 0),), gpu_shared=1),
    pod("b/two", "n0", (whole("n0", 0, 3),), gpu_shared=1),
]


def text(found: View) -> str:
    from rich.console import Console

    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(top.table(found))
    return captured.get()

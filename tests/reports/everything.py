"""A stack with everything on its page: each kind of sharing, alerts, an hour of history, odd names."""

from __future__ import annotations

import math
from collections.abc import Mapping

import httpx

from gpuform.usage.cluster_objects import LiveObjects
from gpuform.usage.prometheus import Prometheus
from gpuform.usage.top.facts import Facts, gather_facts
from infra.config import price_list
from tests.build.environments import on
from tests.usage.top.played import (
    MIXED,
    Played,
    gpu_series,
    gpu_uuid,
    mig_uuid,
    node,
    pod,
    response,
    series,
)

AT = 1_795_312_800.0  # 2026-11-22 02:00 UTC
ODD = "train-<b>&\"quot'"
WHOLE = "whole-0.example.org"
SHARED, CUT = {"kind": "time_slicing", "replicas": 4}, {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 1}}
ENV = on(
    "embedded",
    {"name": "t4-shared", "machine": "g4dn.xlarge", "nodes": 2, "sharing": SHARED},
    {"name": "a100-mig", "machine": "g4.p1.40g", "sharing": CUT},
    {"name": "a100-whole", "machine": "g4.p4.40g"},
    {"name": "mps", "machine": "g2.5xlarge", "sharing": {"kind": "mps", "replicas": 16}},
    {"name": "cpu", "machine": "m6i.xlarge"},
    **MIXED,
)
SINCE = {"activeAt": "2026-11-22T01:30:00Z"}
ALERTS = [
    {"labels": {"alertname": name, "severity": severity}, "state": state, "annotations": annotations, **SINCE}
    for name, severity, state, annotations in (
        ("GpuInfo", "info", "firing", {"description": "<i>said</i>", "runbook_url": "javascript:alert(1)"}),
        ("GpuXid", "critical", "firing", {"summary": "gone", "runbook_url": "https://example.org/a?b&c"}),
        ("GpuIdle", "warning", "pending", {}),
        ("Watchdog", "none", "firing", {}),
    )
]


class Moving(Played):
    def get(self, path: str, params: Mapping[str, str]) -> httpx.Response:
        found = super().get(path, params)
        if not path.endswith("query_range"):
            return found
        data = found.json()["data"]
        for one in data["result"]:
            one["values"] = [
                [at, str(float(value) * (0.6 + 0.4 * math.sin(at / 500)))] for at, value in one["values"]
            ]
        return response(data)


def objects() -> LiveObjects:
    nodes = (
        node("t4-0", "t4-shared", gpus=1, machine="g4dn.xlarge"),
        node("t4-1", "t4-shared", gpus=1, machine="g4dn.xlarge"),
        node("mig-0", "a100-mig", 1, {"0": ["3g.20gb@0", "2g.10gb@4"]}),
        node(WHOLE, "a100-whole", gpus=4),
        node("mps-0", "mps", gpus=1),
        node("cpu-0", "cpu"),
    )
    pods = (
        pod("science/one", "t4-0", (gpu_uuid("t4-0", 0, 0),), gpu_shared=1),
        pod(f"science/{ODD}", "t4-0", (gpu_uuid("t4-0", 0, 1),), gpu_shared=1),
        pod("mig/large", "mig-0", (mig_uuid("mig-0", 0, "3g.20gb", 0),), mig_3g_20gb=1),
        pod("x/two-gpus", WHOLE, tuple(gpu_uuid(WHOLE, n) for n in (1, 2)), gpu=2),
        *(pod(f"mps/client-{n}", "mps-0", (gpu_uuid("mps-0", 0, n),), gpu=1) for n in range(12)),
        pod("science/waits", None, phase="Pending", gpu_shared=1),
    )
    return LiveObjects(nodes, pods, node_pools=(NODE_POOL,))


NODE_POOL = {
    "metadata": {"name": "burst"},
    "spec": {"limits": {"cpu": "100", "memory": "64Gi"}},
    "status": {"resources": {"cpu": "48", "memory": "32Gi", "pods": "110"}},
}


def played() -> Moving:
    found = Moving(alerts=ALERTS)
    found.series += gpu_series("t4-0", 0, 0.8, 11, 15)
    found.series += gpu_series("t4-1", 0, 0.0, 0.1, 15)
    for instance, profile, size in (("1", "3g.20gb", 20), ("5", "2g.10gb", 10)):
        tags = {"GPU_I_ID": instance, "GPU_I_PROFILE": profile}
        found.series += gpu_series("mig-0", 0, 0.5, 4, size, **tags)
    for index in range(3):  # the fourth has no measurements
        found.series += gpu_series(WHOLE, index, 0.9, 30, 40)
    for name in ("t4-0", "mig-0"):
        found.series.append(series("gpuform:gpu:power_watts", 61.6, node=name, gpu="0"))
        found.series.append(series("gpuform:gpu:temperature_celsius", 58, node=name, gpu="0"))
    fault = {"node": WHOLE, "gpu": "3", "class": "replace", "reason": "gpu_lost"}
    found.series.append(series("gpuform:fault:active", 1, **fault))
    for pool, used in (("t4-shared", 0.8), ("a100-mig", 0.3), ("a100-whole", 1.8)):
        found.series.append(series("gpuform:pool:gpus_used", used, pool=pool))
        found.series.append(series("gpuform:pool:gpus_requested", used + 0.2, pool=pool))
    return found


def facts(prometheus: Prometheus | None = None) -> Facts:
    asked = prometheus or Prometheus(played(), "start it")
    return gather_facts(ENV, "test", objects(), asked, price_list(ENV), AT)

"""Environments of the programs that the tests of this folder record."""

from __future__ import annotations

from typing import Any

from tests.build.aws_stacks import stack
from tests.build.openstack_stacks import BURST, T4, small
from tests.config.tables import GOOD, SERVED

MIG = {"name": "a100", "machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
PLAIN: dict[str, Any] = {
    "name": "there",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"gpu": "t4"}}],
}
WORK: dict[str, Any] = {"name": "w", "kind": "deployment", "pool": "t4", "image": "a:1"}
MEASURED = {"monitoring": {"alerts": False, "dashboards": False}}
PACKED: dict[str, Any] = {
    **PLAIN,
    "scheduling": {"packer": True, "version": "1.34.4"},
    "priorities": {"high": 1000},
    "namespaces": [{"name": "team", "quota": {"t4": 4}}],
    "workloads": [{**WORK, "namespace": "team", "priority": "high"}],
}
TEAMS: list[dict[str, Any]] = [
    {"name": "team", "namespaces": ["a", "a-b"], "cohort": "lab", "quota": {"t4": 4}},
    {"name": "b", "namespaces": ["b"], "quota": {"t4": 4}},
]
QUEUED: dict[str, Any] = {
    **PLAIN,
    "queues": {"cohorts": [{"name": "lab"}], "teams": TEAMS},
    "workloads": [{**WORK, "namespace": "a", "queue": "team"}],
}


def existing() -> dict[str, Any]:
    shared, cut = {"kind": "time_slicing", "replicas": 4}, MIG["sharing"]
    t4 = {"name": "t4", "gpu": {"models": ["T4"], "count": 1}, "selector": {"gpu": "t4"}, "sharing": shared}
    a100 = {"name": "a100", "gpu": {"models": ["A100-40GB"], "count": 1}, "sharing": cut}
    cluster = {"kind": "existing", "kubeconfig": "~/.kube/config", "context": "prod"}
    return {**PLAIN, "cluster": cluster, "pools": [t4, {**a100, "selector": {"gpu": "a100", "zone": "b"}}]}


STACKS = {name: stack(name) for name in ("local", "aws-dev", "aws-prod", "openstack-dev", "onprem-dev")}
STACKS["onprem-dev"]["cluster"]["kubeconfig"] = "/nowhere"
PLATFORMS: dict[str, dict[str, Any]] = {
    "local": STACKS["local"],
    "existing": existing(),
    "plain": PLAIN,
    "health": {**PLAIN, **MEASURED, "health": {"mode": "ticket"}},
    "monitoring": {**PLAIN, "monitoring": {}},
    "monitoring of a device plugin": {**PLAIN, "monitoring": {}, "gpu_operator": {"mode": "device_plugin"}},
    "other counters": {**PLAIN, "monitoring": {"counters": ["DCGM_FI_DEV_PSTATE"]}},
    "packing": PACKED,
    "packing of slices": {
        **PACKED,
        "pools": [{**PLAIN["pools"][0], "sharing": {"kind": "time_slicing", "replicas": 4}}],
    },
    "queues": QUEUED,
    "scaling": GOOD["scaling"],
    "serving": SERVED,
    "keeper": small(T4, BURST, MIG),
}


def hosts_alone() -> dict[str, Any]:
    """Own hosts before they have joined a cluster, when nothing can be measured or repaired yet."""
    environment = stack("onprem-dev")
    del environment["cluster"]["kubeconfig"], environment["monitoring"], environment["health"]
    return environment


REPLICAS = {"kind": "deployment", "pool": "t4", "image": "a:1", "replicas": 4, "service": {"port": 80}}


def workloads_alone(*work: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": "t4", "machine": "g2.5xlarge", "nodes": 10}
    workloads = [{"name": f"w{index}", **workload} for index, workload in enumerate(work)]
    return {"name": "e", "cluster": {"kind": "embedded"}, "pools": [pool], "workloads": workloads}


WORKLOADS = (
    {"kind": "pod", "pool": "t4", "image": "a:1"},
    {"kind": "job", "gpu": {"memory_gib": 8}, "image": "a:1"},
    REPLICAS,
    {**REPLICAS, "update": {"kind": "blue_green"}},
)

_BESIDE: dict[str, Any] = {
    "name": "beside",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "monitoring": {"prometheus": {"service": "p.metrics:9090", "labels": {"release": "stack"}}},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}],
    "queues": {"teams": [{"name": "team", "namespaces": ["lab"], "quota": {"t4": 1}}]},
}
"""Beside a Prometheus of others."""

PROGRAMS: dict[str, dict[str, Any]] = {
    **STACKS,
    **PLATFORMS,
    "beside a Prometheus": _BESIDE,
    "beside an operator": {**_BESIDE, "gpu_operator": {"mode": "existing"}},
    "beside a Kueue": {**_BESIDE, "existing": ["kueue"]},
    "hosts alone": hosts_alone(),
    "workloads": workloads_alone(*WORKLOADS),
}

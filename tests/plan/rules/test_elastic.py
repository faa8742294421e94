"""Elastic pools: what Karpenter may still buy, and spare nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.config import parse
from infra.model.environment import Environment
from tests.plan.rules import world
from tests.plan.rules.promtool import At, Case, Promtool, selector
from tests.plan.rules.provoked import during
from tests.plan.rules.troubles import pending, waiting
from tests.plan.rules.world import PLAIN, TURNS, TURNS_1, always, pod

pytestmark = pytest.mark.engine


def elastic() -> Environment:
    """Karpenter's nodes, with spare ones: at most four, by shares and by cores."""
    pool = {
        "name": "turns",
        "machine": "g4dn.xlarge",
        "elastic": {"max": {"cpu": 18, "nvidia.com/gpu.shared": 16}},
        "sharing": {"kind": "time_slicing", "replicas": 4},
        "spare": 1,
    }
    return parse(
        {
            "name": "labs",
            "cluster": {
                "kind": "aws",
                "region": "us-west-2",
                "version": "1.34",
                "network": {"cidr": "10.20.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
                "images": {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"},
            },
            "pools": [pool],
        }
    )


def groups() -> Environment:
    """The same pool as a Magnum node group of at most two nodes, beside one that does not grow."""
    magnum = {"kind": "openstack", "template": "kubernetes-1.30.2-2", "version": "1.30"}
    flavors = {"m2.medium": {"vcpu": 2, "memory_gib": 4}}
    pool = {
        "name": "turns",
        "machine": "g2.5xlarge",
        "elastic": {"min": 1, "max": {"nodes": 2}},
        "sharing": {"kind": "time_slicing", "replicas": 4},
    }
    plain = {"name": "plain", "machine": "m2.medium", "nodes": 1}
    return parse({"name": "labs", "cluster": {**magnum, "flavors": flavors}, "pools": [pool, plain]})


_SPARE = {"namespace": "gpuform-placeholder", "deployment": "spare-turns"}
_CLAIMED = {
    **world.told(PLAIN),
    **world.told(replace(TURNS, offers={"nvidia_com_gpu_shared": 4})),
    **world.exported(TURNS),
    **pod("full", TURNS, {"nvidia_com_gpu_shared": 4}),
    selector("kube_deployment_status_replicas_available", **_SPARE): always("4"),
    selector("karpenter_nodepools_limit", nodepool="turns", resource_type="cpu"): always("18"),
    selector("karpenter_nodepools_limit", nodepool="turns", resource_type="nvidia.com/gpu.shared"): always(
        "16"
    ),
    selector("karpenter_nodepools_usage", nodepool="turns", resource_type="cpu"): always("4"),
}
"""One node of the elastic pool, fully used."""


def _used(resource: str, values: str) -> dict[str, str]:
    return {selector("karpenter_nodepools_usage", nodepool="turns", resource_type=resource): values}


def test_a_node_pool_at_its_limit(promtool: Promtool) -> None:
    """16 of 18 cores are used and a node has 4: no node fits, though the limit is not reached."""
    late = waiting("late", "nvidia_com_gpu_shared")
    limit = [
        {
            "alertname": "GpuNodePoolAtLimit",
            "severity": "warning",
            "nodepool": "turns",
            "pool": "turns",
            "resource_type": "cpu",
        },
        {
            "alertname": "GpuPodPending",
            "severity": "warning",
            **pending("late", "nvidia_com_gpu_shared", "limit"),
        },
    ]
    full = {"alertname": "GpuPodPending", "severity": "warning"}
    full |= pending("late", "nvidia_com_gpu_shared", "pool_full")
    promtool.test(
        elastic(),
        Case(_CLAIMED | late, [At("9m", fires=[]), At("30m", fires=[full]), At("60m", fires=[])]),
        Case(
            _CLAIMED | late | _used("cpu", during("16", "4")),
            [At("9m", fires=[]), At("30m", fires=limit), At("60m", fires=[])],
        ),
    )


_FULL = {
    **world.told(PLAIN),
    **world.told(replace(TURNS, offers={"nvidia_com_gpu_shared": 4})),
    **world.exported(TURNS),
    **pod("full", TURNS, {"nvidia_com_gpu_shared": 4}),
}
"""One node of the node group, fully used."""


def test_a_node_group_with_its_most_nodes(promtool: Promtool) -> None:
    """With room for a node the pool is full; without it, at its limit."""
    late = waiting("late", "nvidia_com_gpu_shared")
    second = (
        world.told(TURNS_1) | world.exported(TURNS_1) | pod("more", TURNS_1, {"nvidia_com_gpu_shared": 4})
    )
    at_limit = {"alertname": "GpuNodePoolAtLimit", "severity": "warning", "nodepool": "turns"}
    at_limit |= {"pool": "turns", "resource_type": "nodes"}
    waits = {"alertname": "GpuPodPending", "severity": "warning"}
    full = waits | pending("late", "nvidia_com_gpu_shared", "pool_full")
    limit = [at_limit, waits | pending("late", "nvidia_com_gpu_shared", "limit")]
    promtool.test(
        groups(),
        Case(_FULL | late, [At("9m", fires=[]), At("30m", fires=[full])]),
        Case(_FULL | second | late, [At("9m", fires=[]), At("30m", fires=limit)]),
        Case(_FULL | second, [At("14m", fires=[]), At("30m", fires=[at_limit])]),
    )


def test_rooms_of_node_groups(promtool: Promtool) -> None:
    """All of the maximum if the group has no nodes; no series if no node is known."""
    own = {"nodepool": "turns", "pool": "turns", "resource_type": "nodes"}
    left = "gpuform:nodepool:nodes_left"

    def facts(rooms: int) -> dict[str, dict[str, int]]:
        most = "gpuform:nodepool:nodes_most"
        return {left: {selector(left, **own): rooms}, most: {selector(most, **own): 2}}

    promtool.test(
        groups(),
        Case(_FULL, [At("10m", samples=facts(1))]),
        Case(world.told(PLAIN), [At("10m", samples=facts(2))]),
        Case({}, [At("10m", samples={left: {}})]),
    )


def test_rooms_of_node_pools(promtool: Promtool) -> None:
    """Nodes left by each limit; a resource that Karpenter has not used yet counts as 0."""
    left = {
        selector("gpuform:nodepool:nodes_left", nodepool="turns", pool="turns", resource_type=kind): value
        for kind, value in (("cpu", 3), ("nvidia.com/gpu.shared", 4))
    }
    facts = {
        "gpuform:nodepool:nodes_left": left,
        'gpuform:nodepool:node_size{resource_type="cpu"}': {
            selector("gpuform:nodepool:node_size", nodepool="turns", pool="turns", resource_type="cpu"): 4
        },
        "gpuform:resource:limited": {},
        'gpuform:pool:gpus_declared{pool="turns"}': {
            selector("gpuform:pool:gpus_declared", pool="turns", sharing="time_slicing"): 1
        },
        'round(gpuform:pool:cost_per_hour{pool="turns"}, 0.001)': {
            selector("", pool="turns", sharing="time_slicing"): 0.537
        },
    }
    none = {
        'gpuform:pool:gpus_declared{pool="turns"}': {
            selector("gpuform:pool:gpus_declared", pool="turns", sharing="time_slicing"): 0
        }
    }
    empty = world.told(PLAIN)
    promtool.test(
        elastic(),
        Case(_CLAIMED, [At("10m", samples=facts)]),
        Case(empty, [At("10m", samples=none)]),
        Case({}, [At("10m", samples={'gpuform:pool:gpus_declared{pool="turns"}': {}})]),
    )


def test_no_node_is_kept_free(promtool: Promtool) -> None:
    available = selector("kube_deployment_status_replicas_available", **_SPARE)
    gone = {
        "alertname": "GpuSpareGone",
        "severity": "warning",
        "pool": "turns",
        "deployment": "spare-turns",
    }
    row = [At("9m", fires=[]), At("35m", fires=[]), At("43m", fires=[gone]), At("60m", fires=[])]
    absent = {name: value for name, value in _CLAIMED.items() if name != available}
    promtool.test(
        elastic(),
        Case(_CLAIMED | {available: during("0", "4")}, row),
        Case(absent, [At("29m", fires=[]), At("43m", fires=[gone])]),
    )

"""Elastic pools, queues and scaled workloads: what may still be bought, and their alerts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.model.environment import Environment
from tests.plan.aws_environments import aws
from tests.plan.environments import on
from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Check, Promtool, selector
from tests.plan.rules.provoked import Row, during, only_during, pending, provoke, waiting
from tests.plan.rules.world import PLAIN, TURNS, TURNS_1, always, pod

pytestmark = pytest.mark.engine

SHARED = {"name": "turns", "sharing": {"kind": "time_slicing", "replicas": 4}}


def elastic() -> Environment:
    """Karpenter's nodes, with spare ones: at most four, by shares and by cores."""
    limits = {"cpu": 18, "nvidia.com/gpu.shared": 16}
    return aws({**SHARED, "machine": "g4dn.xlarge", "elastic": {"max": limits}, "spare": 1})


def groups() -> Environment:
    """The same pool as a Magnum node group of at most two nodes, beside one that does not grow."""
    flavors = {"m2.medium": {"vcpu": 2, "memory_gib": 4}}
    pool = {**SHARED, "machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 2}}}
    plain = {"name": "plain", "machine": "m2.medium"}
    return on("openstack", pool, plain, cluster={"flavors": flavors}, name="labs")


_SPARE = {"namespace": "gpuform-placeholder", "deployment": "spare-turns"}
_FULL = {
    **world.node_series(PLAIN),
    **world.node_series(replace(TURNS, offers={"nvidia_com_gpu_shared": 4})),
    **world.exporter_series(TURNS),
    **pod("full", TURNS, {"nvidia_com_gpu_shared": 4}),
}
"""One node, fully used."""
_LIMITS = {"cpu": "18", "nvidia.com/gpu.shared": "16"}
_CLAIMED = {
    **_FULL,
    selector("kube_deployment_status_replicas_available", **_SPARE): always("4"),
    **{
        selector("karpenter_nodepools_limit", nodepool="turns", resource_type=kind): always(most)
        for kind, most in _LIMITS.items()
    },
    selector("karpenter_nodepools_usage", nodepool="turns", resource_type="cpu"): always("4"),
}
"""The same of the elastic pool."""


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
        Case(_CLAIMED | late, [Check("9m", fires=[]), Check("30m", fires=[full]), Check("60m", fires=[])]),
        Case(
            _CLAIMED | late | _used("cpu", during("16", "4")),
            [Check("9m", fires=[]), Check("30m", fires=limit), Check("60m", fires=[])],
        ),
    )


def test_a_node_group_with_its_most_nodes(promtool: Promtool) -> None:
    """With room for a node the pool is full; without it, at its limit."""
    late = waiting("late", "nvidia_com_gpu_shared")
    second = (
        world.node_series(TURNS_1)
        | world.exporter_series(TURNS_1)
        | pod("more", TURNS_1, {"nvidia_com_gpu_shared": 4})
    )
    at_limit = {"alertname": "GpuNodePoolAtLimit", "severity": "warning", "nodepool": "turns"}
    at_limit |= {"pool": "turns", "resource_type": "nodes"}
    waits = {"alertname": "GpuPodPending", "severity": "warning"}
    full = waits | pending("late", "nvidia_com_gpu_shared", "pool_full")
    limit = [at_limit, waits | pending("late", "nvidia_com_gpu_shared", "limit")]
    promtool.test(
        groups(),
        Case(_FULL | late, [Check("9m", fires=[]), Check("30m", fires=[full])]),
        Case(_FULL | second | late, [Check("9m", fires=[]), Check("30m", fires=limit)]),
        Case(_FULL | second, [Check("14m", fires=[]), Check("30m", fires=[at_limit])]),
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
        Case(_FULL, [Check("10m", samples=facts(1))]),
        Case(world.node_series(PLAIN), [Check("10m", samples=facts(2))]),
        Case({}, [Check("10m", samples={left: {}})]),
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
    empty = world.node_series(PLAIN)
    promtool.test(
        elastic(),
        Case(_CLAIMED, [Check("10m", samples=facts)]),
        Case(empty, [Check("10m", samples=none)]),
        Case({}, [Check("10m", samples={'gpuform:pool:gpus_declared{pool="turns"}': {}})]),
    )


def test_no_node_is_kept_free(promtool: Promtool) -> None:
    available = selector("kube_deployment_status_replicas_available", **_SPARE)
    gone = {"alertname": "GpuSpareGone", "severity": "warning", "pool": "turns", "deployment": "spare-turns"}
    row = [Check("9m", fires=[]), Check("35m", fires=[]), Check("43m", fires=[gone]), Check("60m", fires=[])]
    absent = {name: value for name, value in _CLAIMED.items() if name != available}
    promtool.test(
        elastic(),
        Case(_CLAIMED | {available: during("0", "4")}, row),
        Case(absent, [Check("29m", fires=[]), Check("43m", fires=[gone])]),
    )


HPA = {"namespace": "team", "horizontalpodautoscaler": "keda-hpa-web"}


def scaled() -> Environment:
    web = {"name": "web", "namespace": "team", "kind": "inference", "pool": "whole", "image": "a:1"}
    scale = {"min": 1, "max": 4, "qps_per_replica": 50}
    team = {"name": "science", "namespaces": ["science"], "quota": {"whole": 4}}
    return world.environment(
        monitoring={}, queues={"teams": [team]}, workloads=[{**web, "scale": scale, "start_minutes": 12}]
    )


def hpa(name: str, **labels: str) -> str:
    return selector(f"kube_horizontalpodautoscaler_{name}", **HPA, **labels)


def kueue_pending(queue: str) -> str:
    return selector("kueue_pending_workloads", cluster_queue=queue, status="active", replica_role="leader")


def ready(pod: str) -> str:
    return selector("kube_pod_status_ready", namespace="team", pod=pod, condition="true")


WANTS, HAS = hpa("status_desired_replicas"), hpa("status_current_replicas")
INACTIVE = hpa("status_condition", condition="ScalingActive", status="false")
ADMITTED = selector("kueue_admitted_workloads_total", cluster_queue="science", priority_class="0")
EVICTED, LATE = "web-5d9c7b6f4d-evict", "web-5d9c7b6f4d-fghij"
HEALTHY = {
    kueue_pending("science"): always("0"),
    kueue_pending("theirs"): always("3"),  # not a queue of the stack
    ADMITTED: always("5"),
    hpa("spec_max_replicas"): always("4"),
    WANTS: always("2"),
    HAS: always("2"),
    INACTIVE: always("0"),
    ready("web-5d9c7b6f4d-abcde"): always("1"),
    ready("web-canary-5d9c7b6f4d-abcde"): always("0"),  # of another Deployment
    ready(EVICTED): always("0"),
    selector("kube_pod_status_phase", namespace="team", pod=EVICTED, phase="Failed"): always("1"),
}
ROWS = tuple(
    Row(alert=alert, severity=severity, wait=wait, series={series: values}, labels=[labels])
    for alert, severity, wait, series, values, labels in (
        ("GpuQueueStalled", "info", 15, kueue_pending("science"), during("2"), {"cluster_queue": "science"}),
        ("GpuScaledToMost", "warning", 15, WANTS, during("4", "2"), HPA),
        ("GpuScalingFailed", "warning", 10, INACTIVE, during("1"), HPA),
        (
            "GpuColdStartSlow",
            "warning",
            12,
            ready(LATE),
            only_during("0"),
            {"namespace": "team", "pod": LATE},
        ),
    )
)


def test_each_fires_alone_and_ends(promtool: Promtool) -> None:
    promtool.test(scaled(), provoke(world.healthy() | HEALTHY, ROWS, (15, 24, 29, 43), ended=75))


def test_what_is_admitted_or_scaled_to_zero_is_no_fault(promtool: Promtool) -> None:
    """Without pods, the autoscaler is inactive on purpose."""
    fine = {
        kueue_pending("science"): always("2"),
        ADMITTED: "5+1x300",
        INACTIVE: always("1"),
        HAS: always("0"),
    }
    promtool.test(scaled(), provoke(world.healthy() | HEALTHY | fine, (), (43,), ended=130))
    # The same on a cluster of which the stack declares neither.
    elsewhere = {name: value for row in ROWS for name, value in row.series.items() if value}
    promtool.test(world.environment(), provoke(world.healthy() | HEALTHY | elsewhere, (), (43,), ended=75))

"""Elastic pools, queues and scaled workloads: what may still be bought, and their alerts."""

from __future__ import annotations

import pytest

from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Promtool, selector, shows
from tests.plan.rules.provoked import during, fired, provoke, rows, waiting
from tests.plan.rules.world import ENVIRONMENTS, PLAIN, TURNS, TURNS_1, always, pod

pytestmark = pytest.mark.engine

ONE_FULL_NODE = {
    **world.node_series(PLAIN),
    **world.node_series(TURNS),
    **world.exporter_series(TURNS),
    **pod("full", TURNS, {"nvidia_com_gpu_shared": 4}),
}
SECOND = {
    **world.node_series(TURNS_1),
    **world.exporter_series(TURNS_1),
    **pod("more", TURNS_1, {"nvidia_com_gpu_shared": 4}),
}
NODE_POOL = {"nodepool": "turns", "resource_type": "cpu"}
SHARES = {**NODE_POOL, "resource_type": "nvidia.com/gpu.shared"}
USED_CORES = selector("karpenter_nodepools_usage", **NODE_POOL)
SPARE = {"namespace": "gpuform-placeholder", "deployment": "spare-turns"}
SPARE_PODS = selector("kube_deployment_status_replicas_available", **SPARE)
BY_KARPENTER = {
    **ONE_FULL_NODE,
    SPARE_PODS: always("4"),
    selector("karpenter_nodepools_limit", **NODE_POOL): always("18"),
    selector("karpenter_nodepools_limit", **SHARES): always("16"),
    USED_CORES: always("4"),
}
BURST = {selector("karpenter_nodepools_limit", nodepool="burst", resource_type="cpu"): always("8")}
LATE = waiting("late", "nvidia_com_gpu_shared")
POOL_FULL, LIMIT = (
    fired(
        *("GpuPodPending", "warning"),
        **{"namespace": "team", "pod": "late", "resource": "nvidia_com_gpu_shared", "reason": reason},
    )
    for reason in ("pool_full", "limit")
)
AT_LIMIT = fired("GpuNodePoolAtLimit", "warning", nodepool="turns", pool="turns", resource_type="nodes")
NO_SPARE = fired("GpuSpareGone", "warning", pool="turns", deployment="spare-turns")
LEFT, MOST = "gpuform:nodepool:nodes_left", "gpuform:nodepool:nodes_most"
DECLARED = 'gpuform:pool:gpus_declared{pool="turns",sharing="time_slicing"}'
COST = 'round(gpuform:pool:cost_per_hour{pool="turns",sharing="time_slicing"}, 0.001)'
SIZE = 'gpuform:nodepool:node_size{resource_type="cpu"}'


def of_pool(name: str, **labels: str) -> str:
    return selector(name, nodepool="turns", pool="turns", **labels)


NODES = {"resource_type": "nodes"}
CASES = {
    "a pod waits, and a node may be added": (
        "elastic",
        Case(BY_KARPENTER | LATE, {9: [], 30: [POOL_FULL], 60: []}),
    ),
    # 16 of 18 cores are used and a node has 4: no node fits, though the limit is not reached.
    "no further node fits into the limit": (
        "elastic",
        Case(
            BY_KARPENTER | LATE | {USED_CORES: during("16", "4")},
            {9: [], 30: [{**AT_LIMIT, "resource_type": "cpu"}, LIMIT], 60: []},
        ),
    ),
    "a node group has room": ("node group", Case(ONE_FULL_NODE | LATE, {9: [], 30: [POOL_FULL]})),
    "a node group has its most nodes": (
        "node group",
        Case(ONE_FULL_NODE | SECOND | LATE, {9: [], 30: [AT_LIMIT, LIMIT]}),
    ),
    "a node group has its most nodes, and no pod waits": (
        "node group",
        Case(ONE_FULL_NODE | SECOND, {14: [], 30: [AT_LIMIT]}),
    ),
    "rooms of a node group": (
        "node group",
        shows(ONE_FULL_NODE, {LEFT: {of_pool(LEFT, **NODES): 1}, MOST: {of_pool(MOST, **NODES): 2}}),
    ),
    "rooms of a node group without nodes": (
        "node group",
        shows(world.node_series(PLAIN), {LEFT: {of_pool(LEFT, **NODES): 2}}),
    ),
    "rooms of a node group of which nothing is known": ("node group", shows({}, {LEFT: {}})),
    # A resource that Karpenter has not used yet counts as 0.
    "rooms of a node pool": (
        "elastic",
        shows(
            BY_KARPENTER,
            {
                LEFT: {
                    of_pool(LEFT, resource_type="cpu"): 3,
                    of_pool(LEFT, resource_type="nvidia.com/gpu.shared"): 4,
                },
                f"sum({SIZE})": 4,
                "gpuform:resource:limited": {},
                f"sum({DECLARED})": 1,
                f"sum({COST})": 0.537,
            },
        ),
    ),
    "a managed node group has its most nodes, and Karpenter may add one": (
        "both",
        Case(ONE_FULL_NODE | SECOND | LATE | BURST, {9: [], 30: [AT_LIMIT, POOL_FULL]}),
    ),
    "rooms of a managed node group and of a node pool": (
        "both",
        shows(
            ONE_FULL_NODE | BURST,
            {
                LEFT: {
                    of_pool(LEFT, **NODES): 1,
                    selector(LEFT, nodepool="burst", pool="burst", resource_type="cpu"): 2,
                }
            },
        ),
    ),
    "a node pool without nodes": ("elastic", shows(world.node_series(PLAIN), {f"sum({DECLARED})": 0})),
    "a node pool of which nothing is known": ("elastic", shows({}, {DECLARED: {}})),
    "no node is kept free": (
        "elastic",
        Case(BY_KARPENTER | {SPARE_PODS: during("0", "4")}, {9: [], 35: [], 43: [NO_SPARE], 60: []}),
    ),
    "no series of pods that keep nodes free": (
        "elastic",
        Case(
            {name: value for name, value in BY_KARPENTER.items() if name != SPARE_PODS},
            {29: [], 43: [NO_SPARE]},
        ),
    ),
}


@pytest.mark.parametrize(("env", "case"), CASES.values(), ids=CASES)
def test_what_may_still_be_bought(promtool: Promtool, env: str, case: Case) -> None:
    promtool.test(case, env=ENVIRONMENTS[env])


def hpa(name: str, **labels: str) -> str:
    of = {"namespace": "team", "horizontalpodautoscaler": "keda-hpa-web"}
    return selector(f"kube_horizontalpodautoscaler_{name}", **of, **labels)


def kueue_pending(queue: str) -> str:
    return selector("kueue_pending_workloads", cluster_queue=queue, status="active", replica_role="leader")


def ready(pod: str) -> str:
    return selector("kube_pod_status_ready", namespace="team", pod=pod, condition="true")


HAS, INACTIVE = (
    hpa("status_current_replicas"),
    hpa("status_condition", condition="ScalingActive", status="false"),
)
ADMITTED = selector("kueue_admitted_workloads_total", cluster_queue="science", priority_class="0")
EVICTED = "web-5d9c7b6f4d-evict"
SERVING = world.healthy() | {
    kueue_pending("science"): always("0"),
    kueue_pending("theirs"): always("3"),  # not a queue of the stack
    ADMITTED: always("5"),
    hpa("spec_max_replicas"): always("4"),
    hpa("status_desired_replicas"): always("2"),
    HAS: always("2"),
    INACTIVE: always("0"),
    ready("web-5d9c7b6f4d-abcde"): always("1"),
    ready("web-canary-5d9c7b6f4d-abcde"): always("0"),  # of another Deployment
    ready(EVICTED): always("0"),
    selector("kube_pod_status_phase", namespace="team", pod=EVICTED, phase="Failed"): always("1"),
}


def test_each_alert_about_serving_fires_alone_and_ends(promtool: Promtool) -> None:
    """What is admitted, or scaled to zero and so inactive on purpose, is no fault."""
    fine = {
        kueue_pending("science"): always("2"),
        ADMITTED: "5+1x300",
        INACTIVE: always("1"),
        HAS: always("0"),
    }
    promtool.test(
        provoke(SERVING, rows("serving"), (15, 24, 29, 43), ended=75),
        Case(SERVING | fine, {9: [], 43: [], 130: []}),
        env=ENVIRONMENTS["scaled"],
    )


def test_serving_that_the_stack_does_not_declare_is_no_fault(promtool: Promtool) -> None:
    elsewhere = {name: value for row in rows("serving") for name, value in row.series.items()}
    promtool.test(Case(SERVING | elsewhere, {9: [], 43: [], 75: []}))

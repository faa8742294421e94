"""Requested GPUs by pod and namespace, and the attribution of their use.

For a GPU shared by time-slicing or MPS, DCGM does not name the pods, and its pod labels are missing in other
cases, too: so use is divided among the pods that requested the same resource on the same node, by their
requests. For a GPU or slice with one pod this is exact; among sharing pods, a busy one hides an idle one. Use
is measured on devices, so a pod may use more than it requested; idle is never below zero, and known only
where use is known. Hours: the samples of the past hour while the rules ran; time without samples is neither
used nor idle. Ended pods request nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.plan.rules.devices import UTILISATION
from infra.plan.rules.facts import DEVICE_PART, UNIT
from infra.plan.rules.promql import NODE_INFO, Rule, most, record, set_label

ALIVE = "gpuform:pod:alive"
POD_UNITS = "gpuform:pod:units_requested"
POD_REQUESTED = "gpuform:pod:gpus_requested"
POD_USED = "gpuform:pod:gpus_used"
RESOURCE_USED = "gpuform:resource:gpus_used"
NAMESPACE_REQUESTED = "gpuform:namespace:gpus_requested"
NAMESPACE_USED = "gpuform:namespace:gpus_used"
NAMESPACE_IDLE = "gpuform:namespace:gpus_idle"
GPUS = 'resource=~"nvidia_com_.+"'
_CONTAINER = ("namespace", "pod", "uid", "container", "node", "resource")
_POD = ("namespace", "pod", "uid", "node", "resource")
_NAMESPACE = "namespace, pool, sharing"


def asked(matchers: str) -> str:
    """PromQL for the units that each pod requests, by resource, without ended pods.

    An init container runs before the others, so it counts only if it requests more than they do.
    """
    main = most(_CONTAINER, f"kube_pod_container_resource_requests{{{matchers}}}")
    first = most(_POD, f"kube_pod_init_container_resource_requests{{{matchers}}}")
    both = f"sum by ({','.join(_POD)}) ({main}) or {set_label(first, 'part', 'init')}"
    alive = f"({both}) * on (namespace,pod,uid) group_left () {ALIVE}"
    return most(("namespace", "pod", "node", "resource"), alive)


def rules() -> Iterator[Rule]:
    """Recording rules of requests and use: by pod, then by namespace."""
    yield record(
        ALIVE, most(("namespace", "pod", "uid"), 'kube_pod_status_phase{phase=~"Pending|Running"} == 1')
    )
    requests = asked(f'{GPUS},node!=""')
    yield record(POD_UNITS, f"{requests} * on (node) group_left (pool) {NODE_INFO}")
    yield record(POD_REQUESTED, f"{POD_UNITS} * on (pool,resource) group_left (sharing) {UNIT}")
    parts = f"{UTILISATION} * on (pool,GPU_I_PROFILE) group_left (resource,sharing) {DEVICE_PART}"
    yield record(RESOURCE_USED, f"sum by (node,pool,resource,sharing) ({parts})")
    asked_here = f"sum by (node,pool,resource) ({POD_REQUESTED})"
    share = f"{POD_REQUESTED} / on (node,pool,resource) group_left () {asked_here}"
    used_here = f"sum by (node,pool,resource) ({RESOURCE_USED})"
    yield record(POD_USED, f"{share} * on (node,pool,resource) group_left () {used_here}")
    yield record(NAMESPACE_REQUESTED, f"sum by ({_NAMESPACE}) ({POD_REQUESTED})")
    yield record(NAMESPACE_USED, f"sum by ({_NAMESPACE}) ({POD_USED})")
    idle = f"clamp_min({POD_REQUESTED} - {POD_USED}, 0)"
    yield record(NAMESPACE_IDLE, f"sum by ({_NAMESPACE}) ({idle})")


def hours() -> Iterator[Rule]:
    """GPU-hours of the past hour: the mean over the time in which the rules ran."""
    for what, series in (
        ("requested", NAMESPACE_REQUESTED),
        ("used", NAMESPACE_USED),
        ("idle", NAMESPACE_IDLE),
    ):
        seen = "scalar(count_over_time(gpuform:rules:running[1h]))"
        yield record(f"gpuform:namespace:gpu_hours_{what}_1h", f"sum_over_time({series}[1h]) / {seen}")

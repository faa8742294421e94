"""Allocatable and requested resources, and why a pod waits for a GPU.

Free is what an ordinary pod could get: placeholders give way, and a node that is cordoned, not ready, not yet
proven or unhealthy has nothing free. kube-state-metrics does not export a pod's node selector, so a pod is
compared with every pool that offers its resource: if a pool has room and the pod still waits, the reason is
``unschedulable``, and only the pod's events say more.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.labels import GPU_NOT_READY, GPU_UNHEALTHY, QUEUE_ADMITTED, QUEUE_MANAGED
from infra.model.scheduling import PLACEHOLDER
from infra.plan.rules.attribution import ALIVE, GPUS, POD_REQUESTED, POD_UNITS, RESOURCE_USED, asked
from infra.plan.rules.facts import NODE_DECLARED, NODE_MOST, NODE_SIZE, PER_NODE, UNIT
from infra.plan.rules.promql import NODE_INFO, Rule, label, most, record

ALLOCATABLE = "gpuform:resource:allocatable"
REQUESTED = "gpuform:resource:requested"
FREE = "gpuform:resource:free"
PENDING = "gpuform:pod:units_pending"
REASON = "gpuform:pod:pending_reason"
POOL_ALLOCATABLE = "gpuform:pool:gpus_allocatable"
POOL_REQUESTED, POOL_USED = "gpuform:pool:gpus_requested", "gpuform:pool:gpus_used"
ROOM = "gpuform:nodepool:nodes_left"
KNOWN = "gpuform:resource:known"
LARGEST, TOTAL = "gpuform:resource:free_largest", "gpuform:resource:free_total"
AWAITED = "gpuform:resource:awaited"
LIMITED = "gpuform:resource:limited"
_BOTH = 'resource=~"nvidia_com_.+|cpu|memory"'
_NODE = ("node", "resource")
READY = most(("node",), 'kube_node_status_condition{condition="Ready",status="true"} == 1')
_TAINTED = f'kube_node_spec_taint{{key=~"{GPU_NOT_READY}|{GPU_UNHEALTHY}"}}'
USABLE = f"({READY} unless on (node) (kube_node_spec_unschedulable == 1) unless on (node) {_TAINTED})"


def rules(elastic: bool, counted: bool, queued: bool) -> Iterator[Rule]:
    """Recording rules of nodes, then pools, then pending pods.

    ``elastic``: whether any pool is; ``counted``: whether only the number of nodes limits it (Magnum);
    ``queued``: whether pods may wait in a queue.
    """
    offered = most(_NODE, f"kube_node_status_allocatable{{{_BOTH}}}")
    yield record(ALLOCATABLE, f"{offered} * on (node) group_left (pool) {NODE_INFO}")
    yield record(REQUESTED, f"sum by (node,pool,resource) ({POD_UNITS}) or {_others('requests')}")
    # For extended resources Kubernetes requires request and limit to be equal.
    gpus = f"{REQUESTED}{{{GPUS}}}"
    yield record("gpuform:resource:limits", f"{gpus} or {_others('limits')}")
    yield from _pools()
    yield from _waiting(elastic, counted, queued)


def _others(kind: str) -> str:
    """CPU and memory of live pods by node, without init containers: those have ended by then."""
    matchers = 'resource=~"cpu|memory",node!=""'
    keys = ("namespace", "pod", "uid", "container", "node", "resource")
    each = most(keys, f"kube_pod_container_resource_{kind}{{{matchers}}}")
    alive = f"{each} and on (namespace,pod,uid) {ALIVE}"
    return f"sum by (node,resource) ({alive}) * on (node) group_left (pool) {NODE_INFO}"


def _pools() -> Iterator[Rule]:
    by = "sum by (pool,sharing)"
    in_gpus = f"{ALLOCATABLE} * on (pool,resource) group_left (sharing) {UNIT}"
    yield record(POOL_ALLOCATABLE, f"{by} ({in_gpus})")
    none = f"0 * {POOL_ALLOCATABLE}"
    yield record(POOL_REQUESTED, f"{by} ({POD_REQUESTED}) or {none}")
    yield record(POOL_USED, f"{by} ({RESOURCE_USED})")


def _waiting(elastic: bool, counted: bool, queued: bool) -> Iterator[Rule]:
    """kube-state-metrics calls pods unschedulable also while a gate holds them back (its store/pod.go)."""
    taken = f'sum by (node,pool,resource) ({POD_UNITS}{{namespace!="{PLACEHOLDER}"}})'
    gpus = f"{ALLOCATABLE}{{{GPUS}}}"
    left = f"clamp_min({gpus} - on (node,pool,resource) ({taken} or 0 * {gpus}), 0)"
    yield record(FREE, f"{left} and on (node) {USABLE}")
    waits = most(("namespace", "pod"), "kube_pod_status_unschedulable == 1")
    if queued:
        held = f'{{label_{label(QUEUE_MANAGED)}="true",label_{label(QUEUE_ADMITTED)}=""}}'
        waits = f"({waits} unless on (namespace,pod) kube_pod_labels{held})"
    matchers = f'{GPUS},node="",namespace!="{PLACEHOLDER}"'
    pods = f"sum by (namespace,pod,resource) ({asked(matchers)})"
    yield record(PENDING, f"{pods} and on (namespace,pod) {waits}")
    yield from _summed()
    if elastic:
        yield record(ROOM, _node_groups() if counted else _node_pools())
        yield record(LIMITED, _limited())
    for reason, expression in _reasons(elastic):
        yield record(REASON, expression, {"reason": reason})


def _summed() -> Iterator[Rule]:
    """Figures to compare a pending pod with, by resource: 0 if nothing is free, no series if unknown."""
    some = f"max by (resource) (kube_node_status_allocatable{{{GPUS}}})"
    offered = f"(max by (resource) ({UNIT}) or {some} > 0)"
    yield record(KNOWN, f"group by (resource) {offered} and on () max(kube_node_info)")
    yield record(LARGEST, f"max by (resource) ({FREE}) or 0 * {KNOWN}")
    yield record(TOTAL, f"sum by (resource) ({FREE}) or 0 * {KNOWN}")
    yield record(AWAITED, f"group by (resource) ({NODE_DECLARED} unless on (node) {USABLE})")


def _node_pools() -> str:
    keys = ("nodepool", "resource_type")
    limit, usage = (most(keys, f"karpenter_nodepools_{name}") for name in ("limit", "usage"))
    left = f"({limit} - ({usage} or 0 * {limit}))"
    return f"floor({left} / on (nodepool,resource_type) group_left (pool) {NODE_SIZE})"


def _node_groups() -> str:
    """Nodes that each group may still add; for a group without nodes only if the cluster's state is known."""
    none = f"0 * max by (pool) ({NODE_MOST} and on () max(kube_node_info))"
    return f"{NODE_MOST} - on (pool) group_left () (count by (pool) ({NODE_INFO}) or {none})"


def _reasons(elastic: bool) -> Iterator[tuple[str, str]]:
    """(reason, PromQL of its pending pods); no pod has two reasons."""
    too_large = f"{PENDING} > on (resource) group_left () max by (resource) ({PER_NODE})"
    fits = f"({PENDING} unless ({too_large}))"
    beyond = f"({fits} > on (resource) group_left () {TOTAL})"
    yield "no_such_resource", f"{PENDING} unless on (resource) {KNOWN} and on () max(kube_node_info)"
    yield "too_large", too_large
    yield "unschedulable", f"{fits} <= on (resource) group_left () {LARGEST}"
    scattered = f"({fits} > on (resource) group_left () {LARGEST})"
    yield "fragmented", f"{scattered} <= on (resource) group_left () {TOTAL}"
    yield "not_ready", f"{beyond} and on (resource) {AWAITED}"
    rest = f"{beyond} unless on (resource) {AWAITED}"
    if elastic:
        yield "limit", f"{rest} and on (resource) {LIMITED}"
        rest += f" unless on (resource) {LIMITED}"
    yield "pool_full", rest


def _limited() -> str:
    """Resources of pools with every NodePool at a limit, unless a pool that may grow offers them too."""
    full = f"count by (pool) (count by (pool,nodepool) ({ROOM} < 1))"
    every = f"count by (pool) (count by (pool,nodepool) ({NODE_SIZE}))"
    stuck = f"({full} >= on (pool) {every})"
    may_buy = f"({every} unless on (pool) {stuck})"
    at_limit = f"group by (resource) ({UNIT} and on (pool) {stuck})"
    return f"{at_limit} unless on (resource) group by (resource) ({UNIT} and on (pool) {may_buy})"

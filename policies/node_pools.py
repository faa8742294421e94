"""Rules over pools: Karpenter's NodePools, EKS node groups, and nodes that others make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from policies import contract
from policies.pods import namespace, template
from policies.rule import Resource, Rule, chart_of, get, items, mapping, text

LONGEST_GRACE_S = 110
"""EC2 ends a spot instance two minutes after its notice, which takes up to ten seconds to Karpenter."""

_HARD = ("NoSchedule", "NoExecute", "NO_SCHEDULE", "NO_EXECUTE")


def _labels(pool: Resource) -> Any:
    return mapping(pool.props, "spec", "template", "metadata", "labels")


def has_gpus(pool: Resource) -> bool:
    """Whether the pool's nodes have GPUs, judged by labels, startup taint, image or ``sharing``."""
    if pool.type == contract.POOL_NODES:
        return get(pool.props, "sharing") is not None
    if pool.type == contract.NODE_POOL:
        labels, taints = _labels(pool), items(pool.props, "spec", "template", "spec", "startupTaints")
    else:
        labels, taints = mapping(pool.props, "labels"), items(pool.props, "taints")
    accelerated = text(pool.props, "amiType").endswith("_NVIDIA")
    waits = any(get(taint, "key") == contract.GPU_NOT_READY for taint in taints)
    configured = contract.DEVICE_PLUGIN_CONFIG in labels or contract.DEPLOY_DEVICE_PLUGIN in labels
    return accelerated or waits or configured


def _tainted(pool: Resource, _: Sequence[Resource]) -> Iterator[str]:
    path = ("spec", "template", "spec", "taints") if pool.type == contract.NODE_POOL else ("taints",)
    if pool.type == contract.POOL_NODES and not items(pool.props, *path):
        return  # nodes that exist, and shall have no taint: gpu_operator.gpu_taint none
    hard = [
        taint
        for taint in items(pool.props, *path)
        if get(taint, "effect") in _HARD and get(taint, "key") != contract.GPU_NOT_READY
    ]
    if has_gpus(pool) and not hard:
        yield f"has GPUs and no taint such as {contract.GPU}: any pod may run on its nodes"


def _limited(pool: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    limits = mapping(pool.props, "spec", "limits")
    if get(pool.props, "spec", "replicas") is not None:
        return  # static: its replicas are its limit
    if not limits:
        yield "spec.limits is empty: nothing limits how many nodes it launches"
    elif set(limits) == {contract.GPU} and not _offers_gpu(pool, resources):
        yield (
            f"spec.limits counts {contract.GPU}, which its nodes do not offer when GPUs are shared: "
            "limit the offered resource or cpu"
        )


def _offers_gpu(pool: Resource, resources: Sequence[Resource]) -> bool:
    """Whether its nodes offer ``nvidia.com/gpu``: by its overlay, or by our names of configurations."""
    for overlay in resources:
        offered = get(overlay.props, "spec", "capacity", contract.GPU)
        selected = [items(term, "values") for term in items(overlay.props, "spec", "requirements")]
        if offered is not None and any(get(pool.props, "metadata", "name") in names for names in selected):
            return str(offered) != "0"
    labels = _labels(pool)
    mig = labels.get(contract.MIG_CONFIG, contract.MIG_STANDARD[0])
    return mig in contract.MIG_STANDARD and not text(labels, contract.DEVICE_PLUGIN_CONFIG).startswith(
        "slice-"
    )


def _expiry_grace(pool: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    spec = mapping(pool.props, "spec", "template", "spec")
    # Karpenter's default is 720h, and expiry ignores do-not-disrupt.
    expires = str(spec.get("expireAfter", "720h"))
    if expires == "Never" or spec.get("terminationGracePeriod"):
        return
    name = _labels(pool).get(contract.POOL)
    for resource in resources:
        pod = template(resource)
        if get(pod, "spec", "nodeSelector", contract.POOL) != name:
            continue
        if get(pod, "metadata", "annotations", contract.DO_NOT_DISRUPT) == "true":
            yield (
                f"expires nodes after {expires} without terminationGracePeriod, under {resource.name}, "
                f"which has {contract.DO_NOT_DISRUPT}"
            )


def _spot(pool: Resource) -> bool:
    """Whether a NodePool may buy spot instances."""
    return any(
        get(requirement, "key") == contract.CAPACITY_TYPE and "spot" in items(requirement, "values")
        for requirement in items(pool.props, "spec", "template", "spec", "requirements")
    )


def _on_spot(pod: Any, resources: Sequence[Resource]) -> bool:
    """Whether the pod selects spot nodes, or a pool that may have some."""
    selector = mapping(pod, "spec", "nodeSelector")
    pool = selector.get(contract.POOL)
    spots = {_labels(other).get(contract.POOL) for other in resources if _spot(other)}
    return selector.get(contract.CAPACITY_TYPE) == "spot" or (pool is not None and pool in spots)


def _spot_grace(resource: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    pod = template(resource)
    seconds = get(pod, "spec", "terminationGracePeriodSeconds")
    if seconds is None or seconds <= LONGEST_GRACE_S:
        return
    if _on_spot(pod, resources):
        yield f"may run on spot nodes, which end after two minutes, and asks for {seconds:g} s to end"


def _spot_budget(budget: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    """Only budgets that allow no eviction at all: how many pods share a node is not known before."""
    unavailable, available = (get(budget.props, "spec", key) for key in ("maxUnavailable", "minAvailable"))
    selector = mapping(budget.props, "spec", "selector", "matchLabels")
    for resource in resources:
        pod = template(resource)
        labels = mapping(pod, "metadata", "labels")
        if not selector or selector.items() - labels.items() or namespace(resource) != namespace(budget):
            continue
        # https://kubernetes.io/docs/tasks/run-application/configure-pdb: these require zero evictions.
        all_stay = available is not None and available in ("100%", get(resource.props, "spec", "replicas"))
        if (all_stay or unavailable in (0, "0%")) and _on_spot(pod, resources):
            yield f"allows no eviction of {resource.name}, which may run on spot nodes: they end regardless"


def _interruption_queue(pool: Resource, resources: Sequence[Resource]) -> Iterator[str]:
    if not _spot(pool):
        return
    releases = [other for other in resources if chart_of(other) == "karpenter"]
    if not any(get(other.props, "values", "settings", "interruptionQueue") for other in releases):
        yield "uses spot, and Karpenter has no interruption queue: nodes end without the two-minute drain"


def _static_dra(pool: Resource, _: Sequence[Resource]) -> Iterator[str]:
    by_claim = _labels(pool).get(contract.DEPLOY_DEVICE_PLUGIN) == "false"
    if by_claim and get(pool.props, "spec", "replicas") is None:
        yield "is elastic and offers GPUs by claim (DRA): pods with claims alone start none of its nodes"


RULES = (
    Rule(
        "gpu-pool-tainted",
        "Pools with GPUs keep out pods that request none.",
        "high",
        "taint the pool, as nvidia.com/gpu=true:NoSchedule; gpuform does so for every pool with GPUs",
        (contract.NODE_POOL, contract.NODE_GROUP, contract.POOL_NODES),
        _tainted,
    ),
    Rule(
        "elastic-pool-limited",
        "Elastic pools have a limit on a resource that their nodes offer.",
        "high",
        "set elastic.max to cpu or to the offered resource, for example nvidia.com/gpu.shared",
        (contract.NODE_POOL,),
        _limited,
        whole_stack=True,
    ),
    Rule(
        "expiry-with-grace",
        "Nodes that expire give pods that must not be disrupted a limited time to end.",
        "medium",
        "set terminationGracePeriod with expireAfter, or expireAfter: Never (class: training)",
        (contract.NODE_POOL,),
        _expiry_grace,
        whole_stack=True,
    ),
    Rule(
        "spot-with-queue",
        "Spot nodes are drained in the two minutes before the interruption.",
        "high",
        "set settings.interruptionQueue of the karpenter release",
        (contract.NODE_POOL,),
        _interruption_queue,
        whole_stack=True,
    ),
    Rule(
        "spot-grace",
        "Pods on spot nodes end within the two minutes before the interruption.",
        "low",
        f"set terminationGracePeriodSeconds to {LONGEST_GRACE_S} or less, or use a pool without spot",
        contract.PODS,
        _spot_grace,
        whole_stack=True,
    ),
    Rule(
        "spot-budget",
        "Disruption budgets let pods leave spot nodes in the two minutes before the interruption.",
        "low",
        "set maxUnavailable to 1 or more, or use a pool without spot",
        (contract.BUDGET,),
        _spot_budget,
        whole_stack=True,
    ),
    Rule(
        "dra-static",
        "Pools that offer GPUs by claim have a fixed number of nodes.",
        "high",
        "give the pool nodes: N instead of elastic",
        (contract.NODE_POOL,),
        _static_dra,
    ),
)

"""Evicts the pods that use the GPUs of a node, within disruption budgets.

All of them are evicted, even if only some of the GPUs change: only the kubelet knows which devices a pod has,
the API does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Call
from gpuform.provider.nodes.cluster import Cluster, EvictionRefused, Manifest, pod_name
from infra.model.base.namespaces import TRIAL

_PAUSE_S = 1.0
_DRIVER = "gpu.nvidia.com"  # DRA driver of the GPUs


def uses_gpu(pod: Manifest) -> bool:
    """Whether a container requests a resource of NVIDIA; operands that only monitor the GPU do not."""
    spec = pod.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
            if any(key.startswith("nvidia.com/") and str(count) != "0" for key, count in amounts.items()):
                return True
    return False


def claim_names(pod: Manifest) -> list[str]:
    """Names of the pod's ResourceClaims, without those that are not created yet."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    names = {item["name"]: item.get("resourceClaimName") for item in statuses}
    claims = (pod.get("spec") or {}).get("resourceClaims") or ()
    resolved = [item.get("resourceClaimName") or names.get(item["name"]) for item in claims]
    return [name for name in resolved if name]


def is_gpu_claim(claim: Manifest) -> bool:
    """Whether NVIDIA's DRA driver has allocated a device to the claim."""
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    return any(result.get("driver") == _DRIVER for result in devices.get("results") or ())


def obstacle(pod: Manifest) -> str:
    """Why an evicted pod would not come back on another node; empty if it would."""
    if pod["metadata"]["namespace"] == TRIAL:
        return ""  # the readiness gate starts another one once the node is uncordoned
    owners = pod["metadata"].get("ownerReferences") or []
    controller = next((owner["kind"] for owner in owners if owner.get("controller")), None)
    if controller is None:
        return "has no controller that would recreate it"
    if controller == "DaemonSet":
        return "belongs to a DaemonSet, which would recreate it on this node at once"
    if controller == "Node":
        return "is a static pod of the node"
    return ""


async def gpu_pods(cluster: Cluster, node: str) -> list[Manifest]:
    return [pod for pod in await cluster.pods(node) if uses_gpu(pod) or await has_claim(cluster, pod)]


async def has_claim(cluster: Cluster, pod: Manifest) -> bool:
    """Whether the pod has a GPU by claim (DRA); a claim that cannot be read counts, to be safe."""
    for name in claim_names(pod):
        claim = await cluster.claim(pod["metadata"]["namespace"], name)
        if claim is None or is_gpu_claim(claim):
            return True
    return False


def refusal(node: str, pods: Sequence[Manifest]) -> str:
    """Why the layout of ``node`` cannot be changed, naming each blocking pod; empty if it can."""
    running = [pod for pod in pods if not _is_terminating(pod)]
    blocked = [f"pod {pod_name(pod)} {reason}" for pod in running if (reason := obstacle(pod))]
    if not blocked:
        return ""
    return f"node {node}: its GPUs are in use: {'; '.join(blocked)}; delete it, or let it end, and run again"


def in_use_refusal(node: str, pods: Sequence[Manifest]) -> str:
    """Why ``node`` is left as it is if eviction is not allowed; empty if no pod uses its GPUs."""
    if not pods:
        return ""
    names = ", ".join(pod_name(pod) for pod in pods)
    return (
        f"node {node}: its GPUs are in use by {names}, but the pool has relayout.in_use: refuse; let them "
        "end, or set drain, and run again"
    )


async def drain(call: Call, cluster: Cluster, node: str, timeout_s: float) -> None:
    """Evict every pod that uses a GPU of ``node`` and wait until the last is gone.

    A refused eviction is retried for ``timeout_s``. Raises `OperationError` naming the remaining pods and the
    disruption budget that blocks them.
    """
    deadline = time.monotonic() + timeout_s
    while pods := await gpu_pods(cluster, node):
        if reason := refusal(node, pods):
            raise OperationError(reason)
        answers = await asyncio.gather(*(_evict(cluster, pod) for pod in pods))
        names = map(pod_name, pods)
        states = "; ".join(f"{name} {state}" for name, state in sorted(zip(names, answers, strict=True)))
        await call.status(f"node {node}: waiting for {len(pods)} pods to leave: {states}")
        if time.monotonic() > deadline:
            raise OperationError(
                f"node {node}: {len(pods)} pods still use its GPUs after {timeout_s:.0f} s: {states}; "
                "give the disruption budget room (more replicas, or a lower minimum), or raise timeoutSeconds"
            )
        await call.sleep(_PAUSE_S)


async def _evict(cluster: Cluster, pod: Manifest) -> str:
    if _is_terminating(pod):
        return "is terminating"
    try:
        await cluster.evict(pod)
    except EvictionRefused as refused:
        return f"eviction refused: {refused}"
    return "evicted"


def _is_terminating(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))

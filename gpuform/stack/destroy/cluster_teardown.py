"""The part of a destroy that needs the running cluster: deletions that its controllers must complete.

Each function can be run again at any time, and continues where it was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpuform.checkout.errors import Failure
from gpuform.stack.destroy import finalizers
from gpuform.stack.destroy.cluster import (
    CLAIM,
    INGRESS,
    NODE,
    NODE_CLAIM,
    NODE_CLASS,
    NODE_OVERLAY,
    NODE_POOL,
    POD,
    SERVICE,
    VOLUME,
    WORKLOADS,
    Cluster,
    Json,
    Kind,
    Left,
    Say,
    StillThere,
    named,
    of_object,
    require_gone,
    until_gone,
)
from gpuform.stack.destroy.state import Declared
from infra.model import labels

_KEEPING = 5
"""How often volumes are patched and read again: a concurrent change may overwrite the patch."""
FINALIZERS = ("karpenter.sh/termination", "karpenter.k8s.aws/termination")
"""Karpenter's own; ``--force`` removes no other finalizers."""

POOLS = (NODE_POOL, NODE_CLAIM)
CLASSES = (NODE_OVERLAY, NODE_CLASS)
"""NodeOverlays have no finalizer; Karpenter deletes the instance profiles of EC2NodeClasses."""


def balancers(cluster: Cluster) -> list[tuple[Kind, Json]]:
    """Services and Ingresses that the cloud has a load balancer for, which blocks the cluster's network."""
    services = (one for one in cluster.objects(SERVICE) if one["spec"].get("type") == "LoadBalancer")
    return [*((SERVICE, one) for one in services), *((INGRESS, one) for one in cluster.objects(INGRESS))]


def delete_workloads(cluster: Cluster, seconds: float, say: Say, declared: Sequence[Declared]) -> None:
    """Delete the stack's own workloads with their pods; other workloads end with their node."""

    def look() -> Iterator[Left]:
        for ref in declared:
            kind = WORKLOADS[ref.kind]
            one = cluster.find(kind, ref.namespace, ref.name)
            if one is not None:
                cluster.delete(kind, one, with_owned=True)
                yield of_object(kind, one)

    require_gone("workloads", look, seconds, say, "see `kubectl describe` of them")


def delete_balancers(cluster: Cluster, seconds: float, say: Say) -> None:
    """Delete Services of type LoadBalancer and Ingresses; their controllers delete the load balancers."""

    def look() -> Iterator[Left]:
        for kind, one in balancers(cluster):
            cluster.delete(kind, one)
            yield of_object(kind, one)

    remedy = (
        "their controller removes the finalizer once the cloud has deleted the load balancer: see "
        "the events, or delete load balancer and finalizer by hand, and run the same command again"
    )
    require_gone("load balancers", look, seconds, say, remedy)


def kept_volumes(cluster: Cluster) -> list[Json]:
    """Volumes with data to keep: those bound to a claim."""
    return [one for one in cluster.objects(VOLUME) if (one.get("spec") or {}).get("claimRef")]


def keep_volumes(cluster: Cluster) -> None:
    """Set every volume to Retain, so that it stays at the cloud when namespace, claim and cluster go.

    Reads back until all have it. Raises Failure if one does not take it: its data would be lost.
    """
    for _ in range(_KEEPING):
        lost = [
            one
            for one in kept_volumes(cluster)
            if one["spec"].get("persistentVolumeReclaimPolicy") != "Retain"
        ]
        if not lost:
            return
        for one in lost:
            cluster.patch(VOLUME, one, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    raise Failure(
        "destroy: volumes to keep",
        f"{', '.join(map(named, lost))} would be deleted with their claims: setting Retain has no effect",
        "find out what resets the reclaim policy, and run the same command again",
    )


def delete_volumes(cluster: Cluster, seconds: float, say: Say) -> None:
    """Delete every claim, the pods that use one, and the volumes behind them, with their data.

    A volume of a storage class with Retain is kept, as declared.
    """

    def look() -> Iterator[Left]:
        claims = cluster.objects(CLAIM)
        for one in claims:
            cluster.delete(CLAIM, one)
            yield of_object(CLAIM, one)
        if claims:  # a claim waits for its pods
            wanted = {named(one) for one in claims}
            for pod in cluster.objects(POD):
                if wanted & set(_claims(pod)):
                    cluster.delete(POD, pod)
        for one in cluster.objects(VOLUME):
            if one["spec"].get("persistentVolumeReclaimPolicy") == "Delete" and one["spec"].get("claimRef"):
                yield of_object(VOLUME, one)

    remedy = "see the events of the claims, and the log of the storage driver (EBS CSI, Cinder CSI)"
    require_gone("volumes", look, seconds, say, remedy)


def _claims(pod: Json) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield f"{pod['metadata']['namespace']}/{volume['persistentVolumeClaim']['claimName']}"


def delete_karpenter_objects(
    cluster: Cluster,
    seconds: float,
    say: Say,
    kinds: tuple[Kind, ...],
    force: Callable[[], None] | None = None,
) -> None:
    """Delete all objects of `POOLS` or `CLASSES`: Karpenter drains and terminates the nodes.

    ``force`` is called after the deletions were requested and before Karpenter's finalizers are removed.
    Raises Failure that names what blocks them when the time is up.
    """

    def ask() -> list[Left]:
        left: list[Left] = []
        for kind in kinds:
            for one in cluster.objects(kind):
                cluster.delete(kind, one)
                left.append(of_object(kind, one))
        return left

    def look() -> list[Left]:
        left = ask()
        if left and force is not None:
            _release(cluster, kinds)
        return left

    if force is not None and ask():
        force()
    try:
        until_gone(look, seconds, say)
    except StillThere as still:
        lives, said = finalizers.why(cluster, still.left)
        raise Failure(f"destroy: {_names(kinds)}", f"{still}; {said}", _remedy(lives.alive)) from None


def _release(cluster: Cluster, kinds: tuple[Kind, ...]) -> None:
    if NODE_CLAIM in kinds:
        for node in cluster.objects(NODE, labelSelector=labels.NODE_POOL):
            cluster.delete(NODE, node)
            cluster.release(NODE, node, FINALIZERS)
    for kind in kinds:
        for one in cluster.objects(kind):
            cluster.release(kind, one, FINALIZERS)


def _remedy(alive: bool) -> str:
    if alive:
        return (
            "Karpenter is deleting them: make their pods evictable (budgets, finalizers, "
            "karpenter.sh/do-not-disrupt), and run the same command again"
        )
    return (
        "restore Karpenter and run the same command again, or, if it cannot be restored, run with --force: "
        "that terminates its instances and removes its finalizers"
    )


def _names(kinds: tuple[Kind, ...]) -> str:
    return " and ".join(f"{kind.name}s" for kind in kinds)

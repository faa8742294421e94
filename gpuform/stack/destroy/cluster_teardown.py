"""The part of a destroy that needs the running cluster: deletions that its controllers must complete.

Each function can be run again at any time, and continues where it was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.cluster import Cluster, Json, name_of
from gpuform.kubernetes.kinds import (
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
    Kind,
)
from gpuform.stack.destroy import operator
from gpuform.stack.destroy.state import DeclaredObject
from gpuform.stack.destroy.waiting import (
    Remaining,
    Say,
    StillExists,
    remaining_object,
    require_deleted,
    wait_until_deleted,
)
from infra.model.base import labels

_RETAIN_ATTEMPTS = 5
"""How often volumes are patched and read again: a concurrent change may overwrite the patch."""
FINALIZERS = ("karpenter.sh/termination", "karpenter.k8s.aws/termination")
"""Karpenter's own; ``--force`` removes no other finalizers."""

POOLS = (NODE_POOL, NODE_CLAIM)
CLASSES = (NODE_OVERLAY, NODE_CLASS)
"""NodeOverlays have no finalizer; Karpenter deletes the instance profiles of EC2NodeClasses."""


def list_balancers(cluster: Cluster) -> list[tuple[Kind, Json]]:
    """Services and Ingresses that the cloud has a load balancer for, which blocks the cluster's network."""
    services = (item for item in cluster.list_objects(SERVICE) if item["spec"].get("type") == "LoadBalancer")
    ingresses = ((INGRESS, item) for item in cluster.list_objects(INGRESS))
    return [*((SERVICE, item) for item in services), *ingresses]


def delete_workloads(cluster: Cluster, seconds: float, say: Say, declared: Sequence[DeclaredObject]) -> None:
    """Delete the stack's own workloads with their pods; other workloads end with their node."""

    def delete_and_list() -> Iterator[Remaining]:
        for ref in declared:
            kind = WORKLOADS[ref.kind]
            workload = cluster.find(kind, ref.namespace, ref.name)
            if workload is not None:
                cluster.delete(kind, workload, with_owned=True)
                yield remaining_object(kind, workload)

    require_deleted("workloads", delete_and_list, seconds, say, "see `kubectl describe` of them")


def delete_balancers(cluster: Cluster, seconds: float, say: Say) -> None:
    """Delete Services of type LoadBalancer and Ingresses; their controllers delete the load balancers."""

    def delete_and_list() -> Iterator[Remaining]:
        for kind, balancer in list_balancers(cluster):
            cluster.delete(kind, balancer)
            yield remaining_object(kind, balancer)

    remedy = (
        "their controller removes the finalizer once the cloud has deleted the load balancer: see "
        "the events, or delete load balancer and finalizer by hand, and run the same command again"
    )
    require_deleted("load balancers", delete_and_list, seconds, say, remedy)


def list_kept_volumes(cluster: Cluster) -> list[Json]:
    """Volumes with data to keep: those bound to a claim."""
    return [volume for volume in cluster.list_objects(VOLUME) if (volume.get("spec") or {}).get("claimRef")]


def keep_volumes(cluster: Cluster) -> None:
    """Set every volume to Retain, so that it stays at the cloud when namespace, claim and cluster go.

    Reads back until all have it. Raises Failure if one does not take it: its data would be lost.
    """
    for _ in range(_RETAIN_ATTEMPTS):
        lost = [
            volume
            for volume in list_kept_volumes(cluster)
            if volume["spec"].get("persistentVolumeReclaimPolicy") != "Retain"
        ]
        if not lost:
            return
        for volume in lost:
            cluster.patch(VOLUME, volume, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    raise Failure(
        "destroy: volumes to keep",
        f"{', '.join(map(name_of, lost))} would be deleted with their claims: setting Retain has no effect",
        "find out what resets the reclaim policy, and run the same command again",
    )


def delete_volumes(cluster: Cluster, seconds: float, say: Say) -> None:
    """Delete every claim, the pods that use one, and the volumes behind them, with their data.

    A volume of a storage class with Retain is kept, as declared.
    """

    def delete_and_list() -> Iterator[Remaining]:
        claims = cluster.list_objects(CLAIM)
        for claim in claims:
            cluster.delete(CLAIM, claim)
            yield remaining_object(CLAIM, claim)
        if claims:  # a claim waits for its pods
            claim_names = {name_of(claim) for claim in claims}
            for pod in cluster.list_objects(POD):
                if claim_names & set(_claims_of(pod)):
                    cluster.delete(POD, pod)
        for volume in cluster.list_objects(VOLUME):
            spec = volume["spec"]
            if spec.get("persistentVolumeReclaimPolicy") == "Delete" and spec.get("claimRef"):
                yield remaining_object(VOLUME, volume)

    remedy = "see the events of the claims, and the log of the storage driver (EBS CSI, Cinder CSI)"
    require_deleted("volumes", delete_and_list, seconds, say, remedy)


def _claims_of(pod: Json) -> Iterator[str]:
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

    def delete_all() -> list[Remaining]:
        remaining: list[Remaining] = []
        for kind in kinds:
            for item in cluster.list_objects(kind):
                cluster.delete(kind, item)
                remaining.append(remaining_object(kind, item))
        return remaining

    def delete_and_list() -> list[Remaining]:
        remaining = delete_all()
        if remaining and force is not None:
            _remove_finalizers(cluster, kinds)
        return remaining

    if force is not None and delete_all():
        force()
    try:
        wait_until_deleted(delete_and_list, seconds, say)
    except StillExists as timeout:
        controller, reason = operator.explain(cluster, timeout.remaining)
        raise Failure(
            f"destroy: {_kind_names(kinds)}", f"{timeout}; {reason}", _remedy(controller.alive)
        ) from None


def _remove_finalizers(cluster: Cluster, kinds: tuple[Kind, ...]) -> None:
    if NODE_CLAIM in kinds:
        for node in cluster.list_objects(NODE, labelSelector=labels.NODE_POOL):
            cluster.delete(NODE, node)
            cluster.remove_finalizers(NODE, node, FINALIZERS)
    for kind in kinds:
        for item in cluster.list_objects(kind):
            cluster.remove_finalizers(kind, item, FINALIZERS)


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


def _kind_names(kinds: tuple[Kind, ...]) -> str:
    return " and ".join(f"{kind.name}s" for kind in kinds)

"""Controllers that must run until what they own is deleted: NVIDIA's operator and Karpenter.

A GPUCluster has a finalizer that only the operator removes, and an NVIDIADriver's pods end by its order;
without the operator both stay. NVIDIA's order: delete them, wait, then uninstall (its page about uninstalling
it; github.com/NVIDIA/gpu-operator/pull/2716). Those of the stack's own release are deleted with
it, by its hook. A ClusterPolicy has no finalizer: what it owns goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import starmap
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import abbreviate
from gpuform.kubernetes.cluster import Cluster, Json, is_deleting, name_of
from gpuform.kubernetes.kinds import BUDGET, DEPLOYMENT, EVENT, LEASE, POD, Kind
from gpuform.kubernetes.pods import first_not_ready
from gpuform.stack.destroy.waiting import Remaining, Say, remaining_object, require_deleted, summarise
from infra.plan import sharing
from infra.plan.eks import KARPENTER_NAMESPACE, SERVICE_ACCOUNT

_GROUP = "/apis/nvidia.com/v1alpha1"
GPU_CLUSTER = Kind("GPUCluster", _GROUP, "gpuclusters")
DRIVER = Kind("NVIDIADriver", _GROUP, "nvidiadrivers")
KINDS = (GPU_CLUSTER, DRIVER)
RELEASE = "gpu-operator"
BOUND_S = 300.0
"""As in NVIDIA's documentation."""
_ANNOTATIONS = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": sharing.NAMESPACE}


def require_finished(cluster: Cluster, seconds: float, say: Say) -> None:
    """Wait for those that are being deleted.

    Raises Failure, before anything is deleted, if one is not, or still exists when the time is up.
    """
    left = [(kind, item) for kind, item in _list_foreign(cluster) if not is_deleting(item)]
    if left:
        names = " ".join(f"{kind.plural}.nvidia.com/{name_of(item)}" for kind, item in left)
        raise Failure(
            "destroy: NVIDIA's operator",
            f"{summarise(list(starmap(remaining_object, left)))}; only the running operator can delete it",
            f"delete the pods that use it, then `kubectl delete {names}`, and run the same command again",
        )

    def list_remaining() -> list[Remaining]:
        return [remaining_object(kind, item) for kind, item in _list_foreign(cluster)]

    remedy = (
        "the operator removes the finalizer once nothing uses the GPUs: see its log "
        f"(`kubectl -n {sharing.NAMESPACE} logs deployment/{RELEASE}`), and run the same command again"
    )
    require_deleted("NVIDIA's operator", list_remaining, seconds, say, remedy)


def _list_foreign(cluster: Cluster) -> list[tuple[Kind, Mapping[str, Any]]]:
    """Objects that do not belong to the stack's release."""
    items = [(kind, item) for kind in KINDS for item in cluster.list_objects(kind)]
    return [(kind, item) for kind, item in items if not _is_own(item)]


def _is_own(item: Mapping[str, Any]) -> bool:
    return _ANNOTATIONS.items() <= (item["metadata"].get("annotations") or {}).items()


NAME = SERVICE_ACCOUNT
"""Name of Karpenter's Deployment, and of its release."""
_LEASE = "karpenter-leader-election"  # Karpenter's --leader-election-name
_LEASE_VALID_S = 60.0
"""A leader renews every few seconds and loses its lease after 15 s; the rest allows for clock skew."""
_SHOWN = 3


@dataclass(frozen=True)
class Controller:
    """Karpenter in a cluster: whether it runs, and its state as text."""

    alive: bool
    state: str


def read_controller(cluster: Cluster) -> Controller:
    """Whether Karpenter runs: a Deployment with a ready pod, or a leader that renews its lease.

    Not detected: one that runs outside of the cluster and takes no lease.
    """
    deployment = cluster.find(DEPLOYMENT, KARPENTER_NAMESPACE, NAME)
    leader = _describe_leader(cluster.find(LEASE, KARPENTER_NAMESPACE, _LEASE))
    if deployment is None:
        missing = f"no Deployment {KARPENTER_NAMESPACE}/{NAME}"
        return Controller(
            bool(leader), leader or f"is not running ({missing}, and no leader renews its lease)"
        )
    status, replicas = deployment.get("status") or {}, (deployment.get("spec") or {}).get("replicas", 1)
    ready = int(status.get("readyReplicas") or 0)
    if ready:
        return Controller(True, f"is running ({ready} of {replicas} ready)")
    if leader:
        return Controller(True, leader)
    pods = cluster.list_objects(POD, KARPENTER_NAMESPACE, labelSelector=f"app.kubernetes.io/name={NAME}")
    detail = f": {problem}" if (problem := first_not_ready(pods)) else ""
    return Controller(False, f"is not ready (0 of {replicas}{detail})")


def _describe_leader(lease: Json | None) -> str:
    spec = (lease or {}).get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return ""
    age = (datetime.now(UTC) - datetime.fromisoformat(str(spec["renewTime"]))).total_seconds()
    state = f"is running ({spec['holderIdentity']} is the leader, as of {max(age, 0):.0f} s ago)"
    return state if age < _LEASE_VALID_S else ""


def list_blocking_budgets(cluster: Cluster) -> str:
    """PodDisruptionBudgets with pods that allow no eviction now; empty without any."""
    blocking = []
    for budget in cluster.list_objects(BUDGET):
        status, spec = budget.get("status") or {}, budget.get("spec") or {}
        if status.get("expectedPods") and not status.get("disruptionsAllowed"):
            limits = [f"{key} {spec[key]}" for key in ("minAvailable", "maxUnavailable") if key in spec]
            blocking.append(
                f"{name_of(budget)} ({status.get('currentHealthy', 0)} healthy, {', '.join(limits)})"
            )
    return abbreviate(blocking, _SHOWN)


def list_warnings(cluster: Cluster, remaining: Iterable[Remaining]) -> str:
    """The last warning events about these objects and their nodes of the same name; empty without any."""
    names = {item.name for item in remaining}
    events = [
        event
        for event in cluster.list_objects(EVENT, fieldSelector="type=Warning")
        if (event.get("involvedObject") or {}).get("name") in names
    ]
    events.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    texts = (
        f"{event.get('reason')}: {' '.join(str(event.get('message')).split())}" for event in reversed(events)
    )
    return abbreviate(list(dict.fromkeys(texts)), _SHOWN)


def explain(cluster: Cluster, remaining: Sequence[Remaining]) -> tuple[Controller, str]:
    """Karpenter's state, and one sentence with state, budgets and warnings."""
    karpenter = read_controller(cluster)
    blocking, warnings = list_blocking_budgets(cluster), list_warnings(cluster, remaining)
    sentences = [
        f"Karpenter, which must terminate them, {karpenter.state}",
        f"budgets that allow no eviction: {blocking}" if blocking else "",
        f"last warnings: {warnings}" if warnings else "",
    ]
    return karpenter, "; ".join(part for part in sentences if part)

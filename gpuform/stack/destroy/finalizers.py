"""Why nodes are not removed: Karpenter's health, budgets that allow no eviction, warning events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuform.checkout.listing import some
from gpuform.kubernetes.pods import worst
from gpuform.stack.destroy.cluster import BUDGET, DEPLOYMENT, EVENT, LEASE, POD, Cluster, Json, Left, named
from infra.plan.eks import KARPENTER_NAMESPACE, SERVICE_ACCOUNT

NAME = SERVICE_ACCOUNT
"""Name of Karpenter's Deployment, and of its release."""
_LEASE = "karpenter-leader-election"  # Karpenter's --leader-election-name
_RENEWED_S = 60.0
"""A leader renews every few seconds and loses its lease after 15 s; the rest allows for clock skew."""
_SHOWN = 3


@dataclass(frozen=True)
class Controller:
    """Karpenter in a cluster: whether it runs, and its state as text."""

    alive: bool
    said: str


def controller(cluster: Cluster) -> Controller:
    """Whether Karpenter runs: a Deployment with a ready pod, or a leader that renews its lease.

    Not detected: one that runs outside of the cluster and takes no lease.
    """
    deployment = cluster.find(DEPLOYMENT, KARPENTER_NAMESPACE, NAME)
    leads = _leader(cluster.find(LEASE, KARPENTER_NAMESPACE, _LEASE))
    if deployment is None:
        where = f"no Deployment {KARPENTER_NAMESPACE}/{NAME}"
        return Controller(bool(leads), leads or f"is not running ({where}, and no leader renews its lease)")
    status, wanted = deployment.get("status") or {}, (deployment.get("spec") or {}).get("replicas", 1)
    ready = int(status.get("readyReplicas") or 0)
    if ready:
        return Controller(True, f"is running ({ready} of {wanted} ready)")
    if leads:
        return Controller(True, leads)
    pods = cluster.objects(POD, KARPENTER_NAMESPACE, labelSelector=f"app.kubernetes.io/name={NAME}")
    why = f": {text}" if (text := worst(pods)) else ""
    return Controller(False, f"is not ready (0 of {wanted}{why})")


def _leader(lease: Json | None) -> str:
    spec = (lease or {}).get("spec") or {}
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return ""
    age = (datetime.now(UTC) - datetime.fromisoformat(str(spec["renewTime"]))).total_seconds()
    said = f"is running ({spec['holderIdentity']} is the leader, as of {max(age, 0):.0f} s ago)"
    return said if age < _RENEWED_S else ""


def budgets(cluster: Cluster) -> str:
    """PodDisruptionBudgets with pods that allow no eviction now; empty without any."""
    shut = []
    for one in cluster.objects(BUDGET):
        status, spec = one.get("status") or {}, one.get("spec") or {}
        if status.get("expectedPods") and not status.get("disruptionsAllowed"):
            asks = [f"{key} {spec[key]}" for key in ("minAvailable", "maxUnavailable") if key in spec]
            shut.append(f"{named(one)} ({status.get('currentHealthy', 0)} healthy, {', '.join(asks)})")
    return some(shut, _SHOWN)


def events(cluster: Cluster, left: Iterable[Left]) -> str:
    """The last warning events about these objects and their nodes of the same name; empty without any."""
    names = {one.name for one in left}
    found = [
        one
        for one in cluster.objects(EVENT, fieldSelector="type=Warning")
        if (one.get("involvedObject") or {}).get("name") in names
    ]
    found.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    texts = (f"{one.get('reason')}: {' '.join(str(one.get('message')).split())}" for one in reversed(found))
    return some(list(dict.fromkeys(texts)), _SHOWN)


def why(cluster: Cluster, left: Sequence[Left]) -> tuple[Controller, str]:
    """Karpenter's state, and one sentence with state, budgets and warnings."""
    lives = controller(cluster)
    shut, warned = budgets(cluster), events(cluster, left)
    said = [
        f"Karpenter, which must terminate them, {lives.said}",
        f"budgets that allow no eviction: {shut}" if shut else "",
        f"last warnings: {warned}" if warned else "",
    ]
    return lives, "; ".join(part for part in said if part)

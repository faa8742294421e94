"""What Kubernetes manifests have in common: the stack's labels, affinity to nodes, tolerations, security."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from infra.model.base import labels
from infra.model.environment import Environment

Manifest = dict[str, Any]

CONFINED: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of a container that needs no privilege and no writable disk."""


def manifest(kind: str, metadata: Manifest, api: str = "v1", **content: Any) -> Manifest:
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def own_labels(env: Environment, **others: str) -> dict[str, str]:
    """Labels of every object of the stack; ``others`` by the names of ``infra.model.base.labels``."""
    base = {labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform"}
    return base | {getattr(labels, name): value for name, value in others.items()}


def label_in(key: str, values: Iterable[str]) -> Manifest:
    """The term that a node's label has one of these values."""
    return {"key": key, "operator": "In", "values": list(values)}


def node_affinity(*terms: Manifest | Sequence[Manifest]) -> Manifest:
    """Affinity to nodes that satisfy one of the terms; a sequence is a term of several expressions."""
    specs = [{"matchExpressions": [term] if isinstance(term, dict) else list(term)} for term in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": specs}}}


def tolerate(key: str, effect: str = "NoSchedule") -> dict[str, str]:
    """The toleration of a taint with any value."""
    return {"key": key, "operator": "Exists", "effect": effect}


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """As Kubernetes' ``Toleration.ToleratesTaint`` (k8s.io/api, core/v1/toleration.go)."""
    exists = toleration.get("operator") == "Exists"
    return (
        toleration.get("effect") in (None, "", taint["effect"])
        and (toleration.get("key") == taint["key"] or (exists and not toleration.get("key")))
        and (exists or str(toleration.get("value") or "") == (taint.get("value") or ""))
    )


def unique(entries: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """The entries without repetitions, in their order."""
    result: list[dict[str, str]] = []
    for entry in entries:
        if entry not in result:
            result.append(entry)
    return result


def nonroot(user: int, **more: Any) -> Manifest:
    """Security context of a pod."""
    return {"runAsNonRoot": True, "runAsUser": user, **more, "seccompProfile": {"type": "RuntimeDefault"}}


def rbac_rule(group: str, resource: str, *verbs: str, **more: Any) -> Manifest:
    """An RBAC rule."""
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **more}


def cluster_ip_service(
    metadata: Manifest, app: str, port: Mapping[str, Any], awaited: bool = True, **spec: Any
) -> Manifest:
    """A Service of the pods of a workload; an update waits for its endpoints only if ``awaited``."""
    if not awaited:
        metadata = {**metadata, "annotations": {labels.SKIP_AWAIT: "true"}}
    ports = [{"protocol": "TCP", **port}]
    spec = {"type": "ClusterIP", **spec, "selector": {labels.APP_NAME: app}, "ports": ports}
    return manifest("Service", metadata, spec=spec)


def volume_claim(size: str, storage_class: str | None) -> Manifest:
    """Spec of a claim for a volume that one node mounts; without a class, of the cluster's default one."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class} if storage_class else spec

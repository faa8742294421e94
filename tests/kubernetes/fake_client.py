"""A cluster's API for tests that read it: objects by path, and discovery of their kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.kubernetes.client import ApiError, Unreachable

NAMESPACED: Mapping[str, Mapping[str, str]] = {
    "/api/v1": {
        "pods": "Pod",
        "services": "Service",
        "configmaps": "ConfigMap",
        "secrets": "Secret",
        "serviceaccounts": "ServiceAccount",
        "events": "Event",
        "persistentvolumeclaims": "PersistentVolumeClaim",
    },
    "/apis/apps/v1": {
        "deployments": "Deployment",
        "replicasets": "ReplicaSet",
        "statefulsets": "StatefulSet",
    },
    "/apis/kubeflow.org/v1": {"notebooks": "Notebook"},
}


def kubeconfig(
    cluster: Mapping[str, Any], user: Mapping[str, Any] | None = None, **context: Any
) -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context with these fields."""
    return {
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
    }


class FakeClient:
    """Answers GETs; ``silent`` plays a cluster that does not answer."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.forbidden: tuple[str, ...] = ()
        self.absent: tuple[str, ...] = ()
        self.unreachable = ""
        self.uid = ""

    def add(self, plural: str, name: str, namespace: str = "lab", **metadata: Any) -> dict[str, Any]:
        spec = metadata.pop("spec", {})
        uid = f"{plural}/{namespace}/{name}"
        manifest = {"metadata": {"name": name, "namespace": namespace, "uid": uid, **metadata}, "spec": spec}
        self.objects.setdefault(plural, []).append(manifest)
        return manifest

    def pod(self, name: str, node: str, **metadata: Any) -> None:
        self.add("pods", name, spec={"nodeName": node}, **metadata)

    def node(self, name: str, pool: str) -> None:
        self.add("nodes", name, "", labels={"gpuform.io/pool": pool})

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        if self.unreachable:
            raise Unreachable(self.unreachable)
        if path == "/api/v1/namespaces/kube-system":
            return {"metadata": {"uid": self.uid}}
        if path == "/apis":
            versions = [path.removeprefix("/apis/") for path in NAMESPACED if path.startswith("/apis/")]
            versions.append("metrics.k8s.io/v1beta1")
            return {"groups": [{"preferredVersion": {"groupVersion": item}} for item in versions]}
        if path in NAMESPACED:
            verbs = ["create", "delete", "get", "list"]
            kinds = [
                {"name": plural, "kind": kind, "namespaced": True, "verbs": verbs}
                for plural, kind in NAMESPACED[path].items()
            ]
            return {"resources": kinds}
        if path == "/apis/metrics.k8s.io/v1beta1":
            raise ApiError(503, {"message": "the server is currently unable to handle the request"})
        *_, plural = path.split("/")
        if plural in self.forbidden:
            raise ApiError(403, {"message": f"{plural} is forbidden"})
        if plural in self.absent:
            raise ApiError(404, {"message": "the server could not find the requested resource"})
        namespace = path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else None
        selector = (params or {}).get("labelSelector", "")
        _, _, pools = selector.partition(" in ")
        equal = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
        items = [
            item
            for item in self.objects.get(plural, [])
            if namespace in (None, item["metadata"]["namespace"])
            and (not pools or item["metadata"]["labels"]["gpuform.io/pool"] in pools[1:-1].split(","))
            and equal.items() <= (item["metadata"].get("labels") or {}).items()
        ]
        return {"items": items}

    async def find(self, path: str) -> dict[str, Any] | None:
        if self.unreachable:
            raise Unreachable(self.unreachable)
        *_, kind, name = path.split("/")
        namespace = [{"metadata": {"name": name}}] if name == "lab" else []
        named = (item for item in self.objects.get(kind, []) if item["metadata"]["name"] == name)
        return next(named, *(namespace or [None]))

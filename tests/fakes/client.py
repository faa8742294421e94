"""A cluster's API for tests: objects by path, discovery of their kinds, and changes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import httpx

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
OURS = {"app.kubernetes.io/managed-by": "gpuform", "gpuform.io/environment": "dev"}
"""Labels of what the environment ``dev`` creates."""


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
    """Objects by plural; ``unreachable`` is why the cluster does not answer.

    ``ending`` is how often an object (plural, namespace and name) is still listed before it is gone.
    ``changes`` are method, path and body of all other requests, and "END" of what is gone.
    """

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.forbidden: tuple[str, ...] = ()
        self.absent: tuple[str, ...] = ()
        self.unreachable = ""
        self.uid = ""
        self.ending: dict[str, int] = {}
        self.changes: list[tuple[str, str, Any]] = []

    def add(self, plural: str, name: str, namespace: str = "lab", **metadata: Any) -> dict[str, Any]:
        spec, status, uid = (
            metadata.pop("spec", {}),
            metadata.pop("status", {}),
            f"{plural}/{namespace}/{name}",
        )
        metadata = {"name": name, "uid": uid, **({"namespace": namespace} if namespace else {}), **metadata}
        manifest = {"metadata": metadata, "spec": spec, "status": status}
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
        key, _, values = selector.partition(" in ")
        equal = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
        items = [
            item
            for item in self.objects.get(plural, [])
            if namespace in (None, item["metadata"].get("namespace"))
            and (not values or (item["metadata"].get("labels") or {}).get(key) in values[1:-1].split(","))
            and equal.items() <= (item["metadata"].get("labels") or {}).items()
        ]
        return {"items": deepcopy([item for item in items if not self._has_ended(plural, item)])}

    def _has_ended(self, plural: str, item: dict[str, Any]) -> bool:
        uid = item["metadata"]["uid"]
        if uid not in self.ending:
            return False
        self.ending[uid] -= 1
        if self.ending[uid] < 0:
            self.objects[plural].remove(item)
            self.changes.append(("END", uid, None))
        return self.ending[uid] < 0

    async def find(self, path: str) -> dict[str, Any] | None:
        if self.unreachable:
            raise Unreachable(self.unreachable)
        return deepcopy(self._find(path))

    def _find(self, path: str) -> dict[str, Any] | None:
        *_, kind, name = path.split("/")
        namespace = [{"metadata": {"name": name}}] if name == "lab" else []
        named = (item for item in self.objects.get(kind, []) if item["metadata"]["name"] == name)
        return next(named, *(namespace or [None]))

    async def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> httpx.Response:
        """Merges a patch into an object; 404 without the object, or if its name is ``absent``."""
        self.changes.append((method, path, body))
        found = self._find(path.removesuffix("/scale"))
        if found is None or found["metadata"]["name"] in self.absent:
            raise ApiError(404, {})
        _merge(found, body or {})
        return httpx.Response(200, json=found)

    async def apply(self, path: str, body: Any, *, manager: str, force: bool = False) -> None:
        self.changes.append(("APPLY", manager, body))


def _merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    """As a JSON merge patch does."""
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value

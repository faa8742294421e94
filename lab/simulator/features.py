"""NodeFeature objects, in which NFD's worker and GFD publish what they find: nfd-master makes the labels.

Names and owners as NFD 0.19.0, pkg/nfd-worker/nfd-worker.go, and k8s-device-plugin,
cmd/gpu-feature-discovery (output of the kind node-feature-api).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.simulator.objects import Node, Pod

Json = Mapping[str, Any]
_API = "nfd.k8s-sigs.io/v1alpha1"
FEATURES = f"/apis/{_API}/nodefeatures"
_NODE = "nfd.node.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True)
class Feature:
    """The labels that a pod publishes for its node."""

    pod: Pod
    name: str
    labels: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"/apis/{_API}/namespaces/{self.pod.namespace}/nodefeatures/{self.name}"

    def manifest(self, node: Node) -> dict[str, Any]:
        kind, name, uid = self.pod.owner
        return {
            "apiVersion": _API,
            "kind": "NodeFeature",
            "metadata": {
                "name": self.name,
                "namespace": self.pod.namespace,
                "labels": {_NODE: node.name},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid}],
            },
            "spec": {"labels": dict(self.labels)},
        }


class FeatureStore:
    """Published labels by namespace and name, kept up to date by the store's watch."""

    def __init__(self, changed: Callable[[Iterable[str]], None]) -> None:
        self._changed = changed
        self.labels: dict[tuple[str, str], Mapping[str, str]] = {}

    def put(self, raw: Json, _: bool = False, gone: bool = False) -> None:
        meta = raw["metadata"]
        key = (meta["namespace"], meta["name"])
        if gone:
            self.labels.pop(key, None)
        else:
            self.labels[key] = raw["spec"].get("labels") or {}
        self._changed([(meta.get("labels") or {}).get(_NODE, "")])

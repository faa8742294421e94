"""An API server in memory for the health loop's own client: nodes, ConfigMaps and events."""

from __future__ import annotations

import copy
import itertools
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

from infra.incluster.actions import RECORD, TAINT
from infra.incluster.cluster import CONFLICT, NOT_FOUND, Cluster

Json = dict[str, Any]


class FakeCluster(Cluster):
    """Calls ``before`` with method and path of each request, and ``after`` when it took effect."""

    def __init__(self) -> None:
        self.namespace = "gpuform-health"
        self.nodes_by_name: dict[str, Json] = {}
        self.maps: dict[str, Json] = {}
        self.events: list[Json] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.after: Callable[[str, str], None] = lambda method, path: None
        self.on_cordon: Callable[[Json, Json], None] = lambda before, node: None
        self.on_lift: Callable[[Json], None] = lambda node: None
        self.on_write: Callable[[Json], None] = lambda config_map: None
        self._version = itertools.count(1)

    def add(self, name: str, uid: str, pool: str, own_offers: bool) -> None:
        """A node of that pool, with its promise in an annotation or without one."""
        labels = {"gpuform.io/pool": pool}
        offers = {"gpuform.io/offers": '{"nvidia.com/gpu": 1}'} if own_offers else {}
        self.nodes_by_name[name] = {
            "metadata": {"name": name, "uid": uid, "labels": labels, "annotations": offers},
            "spec": {},
            "status": {
                "allocatable": {"nvidia.com/gpu": "1"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"bootID": "boot-0"},
            },
        }
        self.touch(name)

    def touch(self, name: str, **spec: Any) -> None:
        """Another version of the node, with these fields of its spec."""
        node = self.nodes_by_name[name]
        meta = {**node["metadata"], "resourceVersion": str(next(self._version))}
        self.nodes_by_name[name] = {**node, "metadata": meta, "spec": {**node["spec"], **spec}}

    def annotate(self, name: str, **annotations: str | None) -> None:
        meta = self.nodes_by_name[name]["metadata"]
        merged = {**meta["annotations"], **annotations}
        meta = {**meta, "annotations": {key: value for key, value in merged.items() if value is not None}}
        self.nodes_by_name[name] = {**self.nodes_by_name[name], "metadata": meta}
        self.touch(name)

    def taint(self, name: str) -> str | None:
        taints = self.nodes_by_name[name]["spec"].get("taints") or ()
        return next((item["value"] for item in taints if item["key"] == TAINT), None)

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | list[Json] | None = None,
        kind: str = "",
    ) -> Json:
        self.before(method, path)
        assert not isinstance(body, list)
        result = self._answer(method, path.split("/")[3 if path.startswith("/api/") else 4 :], body or {})
        self.after(method, path)
        return result

    def _answer(self, method: str, path: list[str], body: Json) -> Json:
        match method, path:
            case "GET", ["nodes"]:
                names = sorted(self.nodes_by_name, key=lambda name: name[::-1])  # not by age
                return {"items": [self.nodes_by_name[name] for name in names], "metadata": {}}
            case "PATCH", ["nodes", name]:
                return self._patch(name, body)
            case "PATCH", ["nodes", name, "status"]:
                node = self.nodes_by_name.get(name) or _refuse(NOT_FOUND)
                (condition,) = body["status"]["conditions"]
                others = [item for item in node["status"]["conditions"] if item["type"] != condition["type"]]
                self.nodes_by_name[name] = {
                    **node,
                    "status": {**node["status"], "conditions": [*others, condition]},
                }
                self.touch(name)
                return self.nodes_by_name[name]
            case "POST", ["namespaces", _, "events"]:
                self.events.append(body)
                return body
            case "GET", ["namespaces", _, "configmaps", name]:
                return copy.deepcopy(self.maps.get(name) or _refuse(NOT_FOUND))
            case "PUT" | "POST", ["namespaces", _, "configmaps", *_]:
                return self._write(body)
        raise AssertionError((method, path))

    def _patch(self, name: str, body: Json) -> Json:
        node = self.nodes_by_name.get(name) or _refuse(NOT_FOUND)
        if body["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"]:
            _refuse(CONFLICT)
        self.annotate(name, **body["metadata"]["annotations"])
        self.touch(name, taints=body["spec"]["taints"])
        annotations = body["metadata"]["annotations"]
        changed = self.nodes_by_name[name]
        if annotations.get(RECORD):
            self.on_cordon(node, changed)
        elif RECORD in annotations:
            self.on_lift(changed)
        return changed

    def _write(self, body: Json) -> Json:
        name = body["metadata"]["name"]
        version = (self.maps.get(name) or {"metadata": {}})["metadata"].get("resourceVersion")
        if version != body["metadata"].get("resourceVersion"):
            _refuse(CONFLICT)
        meta = {**body["metadata"], "uid": name, "resourceVersion": str(next(self._version))}
        self.maps[name] = copy.deepcopy({**body, "metadata": meta})
        self.on_write(self.maps[name])
        return copy.deepcopy(self.maps[name])


def _refuse(code: int) -> Any:
    raise urllib.error.HTTPError("https://plane", code, "refused", Message(), None)

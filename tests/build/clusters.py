"""Clusters of others: objects as kubectl prints them, from the short form in tests/adopt/clusters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
CLUSTER = {"kind": "existing", "kubeconfig": "~/.kube/config"}
"""The cluster of an adopted environment."""
SECRET = "hunter2"
"""In every field of `pod` that a rehearsal must not keep."""
_SMALL = {"requests": {"cpu": "1", "memory": "2Gi"}}


def taint(text: str) -> Json:
    """``key=value:Effect`` as an object."""
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(\w+)", text)
    assert match, text
    return {"key": match[1], "effect": match[3], **({"value": match[2]} if match[2] else {})}


def kubernetes(item: Mapping[str, Any]) -> Json:
    """An entry of a file as an object of the API."""
    known = ("apiVersion", "kind", "name", "namespace", "labels", "owner", "taints", "offers")
    metadata = {key: item[key] for key in ("name", "namespace", "labels") if key in item}
    if "owner" in item:
        metadata["ownerReferences"] = [{"kind": item["owner"], "name": "x"}]
    rest = {key: value for key, value in item.items() if key not in known}
    if item["kind"] == "Node":
        amounts = {key: str(value) for key, value in item.get("offers", {}).items()}
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": amounts}
        rest |= {"spec": {"taints": [taint(text) for text in item.get("taints", ())]}, "status": status}
    return {"apiVersion": item.get("apiVersion", "v1"), "kind": item["kind"], "metadata": metadata, **rest}


def dump_of(items: Iterable[Json], folder: Path) -> Path:
    file = folder / "dump.json"
    file.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [kubernetes(item) for item in items]})
    )
    return file


def node(name: str, labels: dict[str, str], offers: dict[str, Any] | None = None, **spec: Any) -> Any:
    made = kubernetes(
        {
            "kind": "Node",
            "name": name,
            "labels": {"kubernetes.io/hostname": f"{name}.lan", **labels},
            "offers": {"cpu": 16, "memory": "120Gi", "pods": 110, **(offers or {})},
        }
    )
    return {**made, "spec": {**made["spec"], **spec}}


def pod(
    name: str,
    on_node: str = "gpu-1",
    owner: tuple[str, str] | None = None,
    phase: str = "Running",
    **more: Any,
) -> Any:
    container = {
        "name": "main",
        "image": f"registry/{SECRET}:1",
        "env": [{"name": "TOKEN", "value": SECRET}],
        "command": [SECRET],
        "resources": more.pop("resources", _SMALL),
    }
    meta: dict[str, Any] = {
        "name": name,
        "namespace": more.pop("namespace", "lab"),
        "labels": more.pop("labels", {}),
    }
    if owner:
        meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    spec = {"nodeName": on_node, "containers": [container], "volumes": [{"name": SECRET}], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}

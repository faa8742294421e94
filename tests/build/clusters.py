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

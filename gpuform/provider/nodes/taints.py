"""A node's taints: one list that the node controllers write as well, so each is changed on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.nodes.cluster import Manifest


def live(node: Manifest) -> list[Manifest]:
    found: list[Manifest] = (node.get("spec") or {}).get("taints") or []
    return found


def key_of(taint: Mapping[str, Any]) -> tuple[str, str]:
    """Key and effect, which identify a taint on a node."""
    return str(taint["key"]), str(taint["effect"])


def value_of(taint: Mapping[str, Any]) -> str:
    return str(taint.get("value") or "")


def startup(inputs: Mapping[str, Any]) -> list[Manifest]:
    found: list[Manifest] = (inputs.get("startup") or {}).get("taints") or []
    return found


def owed(node: Manifest, inputs: Mapping[str, Any]) -> list[Manifest]:
    """Taints that ``node`` is to have: the pool's and, until its proof is noted on it, the startup taints."""
    every: list[Manifest] = list(inputs.get("taints") or [])
    noted = node["metadata"].get("annotations") or {}
    proven = startup(inputs) and inputs["startup"]["proof"] in noted
    return every if proven else [*every, *startup(inputs)]


def merged(node: Manifest, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Manifest]:
    """The node's taints without those of ``old`` and with those of ``new``.

    A startup taint on a proven node stays: it requests a new proof.

    Raises `OperationError` for a taint that the node has with another value and that was not ours.
    """
    ours = {key_of(item): value_of(item) for item in [*(old.get("taints") or []), *startup(old)]}
    wanted = {key_of(item): item for item in owed(node, new)}
    lifted_by_others = {key_of(item) for item in startup(new)}
    result = []
    for item in live(node):
        key = key_of(item)
        if key in wanted:
            if value_of(item) not in (value_of(wanted[key]), ours.get(key)):
                raise OperationError(
                    f"node {node['metadata']['name']}: the taint {key[0]}={value_of(item)}:{key[1]} was "
                    f"not set by this pool, which needs the value {value_of(wanted[key])!r}; remove one"
                )
            changed = {**item, "value": value_of(wanted.pop(key))}
            result.append({name: value for name, value in changed.items() if name != "value" or value})
        elif ours.get(key) != value_of(item) or key in lifted_by_others:
            result.append(item)
    added = ({"key": key[0], "effect": key[1], "value": value_of(item)} for key, item in wanted.items())
    result += [{name: value for name, value in item.items() if value} for item in added]
    return result

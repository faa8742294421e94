"""A node's taints: one list that the node controllers write as well, so each is changed on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.provider.nodes.cluster import Manifest
from infra.model.base.labels import NVIDIA_GPU

GKES_TAINT = (NVIDIA_GPU, "present")
"""Key and value of the taint that GKE sets on nodes with GPUs [cloud.google.com, GKE, how-to/gpus]."""


def current(node: Manifest) -> list[Manifest]:
    taints: list[Manifest] = (node.get("spec") or {}).get("taints") or []
    return taints


def key_of(taint: Mapping[str, Any]) -> tuple[str, str]:
    """Key and effect, which identify a taint on a node."""
    return str(taint["key"]), str(taint["effect"])


def value_of(taint: Mapping[str, Any]) -> str:
    return str(taint.get("value") or "")


def is_met(taint: Mapping[str, Any], value: str) -> bool:
    """Whether a node's ``value`` of that taint is enough."""
    return value == value_of(taint) or (taint["key"], value) == GKES_TAINT


def startup_of(inputs: Mapping[str, Any]) -> list[Manifest]:
    taints: list[Manifest] = (inputs.get("startup") or {}).get("taints") or []
    return taints


def required(node: Manifest, inputs: Mapping[str, Any]) -> list[Manifest]:
    """Taints that ``node`` is to have: the pool's and, until its proof is noted on it, the startup taints."""
    taints: list[Manifest] = list(inputs.get("taints") or [])
    annotations = node["metadata"].get("annotations") or {}
    is_proven = startup_of(inputs) and inputs["startup"]["proof"] in annotations
    return taints if is_proven else [*taints, *startup_of(inputs)]


def merge(node: Manifest, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Manifest]:
    """The node's taints without those of ``old`` and with those of ``new``.

    A startup taint on a proven node stays: it requests a new proof.

    Raises `OperationError` for a taint that the node has with another value and that was not ours.
    """
    old_values = {key_of(taint): value_of(taint) for taint in [*(old.get("taints") or []), *startup_of(old)]}
    missing = {key_of(taint): taint for taint in required(node, new)}
    startup_keys = {key_of(taint) for taint in startup_of(new)}
    result = []
    for taint in current(node):
        key = key_of(taint)
        if key in missing:
            wanted = missing.pop(key)
            if is_met(wanted, value_of(taint)):
                result.append(taint)
                continue
            if value_of(taint) != old_values.get(key):
                raise OperationError(
                    f"node {node['metadata']['name']}: the taint {key[0]}={value_of(taint)}:{key[1]} was "
                    f"not set by this pool, which needs the value {value_of(wanted)!r}; "
                    "declare the node's value in the pool's taints, or remove the taint"
                )
            changed = {**taint, "value": value_of(wanted)}
            result.append({name: value for name, value in changed.items() if name != "value" or value})
        elif old_values.get(key) != value_of(taint) or key in startup_keys:
            result.append(taint)
    added = ({"key": key[0], "effect": key[1], "value": value_of(taint)} for key, taint in missing.items())
    result += [{name: value for name, value in taint.items() if value} for taint in added]
    return result

"""What differs between two manifests, as the property paths that the engine shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from gpuform.plugins.handler import Change
from gpuform.plugins.properties import UNKNOWN, Secret

# What the server keeps in every object on its own account.
SERVER_METADATA = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_QUOTED = re.compile(r'[.\[\]"]')
# Suffixes of apimachinery's resource.Quantity.
_SUFFIXES = {
    **dict(zip(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"], (Decimal(1024) ** n for n in range(1, 7)), strict=True)),
    **dict(zip(["n", "u", "m"], (Decimal(1000) ** -n for n in (3, 2, 1)), strict=True)),
    **dict(zip(["k", "M", "G", "T", "P", "E"], (Decimal(1000) ** n for n in range(1, 7)), strict=True)),
}
_MERGE_KEYS = (
    "name",
    "key",
    "containerPort",
    "port",
    "mountPath",
    "devicePath",
    "topologyKey",
    "ip",
    "uid",
    "type",
)


def joined(path: str, key: str) -> str:
    """``path`` and one more key; a key with dots or brackets is quoted."""
    if _QUOTED.search(key):
        escaped = key.replace('"', '\\"')
        return f'{path}["{escaped}"]'
    return f"{path}.{key}" if path else key


def changes(old: Any, new: Any, path: str = "") -> dict[str, Change]:
    """Every path that differs, down to the deepest one; an unknown value differs from everything.

    A `Secret` is compared by what it holds. ``None`` and a missing key are the same.
    """
    old = old.value if isinstance(old, Secret) else old
    new = new.value if isinstance(new, Secret) else new
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found: dict[str, Change] = {}
        for key in [*new, *(key for key in old if key not in new)]:
            found |= changes(old.get(key), new.get(key), joined(path, key))
        return found
    if isinstance(old, list) and isinstance(new, list):
        found = {}
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else None
            after = new[index] if index < len(new) else None
            found |= changes(before, after, f"{path}[{index}]")
        return found
    if new is not UNKNOWN and old == new and isinstance(old, bool) == isinstance(new, bool):
        return {}
    if old is None:
        return {path: Change.ADD}
    return {path: Change.DELETE if new is None else Change.UPDATE}


def declared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A live object without its status and the metadata that the server keeps on its own account."""
    result = {key: value for key, value in manifest.items() if key != "status"}
    metadata = {k: v for k, v in (manifest.get("metadata") or {}).items() if k not in SERVER_METADATA}
    result["metadata"] = metadata
    return result


def like(live: Any, wanted: Any) -> Any:
    """The part of ``live`` that ``wanted`` speaks of: what a refresh writes down as the inputs.

    Values that mean the same (``1000m`` and ``1``) keep the form of ``wanted``. Items that others added to
    a list are left out as long as every wanted item is still there.
    """
    if isinstance(wanted, Secret):
        return Secret(like(live, wanted.value))
    if isinstance(live, Mapping) and isinstance(wanted, Mapping):
        return {key: like(live[key], value) for key, value in wanted.items() if live.get(key) is not None}
    if isinstance(live, list) and isinstance(wanted, list):
        return _like_list(live, wanted)
    return wanted if same_value(live, wanted) else live


def _like_list(live: list[Any], wanted: list[Any]) -> list[Any]:
    left = list(live)
    result = []
    for item in wanted:
        match = next((other for other in left if _matches(other, item)), None)
        if match is None:
            return [like(live[i], wanted[i]) if i < len(wanted) else live[i] for i in range(len(live))]
        left.remove(match)
        result.append(like(match, item))
    return result


def _matches(live: Any, wanted: Any) -> bool:
    if isinstance(live, Mapping) and isinstance(wanted, Mapping):
        keys = [key for key in _MERGE_KEYS if key in wanted]
        if keys:
            return bool(live.get(keys[0]) == wanted[keys[0]])
        return all(_matches(live.get(key), value) for key, value in wanted.items())
    return same_value(live, wanted)


def same_value(left: Any, right: Any) -> bool:
    """Whether two scalars mean the same to the server: equal, or two spellings of one quantity."""
    if left == right:
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    first, second = _quantity(left), _quantity(right)
    return first is not None and first == second


def _quantity(value: Any) -> Decimal | None:
    if not isinstance(value, str | int | float):
        return None
    text = str(value)
    for size in (2, 1):
        factor = _SUFFIXES.get(text[-size:])
        if factor is not None and len(text) > size:
            text, scale = text[:-size], factor
            break
    else:
        scale = Decimal(1)
    try:
        return Decimal(text) * scale
    except InvalidOperation:
        return None

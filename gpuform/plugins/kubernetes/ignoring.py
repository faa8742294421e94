"""ignoreChanges under server-side apply: an ignored field is neither taken over nor given up."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.plugins.kubernetes.replacement import steps


def without_ignored(
    body: Mapping[str, Any], live: Mapping[str, Any], manager: str, paths: Iterable[str]
) -> dict[str, Any]:
    """``body`` as it is to be applied when ``paths`` are ignored.

    A field that only others manage is left out, so that there is no conflict. One that ``manager`` has itself
    is sent as it is in the cluster: left out, the server would remove it. Paths with ``*`` are not looked
    into.
    """
    result = copy.deepcopy(dict(body))
    for path in paths:
        keys = steps(path)
        holder, found = _reach(live, keys)
        if not found:
            continue
        if _managed(live, manager, keys):
            _set(result, keys, holder)
        else:
            _remove(result, keys)
    return result


def _reach(value: Any, keys: list[str]) -> tuple[Any, bool]:
    for key in keys:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None, False
    return value, True


def _managed(live: Mapping[str, Any], manager: str, keys: list[str]) -> bool:
    """Whether ``manager`` has the field; within a list, whether it has anything of the list."""
    for entry in (live.get("metadata") or {}).get("managedFields") or ():
        if entry.get("manager") != manager or entry.get("operation") != "Apply":
            continue
        fields = entry.get("fieldsV1") or {}
        for key in keys:
            if key.isdigit():
                return True
            fields = fields.get(f"f:{key}")
            if fields is None:
                return False
            if not fields:
                return True
        return True
    return False


def _set(target: Any, keys: list[str], value: Any) -> None:
    parent, found = _reach(target, keys[:-1])
    if found and isinstance(parent, dict):
        parent[keys[-1]] = copy.deepcopy(value)
    elif found and isinstance(parent, list) and keys[-1].isdigit() and int(keys[-1]) < len(parent):
        parent[int(keys[-1])] = copy.deepcopy(value)


def _remove(target: Any, keys: list[str]) -> None:
    parent, found = _reach(target, keys[:-1])
    if found and isinstance(parent, dict):
        parent.pop(keys[-1], None)

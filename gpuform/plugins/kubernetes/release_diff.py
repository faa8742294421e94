"""What changes between two sets of a release's inputs, path by path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.plugins.handler import Change, Diffed
from gpuform.plugins.kubernetes.release_values import is_asset
from gpuform.plugins.properties import UNKNOWN, Secret, reveal

REPLACING = ("name", "namespace")
COMPUTED = ("resourceNames",)  # follows from the chart and the values, whose own change is shown
_MISSING = object()


def diff(old: Mapping[str, Any], new: Mapping[str, Any], status: str, ignored: Sequence[str] = ()) -> Diffed:
    """Compare inputs; a release that is not ``deployed`` in state is a change of ``status`` as well.

    A chart that is local in both (both carry a checksum) is compared by contents: where it lies does not
    matter, so that a state made in one checkout shows nothing in another. Another name or namespace replaces.
    """
    skip = {*COMPUTED, *ignored}
    if "checksum" in old and "checksum" in new:
        skip.add("chart")
    changes: dict[str, Change] = {}
    for key in sorted({*old, *new} - skip):
        changes.update(_changes(key, old.get(key, _MISSING), new.get(key, _MISSING)))
    if status and status != "deployed" and not any(key in changes for key in REPLACING):
        changes["status"] = Change.UPDATE
    return Diffed(changes=changes, replaces=[key for key in REPLACING if key in changes])


def _changes(path: str, old: Any, new: Any) -> Iterator[tuple[str, Change]]:
    old, new = _bare(old), _bare(new)
    if is_asset(old) and is_asset(new) and old.get("hash") and new.get("hash"):
        old, new = old["hash"], new["hash"]  # by contents: its path is the checkout's
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _changes(_step(path, key), old.get(key, _MISSING), new.get(key, _MISSING))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from _changes(f"{path}[{index}]", _at(old, index), _at(new, index))
    elif _empty(old) and _empty(new):
        return
    elif _empty(old):
        yield path, Change.ADD
    elif _empty(new):
        yield path, Change.DELETE
    elif new is UNKNOWN or old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, Change.UPDATE


def _bare(value: Any) -> Any:
    return reveal(value) if isinstance(value, Secret) else value


def _empty(value: Any) -> bool:
    return value is _MISSING


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _MISSING


def _step(path: str, key: str) -> str:
    """A key with a dot, a slash or a quote is quoted, as the engine's property paths want it."""
    return f"{path}.{key}" if key.replace("_", "a").isalnum() else f"{path}[{json.dumps(key)}]"

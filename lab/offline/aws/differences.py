"""Which inputs changed, path by path, and whether the cloud can change them in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from gpuform.provider.handler import Change
from gpuform.provider.properties import UNKNOWN


class Row(Protocol):
    """The part of a table row that is used here."""

    def forces(self, path: str, removed: bool) -> bool:
        """Whether a change at ``path`` (names and dots, no indices) forces a replacement."""


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Change]:
    """Each path that differs, in plain values; an unknown value counts as different."""
    return dict(_walk(old, new, ""))


def replacing(row: Row, changed: Mapping[str, Change]) -> list[str]:
    return [
        path
        for path, change in changed.items()
        if row.forces(re.sub(r"\[\d+\]", "", path), removed=change is Change.DELETE)
    ]


def _walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, Change]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            name = key if re.fullmatch(r"\w+", key) else f'["{key}"]'
            joined = name if not path else f"{path}{name}" if name.startswith("[") else f"{path}.{name}"
            yield from _walk(old.get(key), new.get(key), joined)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _walk(*pair, f"{path}[{index}]")
    elif new is UNKNOWN or old != new:
        yield path, _kind(old, new)


def _kind(old: Any, new: Any) -> Change:
    if old is None:
        return Change.ADD
    return Change.DELETE if new is None else Change.UPDATE

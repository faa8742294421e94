"""One field of a good environment, made bad: of another type, out of range, or unknown."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]

_NONSENSE = "no such thing!"
_OTHER_TYPES: dict[type, tuple[Any, ...]] = {
    str: (7, True, {"a": 1}, ["a"], "", _NONSENSE),
    int: ("x", True, {"a": 1}, ["a"], -1, 0, 1.5),
    bool: ("x", 7, {"a": 1}, ["a"]),
    dict: ("x", 7, True, ["a"]),
    list: ("x", 7, True, {"a": 1}, [{"a": [1]}], [None]),
}
_FREE = ("layout", "max", "images", "labels")
"""Mappings with user-defined keys: other tests check unknown ones."""


@dataclass(frozen=True)
class Corruption:
    mapping: dict[str, Any]
    path: Path
    what: str

    @property
    def at(self) -> str:
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return text.removeprefix(".")

    @property
    def pool(self) -> str | None:
        return f"pools[{self.path[1]}]" if self.path[0] == "pools" and len(self.path) > 1 else None


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field with its value, blocks before their fields."""
    if path:
        yield path, value
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


@st.composite
def corruptions(draw: st.DrawFn, mapping: dict[str, Any]) -> Corruption:
    where = list(places(mapping))
    path, value = draw(
        st.sampled_from([one for one in where if one[0][-1] != "value"])
    )  # a taint's value may be ""
    what = draw(st.sampled_from(["another value", "an unknown key"]))
    if what == "an unknown key":
        blocks = [one for one, inner in where if isinstance(inner, dict) and one[-1] not in _FREE]
        path = (*draw(st.sampled_from([(), *blocks])), "nonsense")
        return Corruption(changed(mapping, path, 1), path, what)
    other = draw(st.sampled_from(_OTHER_TYPES[type(value)]))
    return Corruption(changed(mapping, path, other), path, f"{value!r} became {other!r}")


def changed(mapping: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    found = copy.deepcopy(mapping)
    here: Any = found
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    return found

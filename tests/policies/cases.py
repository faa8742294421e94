from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from policies.rule import Resource

FOLDER = Path(__file__).parent / "cases"
UNKNOWN = "???"
Kind = Literal["bad", "good", "unknown"]


@dataclass(frozen=True)
class Case:
    """Resources of one stack, and the rule's result: the fact ``finds``, none, or that it is unknown."""

    rule: str
    kind: Kind
    number: int
    resources: tuple[Resource, ...]
    finds: str = ""

    @property
    def id(self) -> str:
        return f"{self.rule}-{self.kind}-{self.number}"


def cases(module: str = "*") -> list[Case]:
    return [case for path in sorted(FOLDER.glob(f"{module}.yaml")) for case in _read(path)]


@cache
def _read(path: Path) -> tuple[Case, ...]:
    return tuple(_cases(path.read_text()))


def _cases(text: str) -> Iterator[Case]:
    for rule, kinds in yaml.safe_load(text).items():
        for kind, entries in kinds.items():
            for number, entry in enumerate(entries):
                yield Case(rule, kind, number, tuple(_resources(entry)), entry.get("finds", ""))


def _resources(entry: Mapping[str, Any]) -> Iterator[Resource]:
    for number, one in enumerate(entry["resources"]):
        # Without aliases: two resources never share an object.
        props, ignores = copy.deepcopy(one["props"]), tuple(one.get("ignores", ()))
        yield Resource(one["type"], one.get("name", f"r{number}"), props, ignores)

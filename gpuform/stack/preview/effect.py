"""One effect of a change, and helpers to read the engine's step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gpuform.engine import Step
from gpuform.stack.preview.world import PodRef


class Weight(IntEnum):
    """Severity; a summary lists lower values first."""

    LOSS = 0  # a cluster, or a resource that holds data, is lost
    EVICTION = 1
    RESTART = 2  # the change itself: workloads of the environment
    NOTICE = 3


@dataclass(frozen=True)
class Effect:
    """One effect: its subject, what happens in which order, and the pods that it ends."""

    weight: Weight
    what: str
    how: str
    nodes: tuple[str, ...] = ()
    evicts: tuple[PodRef, ...] = ()


DRAINED = "each drained within the pods' disruption budgets"
ONE_BY_ONE = f"one node after another, {DRAINED}"

Found = Iterator[Effect]


def paths_of(step: Step) -> str:
    """The paths that require a replacement, else those that differ."""
    change = step.change
    return ", ".join((change.replaces or change.paths) if change else ()) or "no reason given"


def changed(step: Step, *prefixes: str) -> bool:
    return step.change is not None and any(path.startswith(prefixes) for path in step.change.paths)


def before(step: Step, *path: str) -> Any:
    """The value at a path of the old inputs; None if missing."""
    found: Any = step.change.before if step.change else {}
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def after(step: Step, *path: str) -> Any:
    """The value at a path of the new inputs; None if missing."""
    found: Any = step.change.after if step.change else {}
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found

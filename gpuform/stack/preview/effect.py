"""One effect of a change, helpers to read the engine's step, and what a kind of cluster tells a preview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from gpuform.engine import Step
from gpuform.stack.preview.world import PodRef, World


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
Rule = Callable[[Step, World], Found]
"""The effects of an updated, replaced or deleted resource."""


class PreviewRules(Protocol):
    """What a preview asks of a kind of cluster; a kind that creates no resources has these defaults."""

    cluster: ClassVar[str] = ""
    """Type of the resource that is the cluster; objects in it that go with it are not reported."""
    effects: ClassVar[Mapping[str, Rule]] = MappingProxyType({})
    """By type of resource."""

    def combined(self, steps: Sequence[Step]) -> Found:
        """Effects that follow only from several steps together."""
        return iter(())


class NoResources(PreviewRules):
    """Of a kind of cluster that creates no resources of its own."""


def losing(kind: str, *name: str, holds_all: bool = False) -> Rule:
    """Rule of a resource that is lost when it is deleted or replaced; ``name`` is the path of its name."""
    return lambda step, world: lost(
        step, kind, before(step, *name) or step.name, world if holds_all else None
    )


def lost(step: Step, kind: str, name: str, world: World | None = None, why: str = "") -> Found:
    """The loss of a resource; with ``world`` of every node, and every pod on them."""
    if step.op in ("replace", "delete"):
        nodes, pods = (world.every, world.pods) if world else ((), ())
        how = f"{ended(step, why)}, with everything in it"
        yield Effect(Weight.LOSS, f"{kind} {name}", how, nodes, pods)


def ended(step: Step, why: str = "") -> str:
    """How a deleted or replaced resource ends."""
    return "is deleted" if step.op == "delete" else f"is replaced ({why or paths_of(step)})"


def fewer(step: Step, who: str, *path: str) -> str:
    """How many nodes are removed, if the number at the path falls; else empty. ``who`` chooses them."""
    had, has = (side(step, *path) for side in (before, after))
    if not isinstance(had, int | float) or not isinstance(has, int | float) or has >= had:
        return ""
    is_ = "is" if had - has == 1 else "are"
    return f"{int(had - has)} of {int(had)} nodes {is_} removed; {who} chooses which"


def paths_of(step: Step) -> str:
    """The paths that require a replacement, else those that differ."""
    change = step.change
    return ", ".join((change.replaces or change.paths) if change else ()) or "no reason given"


def changed(step: Step, *prefixes: str) -> bool:
    return step.change is not None and any(path.startswith(prefixes) for path in step.change.paths)


def before(step: Step, *path: str) -> Any:
    """The value at a path of the old inputs; None if missing."""
    return _at(step.change.before if step.change else {}, path)


def after(step: Step, *path: str) -> Any:
    """The value at a path of the new inputs; None if missing."""
    return _at(step.change.after if step.change else {}, path)


def _at(found: Any, path: Sequence[str]) -> Any:
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found

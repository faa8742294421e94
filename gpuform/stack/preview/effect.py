"""One effect of a change, helpers to read the engine's step, and what a kind of cluster tells a preview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from gpuform.engine import Step
from gpuform.engine.events import value_at
from gpuform.stack.preview.snapshot import PodRef, Snapshot


class Weight(IntEnum):
    """Severity; a summary lists lower values first."""

    LOSS = 0  # a cluster, or a resource that holds data, is lost
    FAILURE = 1  # what the change starts fails as long as a pod is in the way
    EVICTION = 2
    RESTART = 3  # the change itself: workloads of the environment
    NOTICE = 4


@dataclass(frozen=True)
class Effect:
    """One effect: its subject, what happens in which order, and the pods that it ends."""

    weight: Weight
    what: str
    how: str
    nodes: tuple[str, ...] = ()
    evicts: tuple[PodRef, ...] = ()

    @property
    def name(self) -> str:
        """By which its loss is acknowledged."""
        return self.what.rsplit(" ", 1)[-1]


DRAINED = "each drained within the pods' disruption budgets"
ONE_BY_ONE = f"one node after another, {DRAINED}"

Effects = Iterator[Effect]
Rule = Callable[[Step, Snapshot], Effects]
"""The effects of an updated, replaced or deleted resource."""


class PreviewRules(Protocol):
    """What a preview asks of a kind of cluster; a kind that creates no resources has these defaults."""

    cluster: ClassVar[str] = ""
    """Type of the resource that is the cluster; objects in it that go with it are not reported."""
    effects: ClassVar[Mapping[str, Rule]] = MappingProxyType({})
    """By type of resource."""

    def combined(self, steps: Sequence[Step]) -> Effects:
        """Effects that follow only from several steps together."""
        return iter(())


class NoResources(PreviewRules):
    """Of a kind of cluster that creates no resources of its own."""


def loss_rule(kind: str, *name: str, holds_all: bool = False) -> Rule:
    """Rule of a resource that is lost when it is deleted or replaced; ``name`` is the path of its name."""
    return lambda step, snapshot: loss_effects(
        step, kind, before(step, *name) or step.name, snapshot if holds_all else None
    )


def loss_effects(
    step: Step, kind: str, name: str, snapshot: Snapshot | None = None, reason: str = ""
) -> Effects:
    """The loss of a resource; with ``snapshot`` of every node, and every pod on them."""
    if step.op in ("replace", "delete"):
        nodes, pods = (snapshot.all_nodes, snapshot.pods) if snapshot else ((), ())
        how = f"{describe_end(step, reason)}, with everything in it"
        yield Effect(Weight.LOSS, f"{kind} {name}", how, nodes, pods)


def describe_end(step: Step, reason: str = "") -> str:
    """How a deleted or replaced resource ends."""
    return "is deleted" if step.op == "delete" else f"is replaced ({reason or paths_of(step)})"


def describe_shrink(step: Step, remover: str, *path: str) -> str:
    """How many nodes are removed, if the number at the path falls; else empty. ``who`` chooses them."""
    old, new = (value_of(step, *path) for value_of in (before, after))
    if not isinstance(old, int | float) or not isinstance(new, int | float) or new >= old:
        return ""
    verb = "is" if old - new == 1 else "are"
    return f"{int(old - new)} of {int(old)} nodes {verb} removed; {remover} chooses which"


def paths_of(step: Step) -> str:
    """The paths that require a replacement, else those that differ."""
    change = step.change
    return ", ".join((change.replaces or change.paths) if change else ()) or "no reason given"


def differs(step: Step, *prefixes: str) -> bool:
    return step.change is not None and any(path.startswith(prefixes) for path in step.change.paths)


def before(step: Step, *path: str) -> Any:
    """The value at a path of the old inputs; None if missing."""
    return value_at(step.change.before if step.change else {}, path)


def after(step: Step, *path: str) -> Any:
    """The value at a path of the new inputs; None if missing."""
    return value_at(step.change.after if step.change else {}, path)

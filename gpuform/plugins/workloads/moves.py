"""The next move from one colour to the other, from what is there alone: no step is remembered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Side:
    """One colour: the replicas it is told to have, its pods, and how many of them are ready or about to end.

    ``template`` says of what its pods are made and ``full`` how many replicas it has when it is live; both
    are empty where there is no such Deployment.
    """

    replicas: int = 0
    pods: int = 0
    ready: int = 0
    ending: int = 0
    template: str = ""
    full: int = 0

    @property
    def held(self) -> int:
        """Pods' worth of GPUs that it has or may take: a pod that ends has a successor at once."""
        return max(self.replicas, self.pods - self.ending) + self.ending


@dataclass(frozen=True)
class Rule:
    """``replicas`` in the end and both colours together at most; ``step`` of them are replaced at a time;
    the Service switches at ``switch_at`` ready new ones, less than ``replicas``.
    """

    replicas: int
    step: int
    switch_at: int


class Do(Enum):
    """What a move is."""

    GROW = "grow"  # the new colour is told to have so many replicas
    SHRINK = "shrink"  # the old one is
    SWITCH = "switch"  # the Service points to the new one
    WAIT = "wait"
    DONE = "done"


@dataclass(frozen=True)
class Move:
    """One move; ``replicas`` where it changes their number."""

    do: Do
    replicas: int = 0


def next_move(old: Side, new: Side, switched: bool, rule: Rule) -> Move:
    """What to do now to get from ``old`` to ``new``; ``switched`` is whether the Service points to ``new``.

    The new colour takes only what the old one has given up for sure: a pod that ends still has its GPU. Until
    the switch the old one keeps what the new one does not need for it; after it, nobody asks it any more.
    """
    if not switched and min(new.ready, new.replicas) >= rule.switch_at:
        return Move(Do.SWITCH)
    room = rule.replicas - old.held - new.held
    if new.replicas > rule.replicas:
        return Move(Do.GROW, rule.replicas)
    if new.replicas < rule.replicas and room > 0:
        return Move(Do.GROW, min(rule.replicas, new.replicas + room))
    if switched and old.replicas:
        return Move(Do.SHRINK, 0)
    floor = rule.replicas - rule.switch_at
    settled = old.pods <= old.replicas and new.ready >= new.replicas
    if not switched and old.replicas > floor and settled:
        return Move(Do.SHRINK, max(floor, old.replicas - rule.step))
    arrived = new.replicas == rule.replicas == new.pods and new.ready >= rule.replicas
    return Move(Do.DONE if switched and arrived and not old.held else Do.WAIT)

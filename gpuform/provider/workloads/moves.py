"""The next move from one colour to the other, from the live state alone: no step is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Side:
    """One colour: its requested replicas, its pods, and how many of these are ready or terminating.

    ``template`` is the digest of the pod template, ``full`` the replicas of the colour when it is live; both
    are empty without a Deployment.
    """

    replicas: int = 0
    pods: int = 0
    ready: int = 0
    ending: int = 0
    template: str = ""
    full: int = 0

    @property
    def held(self) -> int:
        """Number of pods that have GPUs or may take them: a terminating pod gets a successor at once."""
        return max(self.replicas, self.pods - self.ending) + self.ending


@dataclass(frozen=True)
class Rule:
    """``replicas`` is the final number, and the maximum of both colours together.

    ``step`` of them are replaced at a time; the Service switches at ``switch_at`` ready new ones, less than
    ``replicas``.
    """

    replicas: int
    step: int
    switch_at: int


class Do(Enum):
    """The kinds of move."""

    GROW = "grow"  # set the replicas of the new colour
    SHRINK = "shrink"  # set the replicas of the old colour
    SWITCH = "switch"  # point the Service to the new colour
    WAIT = "wait"
    DONE = "done"


@dataclass(frozen=True)
class Move:
    """One move; ``replicas`` is set if it changes their number."""

    do: Do
    replicas: int = 0


def next_move(old: Side, new: Side, switched: bool, rule: Rule) -> Move:
    """The next move from ``old`` to ``new``; ``switched`` is whether the Service points to ``new``.

    The new colour takes only what the old one has certainly released: a terminating pod still has its GPU.
    Until the switch the old colour keeps what the new one does not need for it; after it, the old one gets no
    requests.
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

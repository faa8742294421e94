"""Changes a workload from one colour to the other, and back if the new pods do not get ready.

The progress is read from the cluster before every move, so that a later run resumes a killed one: the Service
says which colour is live, each Deployment has its template, and an annotation of the Service names the colour
from which a turn began.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

from gpuform.checkout.errors import OperationError
from gpuform.checkout.listing import some
from gpuform.provider.handler import Call
from gpuform.provider.workloads.pair import Pair, Seen, Side, other
from infra.model.serving import COLOURS

_REASONS = 3  # pods of one template mostly wait for the same


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


class _Late(Exception):
    """No progress within the deadline; ``str()`` says what is waited for."""


@dataclass(frozen=True)
class Turn:
    """One change of a pair to its wanted template and replicas."""

    call: Call
    pair: Pair
    step: int
    switch_at: int
    deadline_s: float

    async def run(self) -> str:
        """Change the pair and return the live colour.

        Raises `OperationError` with the pods' reasons; a change of the template is reverted before that.
        """
        seen = await self.pair.see()
        if not seen.live:
            await self.pair.serve(max(COLOURS, key=lambda colour: seen.sides[colour].ready))
            seen = await self.pair.see()
        target = _target(seen, self.pair.template)
        # A killed turn to the same target began at the noted colour; any other turn begins at the live one.
        source = seen.live if target != seen.live else seen.source
        if source and source != target:
            await self.pair.note(source)
        try:
            await self._prepare(target, seen)
            rule = Rule(self.pair.replicas, self.step, self.switch_at)
            await self._go(target, rule)
        except _Late as late:
            raise OperationError(await self._failed(target, source, late)) from None
        await self.pair.serve(target)
        return target

    async def _prepare(self, target: str, seen: Seen) -> None:
        """Set the wanted template on the target, which changes only while it has no pods."""
        if seen.sides[target].template not in ("", self.pair.template):
            await self.pair.scale(target, 0)
            clock = _Clock(self.deadline_s)
            while (seen := await self.pair.see()).sides[target].pods:
                await self._wait(clock, seen, target, "waiting for its pods of another template to end")
        await self.pair.make(target, seen.sides[target].replicas)

    async def _go(self, target: str, rule: Rule) -> None:
        """Move until ``target`` has everything. Raises `_Late`."""
        source, clock = other(target), _Clock(self.deadline_s)
        while True:
            seen = await self.pair.see()
            old, new = seen.sides[source], seen.sides[target]
            move = next_move(old, new, seen.live == target, rule)
            if move.do is Do.DONE:
                return
            if move.do is Do.GROW:
                await self.pair.scale(target, move.replicas)
            elif move.do is Do.SHRINK:
                await self.pair.scale(source, move.replicas)
            elif move.do is Do.SWITCH:
                await self.pair.point(target)
                await self.call.info(f"{self.pair.title}: the Service points to {target} now")
            else:
                what = f"{new.ready} of {rule.replicas} are ready, {source} has {old.held}"
                await self._wait(clock, seen, target, what)

    async def _wait(self, clock: _Clock, seen: Seen, target: str, what: str) -> None:
        if clock.late(seen.sides[target], seen.sides[other(target)], seen.live == target):
            raise _Late(f"{target}: {what}, no progress for {self.deadline_s:.0f} s")
        await self.call.status(f"{self.pair.title}: {target}: {what}")
        await self.call.sleep(clock.pause)

    async def _failed(self, target: str, source: str, late: _Late) -> str:
        """Go back to ``source``, if it has replicas to restore, and return the message."""
        reasons = await self.pair.waiting(target)
        text = f"{self.pair.title}: {late}"
        if reasons:
            text += f" ({some(reasons, _REASONS, '; ')})"
        full = (await self.pair.see()).sides[source].full if source and source != target else 0
        if not full:
            return f"{text}; nothing was reverted, and the next update continues from there"
        await self.call.warn(f"{text}; reverting to {source}")
        try:
            await self._go(source, Rule(full, self.step, max(1, min(self.switch_at, full - 1))))
        except _Late as again:
            held = "; ".join((await self.pair.waiting(source))[:_REASONS])
            return f"{text}; reverting to {source} failed, too: {again}{f' ({held})' if held else ''}"
        await self.pair.note(None)
        return f"{text}; {source} has its {full} replicas again, and the Service points to it"


def _target(seen: Seen, template: str) -> str:
    """The colour that has the template already, the live one first; if neither has, the one that is not live.

    A live colour without a Deployment (yet) stays the target.
    """
    ordered = (seen.live, other(seen.live))
    found = next((colour for colour in ordered if seen.sides[colour].template == template), None)
    return found or ordered[1 if seen.sides[seen.live].template else 0]


class _Clock:
    """Counts from the last progress; changes back and forth, as of a pod that crashes, do not count."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._best: tuple[int, ...] = ()
        self._since = time.monotonic()
        self.pause = 0.2

    def late(self, new: Side, old: Side, switched: bool) -> bool:
        """Record the present state; True if the last progress is too long ago."""
        now = (new.ready, new.replicas, -old.held, -max(0, new.pods - new.replicas), int(switched))
        best = tuple(map(max, now, self._best)) if self._best else now
        if best != self._best:
            self._best, self._since, self.pause = best, time.monotonic(), 0.2
            return False
        self.pause = min(self.pause * 1.5, 2.0)
        return time.monotonic() - self._since > self._seconds

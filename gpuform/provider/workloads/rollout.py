"""Changes a workload from one colour to the other, and back if the new pods do not get ready.

The progress is read from the cluster before every move, so that a later run resumes a killed one: the Service
says which colour is live, each Deployment has its template, and an annotation of the Service names the colour
from which a rollout began.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

from gpuform.checkout.errors import OperationError
from gpuform.checkout.listing import abbreviate
from gpuform.provider.handler import Call
from gpuform.provider.workloads.pair import ColourState, Pair, PairState, opposite
from infra.model.base.labels import COLOURS

_MAX_REASONS = 3  # pods of one template mostly wait for the same


@dataclass(frozen=True)
class Limits:
    """``replicas`` is the final number, and the maximum of both colours together.

    ``step`` of them are replaced at a time; the Service switches at ``switch_at`` ready new ones, less than
    ``replicas``.
    """

    replicas: int
    step: int
    switch_at: int


class MoveKind(Enum):
    """The kinds of move."""

    GROW = "grow"  # set the replicas of the new colour
    SHRINK = "shrink"  # set the replicas of the old colour
    SWITCH = "switch"  # point the Service to the new colour
    WAIT = "wait"
    DONE = "done"


@dataclass(frozen=True)
class Move:
    """One move; ``replicas`` is set if it changes their number."""

    kind: MoveKind
    replicas: int = 0


def next_move(old: ColourState, new: ColourState, switched: bool, limits: Limits) -> Move:
    """The next move from ``old`` to ``new``; ``switched`` is whether the Service points to ``new``.

    The new colour takes only what the old one has certainly released: a terminating pod still has its GPU.
    Until the switch the old colour keeps what the new one does not need for it; after it, the old one gets no
    requests.
    """
    if not switched and min(new.ready, new.replicas) >= limits.switch_at:
        return Move(MoveKind.SWITCH)
    free = limits.replicas - old.gpu_pods - new.gpu_pods
    if new.replicas > limits.replicas:
        return Move(MoveKind.GROW, limits.replicas)
    if new.replicas < limits.replicas and free > 0:
        return Move(MoveKind.GROW, min(limits.replicas, new.replicas + free))
    if switched and old.replicas:
        return Move(MoveKind.SHRINK, 0)
    minimum = limits.replicas - limits.switch_at
    settled = old.pods <= old.replicas and new.ready >= new.replicas
    if not switched and old.replicas > minimum and settled:
        return Move(MoveKind.SHRINK, max(minimum, old.replicas - limits.step))
    complete = new.replicas == limits.replicas == new.pods and new.ready >= limits.replicas
    return Move(MoveKind.DONE if switched and complete and not old.gpu_pods else MoveKind.WAIT)


class _NoProgress(Exception):
    """No progress within the deadline; ``str()`` says what is waited for."""


@dataclass(frozen=True)
class Rollout:
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
        state = await self.pair.read_state()
        if not state.live:
            await self.pair.apply_service(max(COLOURS, key=lambda colour: state.colours[colour].ready))
            state = await self.pair.read_state()
        target = _choose_target(state, self.pair.template)
        # A killed rollout to the same target began at the noted colour, any other begins at the live one.
        source = state.live if target != state.live else state.source
        if source and source != target:
            await self.pair.set_source(source)
        try:
            await self._prepare(target, state)
            limits = Limits(self.pair.replicas, self.step, self.switch_at)
            await self._move_to(target, limits)
        except _NoProgress as error:
            raise OperationError(await self._revert(target, source, error)) from None
        await self.pair.apply_service(target)
        return target

    async def _prepare(self, target: str, state: PairState) -> None:
        """Set the wanted template on the target, which changes only while it has no pods."""
        if state.colours[target].template not in ("", self.pair.template):
            await self.pair.scale(target, 0)
            timer = _ProgressTimer(self.deadline_s)
            while (state := await self.pair.read_state()).colours[target].pods:
                await self._wait(timer, state, target, "waiting for its pods of another template to end")
        await self.pair.apply_deployment(target, state.colours[target].replicas)

    async def _move_to(self, target: str, limits: Limits) -> None:
        """Move until ``target`` has everything. Raises `_NoProgress`."""
        source, timer = opposite(target), _ProgressTimer(self.deadline_s)
        while True:
            state = await self.pair.read_state()
            old, new = state.colours[source], state.colours[target]
            move = next_move(old, new, state.live == target, limits)
            if move.kind is MoveKind.DONE:
                return
            if move.kind is MoveKind.GROW:
                await self.pair.scale(target, move.replicas)
            elif move.kind is MoveKind.SHRINK:
                await self.pair.scale(source, move.replicas)
            elif move.kind is MoveKind.SWITCH:
                await self.pair.switch_service(target)
                await self.call.info(f"{self.pair.title}: the Service points to {target} now")
            else:
                message = f"{new.ready} of {limits.replicas} are ready, {source} has {old.gpu_pods}"
                await self._wait(timer, state, target, message)

    async def _wait(self, timer: _ProgressTimer, state: PairState, target: str, message: str) -> None:
        if timer.is_overdue(state.colours[target], state.colours[opposite(target)], state.live == target):
            raise _NoProgress(f"{target}: {message}, no progress for {self.deadline_s:.0f} s")
        await self.call.status(f"{self.pair.title}: {target}: {message}")
        await self.call.sleep(timer.pause)

    async def _revert(self, target: str, source: str, error: _NoProgress) -> str:
        """Go back to ``source``, if it has replicas to restore, and return the message."""
        reasons = await self.pair.unready_reasons(target)
        text = f"{self.pair.title}: {error}"
        if reasons:
            text += f" ({abbreviate(reasons, _MAX_REASONS, '; ')})"
        replicas = (
            (await self.pair.read_state()).colours[source].live_replicas if source and source != target else 0
        )
        if not replicas:
            return f"{text}; nothing was reverted, and the next update continues from there"
        await self.call.warn(f"{text}; reverting to {source}")
        try:
            await self._move_to(
                source, Limits(replicas, self.step, max(1, min(self.switch_at, replicas - 1)))
            )
        except _NoProgress as second:
            more = "; ".join((await self.pair.unready_reasons(source))[:_MAX_REASONS])
            return f"{text}; reverting to {source} failed, too: {second}{f' ({more})' if more else ''}"
        await self.pair.set_source(None)
        return f"{text}; {source} has its {replicas} replicas again, and the Service points to it"


def _choose_target(state: PairState, template: str) -> str:
    """The colour that has the template already, the live one first; if neither has, the one that is not live.

    A live colour without a Deployment (yet) stays the target.
    """
    colours = (state.live, opposite(state.live))
    matching = next((colour for colour in colours if state.colours[colour].template == template), None)
    return matching or colours[1 if state.colours[state.live].template else 0]


class _ProgressTimer:
    """Counts from the last progress; changes back and forth, as of a pod that crashes, do not count."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._best: tuple[int, ...] = ()
        self._since = time.monotonic()
        self.pause = 0.2

    def is_overdue(self, new: ColourState, old: ColourState, switched: bool) -> bool:
        """Record the present state; True if the last progress is too long ago."""
        now = (new.ready, new.replicas, -old.gpu_pods, -max(0, new.pods - new.replicas), int(switched))
        best = tuple(map(max, now, self._best)) if self._best else now
        if best != self._best:
            self._best, self._since, self.pause = best, time.monotonic(), 0.2
            return False
        self.pause = min(self.pause * 1.5, 2.0)
        return time.monotonic() - self._since > self._seconds

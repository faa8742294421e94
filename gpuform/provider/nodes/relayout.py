"""Changes the MIG layout of nodes, a few at a time, in steps that a later run can resume.

Cordon the node and write a note; evict the pods that use the GPUs, or refuse; set the label; wait for the MIG
manager, which may reboot the node, and for the device plugin; uncordon and remove the note. The note is an
annotation of the node (`Note`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.kubernetes.pods import condition
from gpuform.provider.handler import Call, Cancelled
from gpuform.provider.nodes.cluster import Cluster, Manifest
from gpuform.provider.nodes.drain import drain, in_use, users
from gpuform.provider.nodes.layout import (
    CONFIG,
    LAYOUT,
    NOTE,
    STATE,
    Note,
    Wanted,
    differences,
    done,
    label,
    state,
    told,
    under_way,
)

_REVERT_S = 60.0
"""How long the MIG manager may take to begin with the old layout before the node is uncordoned."""
_EVENTS = 3  # the newest events of a node are about what has just failed


@dataclass(frozen=True)
class Relayout:
    """The change of one node to one layout; ``timeout_s`` bounds the eviction and the change, each.

    Without ``evicts``, a pod that uses a GPU of the node is an error.
    """

    call: Call
    cluster: Cluster
    name: str
    wanted: Wanted
    timeout_s: float
    evicts: bool = True

    async def run(self) -> bool:
        """Change the layout; False if the node had it already.

        Raises `OperationError` with the node's reason: then the node has its old label and is uncordoned;
        `Cancelled` before the label is set leaves the node unchanged, later it leaves the note.
        """
        node = await self._node()
        if done(node, self.wanted):
            return False
        if under_way(node, self.wanted):
            await self._settled(None)
            return True
        found = Note.on(node)
        note = await self._begin(node, found)
        try:
            if not told(node, self.wanted) or (state(node) == "failed" and not _same_way(found, note)):
                await self._free()
                await self._tell(node)
        except (OperationError, Cancelled):
            with contextlib.suppress(OperationError):  # the error that led here is the one to show
                await self._end(note)
            raise
        await self._settled(note)
        await self._end(note)
        return True

    async def _begin(self, node: Manifest, found: Note | None) -> Note:
        """Cordon the node and write the note, in one patch; an existing note is resumed."""
        closed = bool((node.get("spec") or {}).get("unschedulable"))
        note = Note(
            source=found.source if found else label(node),
            target=self.wanted.config,
            cordoned=found.cordoned if found else not closed,
        )
        way = f"{note.source or 'no layout'} -> {note.target}"
        await self.call.status(f"node {self.name}: {'resuming' if found else 'starting'} {way}")
        body: dict[str, Any] = {
            "metadata": {"annotations": {NOTE: note.text()}},
            "spec": {"unschedulable": True},
        }
        await self.cluster.patch(self.name, body)
        return note

    async def _free(self) -> None:
        """Free the GPUs of pods; new ones cannot come, because the node is cordoned."""
        if self.evicts:
            await drain(self.call, self.cluster, self.name, self.timeout_s)
        elif why := in_use(self.name, await users(self.cluster, self.name)):
            raise OperationError(why)

    async def _tell(self, node: Manifest) -> None:
        """Set the label and remove the state, which is that of the previous layout."""
        if label(node) == self.wanted.config:  # the MIG manager acts on a change of the label only
            await self.cluster.patch(self.name, {"metadata": {"labels": {CONFIG: None, STATE: None}}})
            await asyncio.sleep(1)  # not cancellable, because the label is gone
        labels = {CONFIG: self.wanted.config, STATE: None}
        content = {LAYOUT: self.wanted.content or None}
        await self.cluster.patch(self.name, {"metadata": {"labels": labels, "annotations": content}})

    async def _settled(self, note: Note | None) -> None:
        """Wait until the node offers the wanted resources; a failure reverts the change.

        A rebooting node is not Ready for a while, nor does an API server on it answer.
        """
        deadline, pause = time.monotonic() + self.timeout_s, 0.25
        while True:
            try:
                node = await self._node()
            except (Unreachable, ApiError) as error:
                if time.monotonic() > deadline or not _passing(error):
                    raise
                await self.call.status(f"node {self.name}: waiting for the cluster to answer: {error}")
                await self.call.sleep(2.0)
                continue
            if state(node) == "failed":
                await self._fail(node, note, f"layout {self.wanted.config} failed")
            rest = differences(node, self.wanted)
            if state(node) == "success" and label(node) == self.wanted.config and not rest:
                return
            where = f"{CONFIG} is {label(node) or 'unset'}, its state {state(node) or 'unset'}"
            where += f", it offers {', '.join(rest)}" if rest else ""
            if time.monotonic() > deadline:
                await self._fail(
                    node,
                    note,
                    f"layout {self.wanted.config} not applied after {self.timeout_s:.0f} s: {where}",
                )
            await self.call.status(f"node {self.name}: waiting for layout {self.wanted.config}: {where}")
            await self.call.sleep(pause)
            pause = min(pause * 1.5, 2.0)

    async def _fail(self, node: Manifest, note: Note | None, what: str) -> None:
        reasons = (await self.cluster.warnings(self.name))[:_EVENTS]
        if condition(node, "Ready").get("status") != "True":
            reasons.insert(0, "the node is not Ready")
        text = f"node {self.name}: {what}" + (
            f" (its latest warnings: {'; '.join(reasons)})" if reasons else ""
        )
        if note is None:
            raise OperationError(f"{text}; the label was set before this run and stays as it is")
        labels = {CONFIG: note.source or None, STATE: None}
        # If both layouts have the same name, the old one is lost: the next run must set the label again.
        content = {LAYOUT: "failed" if self.wanted.content and note.source == self.wanted.config else None}
        await self.cluster.patch(self.name, {"metadata": {"labels": labels, "annotations": content}})
        await self._reverted(note)
        await self._end(note)
        raise OperationError(f"{text}; its label is {note.source or 'unset'} again, and it accepts pods")

    async def _reverted(self, note: Note) -> None:
        """Keep the node cordoned until the MIG manager has restored the old layout; no wait without one."""
        begun = time.monotonic()
        while note.source and (waited := time.monotonic() - begun) < self.timeout_s:
            current = state(await self._node())
            if current in ("success", "failed") or (not current and waited > _REVERT_S):
                return
            await self.call.sleep(0.5)

    async def _end(self, note: Note) -> None:
        body: dict[str, Any] = {"metadata": {"annotations": {NOTE: None}}}
        if note.cordoned:
            body["spec"] = {"unschedulable": None}
        await self.cluster.patch(self.name, body)

    async def _node(self) -> Manifest:
        node = await self.cluster.node(self.name)
        if node is None:
            raise OperationError(f"node {self.name}: it is gone; run again for the remaining nodes")
        return node


def _same_way(found: Note | None, note: Note) -> bool:
    """Whether the killed run that left ``found`` had this target, so that its failure counts for this run."""
    return found is not None and found.target == note.target


def _passing(error: OperationError) -> bool:
    """Whether the error can come from an API server that is starting."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code >= 500)


@dataclass
class Rolled:
    """Progress: the nodes that are as wanted, whether any had to be changed, and the failures."""

    ready: list[str] = field(default_factory=list)
    changed: bool = False
    failures: list[str] = field(default_factory=list)


def at_once(budget: int | str, nodes: int) -> int:
    """Nodes that may be unavailable together: a number, or a share of all (``25%``), rounded down.

    At least one, or nothing would ever change.
    """
    if isinstance(budget, str):
        return max(1, math.floor(nodes * int(budget.removesuffix("%")) / 100))
    return max(1, int(budget))


async def roll(names: Sequence[str], width: int, one: Callable[[str], Awaitable[bool]]) -> Rolled:
    """Call ``one`` for each node in order, ``width`` at a time; it returns whether it changed anything.

    After the first `OperationError`, nodes in progress are finished and the rest is left as it is, which the
    last failure says. `Cancelled` is raised once all of them have stopped.
    """
    rolled, left, cancelled = Rolled(), list(names), list[Cancelled]()

    async def lane() -> None:
        while left and not rolled.failures and not cancelled:
            name = left.pop(0)
            try:
                changed = await one(name)
            except OperationError as error:
                rolled.failures.append(str(error))
            except Cancelled as stop:  # raised later: the TaskGroup would cancel the other lanes
                cancelled.append(stop)
            else:
                rolled.changed |= changed
                rolled.ready.append(name)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(width, len(left))):
                group.create_task(lane())
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    if cancelled:
        raise cancelled[0]
    if rolled.failures and left:
        rolled.failures.append(f"not started after that: {', '.join(left)}")
    return rolled

"""Changes nodes in order, a few at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled


@dataclass
class Progress:
    """Progress: the nodes that are as wanted, whether any had to be changed, and the failures."""

    ready: list[str] = field(default_factory=list)
    changed: bool = False
    failures: list[str] = field(default_factory=list)


def max_unavailable(budget: int | str, nodes: int) -> int:
    """Nodes that may be unavailable together: a number, or a share of all (``25%``), rounded down.

    At least one, or nothing would ever change.
    """
    if isinstance(budget, str):
        return max(1, math.floor(nodes * int(budget.removesuffix("%")) / 100))
    return max(1, int(budget))


async def roll(names: Sequence[str], width: int, change: Callable[[str], Awaitable[bool]]) -> Progress:
    """Call ``change`` for each node in order, ``width`` at a time; it returns whether it changed anything.

    After the first `OperationError`, nodes in progress are finished and the rest is left as it is, which the
    last failure says. `Cancelled` is raised once all of them have stopped.
    """
    progress, waiting, cancelled = Progress(), list(names), list[Cancelled]()

    async def work() -> None:
        while waiting and not progress.failures and not cancelled:
            name = waiting.pop(0)
            try:
                changed = await change(name)
            except OperationError as error:
                progress.failures.append(str(error))
            except Cancelled as error:  # raised later: the TaskGroup would cancel the other workers
                cancelled.append(error)
            else:
                progress.changed |= changed
                progress.ready.append(name)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(width, len(waiting))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    if cancelled:
        raise cancelled[0]
    if progress.failures and waiting:
        progress.failures.append(f"not started after that: {', '.join(waiting)}")
    return progress

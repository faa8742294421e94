"""Changes nodes a few at a time; after a failure no further node is begun."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled


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

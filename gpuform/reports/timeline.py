"""Nodes or workloads over time: a bar each, and above those of nodes the hourly cost of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuform.usage.rehearsal import NodeTimeline, Outcome

WIDTH, LEFT, RIGHT = 1100, 230, 16
PRICE_TOP, PRICE_HEIGHT = 22, 70
ROW = 18
MOST_ROWS = 60
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)


@dataclass(frozen=True)
class Row:
    """One bar, in seconds: from ``begin`` to ``ready`` it is lighter, then solid until ``end``.

    A node starts until it is ready, a workload in a queue waits until it is admitted (``came``).
    """

    text: str
    begin: float
    ready: float
    end: float
    fixed: bool
    came: str = "ready"

    @property
    def when(self) -> str:
        never = "never all ready" if self.fixed else f"never {self.came}"
        came = f"{self.came} at {self.ready:.0f} s" if self.ready < self.end else never
        return f"{self.begin:.0f} s to {self.end:.0f} s, {came}"

    def pixels(self, last: float) -> list[float]:
        return [x_position(at, last) for at in (self.begin, self.ready, self.end)]


def x_position(at: float, last: float) -> float:
    """X position of a second, in pixels."""
    return LEFT + (WIDTH - LEFT - RIGHT) * at / last


def ticks(last: float) -> Iterator[tuple[float, float]]:
    """About ten round seconds and their X, without late ones that would put text outside the picture."""
    step = next((step for step in _STEPS if last / step <= 10), 7200)
    for second in range(0, int(last) + 1, step):
        if (x := x_position(second, last)) < WIDTH - 24:
            yield float(second), x


def last_second(lines: Sequence[NodeTimeline], seconds: float) -> float:
    return max(seconds, *(max(line.begin, line.ready or 0.0, line.end or 0.0) for line in lines), 1.0)


def timeline_rows(lines: Iterable[NodeTimeline], last: float) -> Iterator[Row]:
    """One row per fixed pool, and one per node of the other pools."""
    fixed: dict[str, list[NodeTimeline]] = {}
    for line in lines:
        if line.fixed:
            fixed.setdefault(line.pool, []).append(line)
    for pool, nodes in fixed.items():
        begin = min(line.begin for line in nodes)
        ready = max((line.ready or last) for line in nodes)
        yield Row(f"{pool}: {len(nodes)} fixed", begin, max(begin, ready), last, True)
    for line in lines:
        if not line.fixed:
            end = last if line.end is None else line.end
            ready = end if line.ready is None else min(line.ready, end)
            yield Row(f"{line.pool}: {line.machine}", line.begin, ready, end, False)


def cost_steps(lines: Iterable[NodeTimeline]) -> list[tuple[float, float]]:
    """(second, USD per hour from then on) at each change; nodes without a price are left out."""
    changes: dict[float, float] = {0.0: 0.0}
    for line in lines:
        if line.usd_per_hour is not None:
            changes[line.begin] = changes.get(line.begin, 0.0) + line.usd_per_hour
            if line.end is not None:
                changes[line.end] = changes.get(line.end, 0.0) - line.usd_per_hour
    steps, total = [], 0.0
    for at in sorted(changes):
        total += changes[at]
        steps.append((at, max(0.0, round(total, 6))))
    return steps


def price_path(steps: Sequence[tuple[float, float]], highest: float, last: float) -> str:
    """The steps of the cost, from 0 to ``highest``."""
    points, before = [], 0.0
    for at, usd in [*steps, (last, steps[-1][1])]:
        x, base = x_position(at, last), PRICE_TOP + PRICE_HEIGHT
        points += [(x, base - PRICE_HEIGHT * before / highest), (x, base - PRICE_HEIGHT * usd / highest)]
        before = usd
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points[1:])


def queue_timeline(outcome: Outcome) -> Iterator[Row]:
    """One row for each time that a workload waits in a queue and then, perhaps, is admitted."""
    for queue in outcome.queues:
        for work in queue.workloads:
            begin = admitted = None
            turns = [(turn.what, turn.at) for turn in work.turns]
            lasts = bool(work.waits) or turns[-1][0] == "admitted"
            for change, at in [*turns, *([("until", queue.until)] if lasts else [])]:
                if change == "admitted":
                    admitted = at
                    continue
                if begin is not None:
                    ready = at if admitted is None else admitted
                    yield Row(f"{work.queue}: {work.name}", begin, ready, at, False, "admitted")
                begin, admitted = at, None

"""A rehearsal's queues: quota, use and cost, and what was admitted when."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from gpuform.reports import html, tables
from gpuform.reports.rehearsal_timeline import Row, bars
from gpuform.usage.rehearsal import Outcome, Queued

COLUMNS = (*tables.QUEUES, "USD an hour")
TIMES = ("queue", "workload", "what happened, in seconds after the start")
COST = (
    "once pods were placed; USD an hour: the nodes' price, by the part of their GPUs that a queue's pods hold"
)
SHADE = "The shade differs while a workload waits. The last step, with half of the pods, is left out."
MOST, MOST_ON_PAGE = 10, 50
"""Workloads per queue; ``--json`` has all."""


def terminal(outcome: Outcome) -> Iterator[Table | Text | str]:
    if outcome.queues:
        yield tables.filled("Queues", COLUMNS, _rows(outcome))
        yield Text(COST)
        yield ""
        yield tables.filled("In queues", TIMES, _histories(outcome, MOST))
        yield ""


def page(outcome: Outcome) -> Iterator[str]:
    if outcome.queues:
        yield "<h2>Queues</h2>"
        yield html.table(COLUMNS, _rows(outcome))
        yield html.paragraphs([COST], "dim")
        found = [
            bar for queue in outcome.queues for one in queue.workloads for bar in _bars(one, queue.until)
        ]
        yield bars("workloads in queues over time", found, outcome.seconds)
        yield html.paragraphs([SHADE], "dim")
        yield html.table(TIMES, _histories(outcome, MOST_ON_PAGE))


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for one in outcome.queues:
        usd = "unknown" if one.usd_per_hour is None else f"{one.usd_per_hour:,.2f}"
        for index, row in enumerate(tables.queues([one.status])):
            yield *row, "" if index else usd


def _histories(outcome: Outcome, most: int) -> Iterator[tuple[str, str, str]]:
    for queue in outcome.queues:
        for one in queue.workloads[:most]:
            told = [f"{turn.what} {turn.at:.1f}{turn.why and f' ({turn.why})'}" for turn in one.turns]
            yield one.queue, str(one), ", ".join([*told, *(["waits"] if one.waits else [])])
        if (more := len(queue.workloads) - most) > 0:
            yield queue.status.name, f"and {more} more", "`--json` has all"


def _bars(work: Queued, last: float) -> Iterator[Row]:
    """One for each time that it waits and then, perhaps, is admitted."""
    begin = admitted = None
    ends = [(one.what, one.at) for one in work.turns]
    for what, at in [*ends, *([("until", last)] if work.waits or ends[-1][0] == "admitted" else [])]:
        if what == "admitted":
            admitted = at
            continue
        if begin is not None:
            ready = at if admitted is None else admitted
            yield Row(f"{work.queue}: {work.name}", begin, ready, at, False, "admitted")
        begin, admitted = at, None

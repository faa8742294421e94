"""What an interrupted run has left, as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from gpuform.reports.tables import empty
from gpuform.stack.recover.plan import MANUAL, Plan


def tables(plan: Plan) -> Iterator[Table | Text | str]:
    """Locks, operations and releases, each with its planned action; a single line if nothing is left."""
    if not plan.to_do:
        yield Text(f"{plan.stack}: nothing is left of an interrupted run", style="bold")
        return
    if plan.locks:
        shown = empty("Locks", "held by", "state", "action")
        for lock in plan.locks:
            said = "confirmed gone" if lock.confirmed else lock.state
            shown.add_row(Text(lock.named), Text(said), Text("remove"))
        yield from (shown, "")
    if plan.steps:
        columns = ("resource", "type", "interrupted while", "action", "id", "why")
        shown = empty("Interrupted operations", *columns)
        for step in plan.steps:
            words = (step.name, step.type, step.was, step.does, step.id or "-", step.why)
            shown.add_row(*_row(words, step.does))
        yield from (shown, "")
    if plan.releases:
        shown = empty("Helm releases", "release", "status", "action", "why")
        for one in plan.releases:
            does = f"{one.does} to {one.revision}" if one.revision else one.does
            shown.add_row(*_row((one.id, one.status, does, one.why), one.does))
        yield from (shown, "")


def _row(words: tuple[str, ...], does: str) -> tuple[Text, ...]:
    style = "yellow" if does == MANUAL else ""
    return tuple(Text(word, style=style) for word in words)

"""Drift as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from gpuform.reports.tables import empty
from gpuform.stack.drift.finding import Drift


def tables(drift: Drift) -> Iterator[Table | Text | str]:
    """One row per finding, then their number; a single line without drift."""
    if not drift.findings:
        yield Text(f"{drift.stack}: no drift", style="bold")
        return
    shown = empty("Drift", "resource", "field", "drift", "declared", "actual")
    for one in drift.findings:
        style = "red" if one.how == "missing" else "yellow"
        words = [Text(word) for word in (one.resource, one.path or "-", one.expected, one.found)]
        shown.add_row(*words[:2], Text(one.how, style=style), *words[2:])
    yield from (shown, "")
    things = len({one.resource for one in drift.findings})
    count = f"{len(drift.findings)} in {things} {'resource' if things == 1 else 'resources'}"
    restores = "`pulumi up --refresh` restores the declared state of everything that it created"
    yield Text(
        f"{drift.stack}: drift, {count}; {restores}",
        style="bold red",
    )

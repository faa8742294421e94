"""Drift as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from gpuform.drift.finding import Drift
from gpuform.reports.tables import empty


def tables(drift: Drift) -> Iterator[Table | Text | str]:
    """One row per finding, then their number; a single line without drift."""
    if not drift.findings:
        yield Text(f"{drift.stack}: no drift", style="bold")
        return
    shown = empty("Drift", "what", "where", "", "declared", "found")
    for one in drift.findings:
        style = "red" if one.how == "missing" else "yellow"
        words = [Text(word) for word in (one.resource, one.path or "-", one.expected, one.found)]
        shown.add_row(*words[:2], Text(one.how, style=style), *words[2:])
    yield from (shown, "")
    things = len({one.resource for one in drift.findings})
    count = f"{len(drift.findings)} in {things} {'resource' if things == 1 else 'resources'}"
    yield Text(
        f"{drift.stack}: drift, {count}; `pulumi up --refresh` makes all as declared that it made",
        style="bold red",
    )

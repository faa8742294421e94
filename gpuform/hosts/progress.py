"""Progress of a playbook run: a table that is updated in place on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuform.hosts.events import Event

OnEvent = Callable[[Event], None]
_STYLES = {"changed": "yellow", "failed": "red", "unreachable": "red", "running": "cyan"}


@contextmanager
def report_progress(
    console: Console, hosts: Sequence[str], write: Callable[[str], None] | None
) -> Iterator[OnEvent]:
    """The handler of a run's events: ``console``'s table on a terminal, else lines for ``write``.

    Without ``write`` nothing is shown.
    """
    if write is None:
        yield lambda event: None
        return
    if not console.is_terminal:
        yield print_lines(write)
        return
    board = ProgressTable(hosts)
    with Live(console=console, get_renderable=board.table, transient=True, refresh_per_second=8):
        yield board.add


def print_lines(write: Callable[[str], None]) -> OnEvent:
    """One line for each task that changed something or failed; others print nothing."""

    def add(event: Event) -> None:
        if event.kind == "play":
            write(event.message)
        elif event.kind == "changed":
            write(f"  {event.host}: changed: {event.task}")
        elif event.kind in ("failed", "unreachable"):
            ignored = " (ignored)" if event.ignored else ""
            write(f"  {event.host}: {event.kind}{ignored}: {event.task}: {event.message}")

    return add


class ProgressTable:
    """Table with the current state of each host."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._play = ""
        self._rows = {name: ["waiting", ""] for name in hosts}
        self._changed = dict.fromkeys(hosts, 0)

    def add(self, event: Event) -> None:
        if event.kind == "play":
            self._play = event.message
        row = self._rows.get(event.host)
        if row is None or row[0] in ("failed", "unreachable"):
            return
        if event.kind == "started":
            row[:] = ["running", event.task]
        elif event.kind in ("failed", "unreachable") and not event.ignored:
            row[:] = [event.kind, f"{event.task}: {event.message}"]
        elif event.kind in ("ok", "changed", "skipped"):
            row[:] = ["waiting", event.task]
            self._changed[event.host] += event.kind == "changed"

    def table(self) -> Table:
        table = Table(title=self._play or "Connecting", title_justify="left", box=None, pad_edge=False)
        for name in ("host", "state", "changed"):
            table.add_column(name, no_wrap=True)
        table.add_column("task")
        for host, (state, task) in self._rows.items():
            # A column without wraps would take the room of the others on a narrow terminal.
            shortened = Text(task, no_wrap=True, overflow="ellipsis")
            table.add_row(
                host, Text(state, style=_STYLES.get(state, "")), str(self._changed[host]), shortened
            )
        return table

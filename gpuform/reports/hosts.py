"""The tables about own hosts; each shows only what ``--json`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from gpuform.hosts import HostResult


def results(hosts: Mapping[str, HostResult], *, check: bool) -> Table:
    """One row per host: the result of a run, or what a check would change."""
    table = _table("Hosts", "host", "result", "would change" if check else "changed")
    for name, result in hosts.items():
        table.add_row(name, _verdict(result, check), str(result.changed))
    return table


def details(hosts: Mapping[str, HostResult], *, check: bool, diffs: bool = False) -> Iterable[str]:
    """Lines for what does not fit into a table: why a host failed, and what a check found."""
    for name, result in hosts.items():
        if not result.ok:
            yield f"{name}: {result.message}"
        if check:
            yield from (f"{name}: would change: {task}" for task in result.changes)
            if diffs:
                yield from (f"    {line}" for text in result.diffs for line in text.splitlines())


def states(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row per host: what it has, and what is declared if that differs."""
    table = _table("Hosts", "host", "pool", "reached", "system", "driver", "GPUs", "toolkit", "node")
    for row in rows:
        table.add_row(
            row["host"],
            row["pool"] or "-",
            Text("yes") if row["reached"] else Text("no", style="red"),
            row["system"] or "-",
            _against(row["driver"], row["declared"]["driver"]),
            _gpus(row["gpus"]),
            _against(row["toolkit"], row["declared"]["toolkit"]),
            row["node"],
        )
    return table


def _verdict(result: HostResult, check: bool) -> Text:
    if result.unreachable:
        return Text("unreachable", style="red")
    if not result.ok:
        return Text("failed", style="red")
    if check and result.changed:
        return Text("differs", style="yellow")
    return Text("ok", style="green")


def _against(found: str, wanted: str) -> Text:
    if not wanted:
        return Text(found or "-")
    if found == wanted:
        return Text(found)
    return Text(f"{found or 'none'}, declared {wanted}", style="yellow")


def _gpus(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(f"{found.count(name)}x {name}" for name in dict.fromkeys(found)) or "-"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table

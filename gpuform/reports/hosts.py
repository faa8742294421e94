"""The tables about own hosts; each shows only what ``--json`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gpuform.checkout.listing import count_of
from gpuform.hosts.listing import hosts_of
from gpuform.reports.tables import Cell, build_table

if TYPE_CHECKING:
    from gpuform.hosts import HostResult
    from gpuform.hosts.verify import Report

COLUMNS = 6  # hosts side by side that a terminal of 80 columns holds
_VERDICTS = {"PASS": ("ok", "green"), "SKIP": ("-", "dim"), "FAIL": ("FAIL", "bold red")}


def targets_table(inventory: Mapping[str, Any], hosts: Iterable[str]) -> Table:
    """One row per host that a run would change: its address and its groups."""
    groups = {group: hosts_of(inventory, group) for group in inventory if group not in ("_meta", "all")}
    rows = (
        (
            host,
            str(inventory["_meta"]["hostvars"][host].get("ansible_host", host)),
            ", ".join(group for group, members in groups.items() if host in members),
        )
        for host in hosts
    )
    return build_table("Hosts to change", ("host", "address", "groups"), rows)


def effects_line(stack: str, playbook: str) -> str:
    effects = " (drivers, runtimes, firewall rules; may restart hosts)" if playbook == "site.yml" else ""
    return f"runs {playbook}{effects}; `gpuform hosts check {stack}` shows each change"


def results_table(hosts: Mapping[str, HostResult], *, check: bool) -> Table:
    """One row per host: the result of a run, or what a check would change."""
    rows = ((name, _result(result, check), str(result.changed)) for name, result in hosts.items())
    return build_table("Hosts", ("host", "result", "would change" if check else "changed"), rows)


def detail_lines(hosts: Mapping[str, HostResult], *, check: bool, diffs: bool = False) -> Iterable[str]:
    """Lines for what does not fit into a table: why a host failed, and what a check found."""
    for name, result in hosts.items():
        if not result.ok:
            yield f"{name}: {result.message}"
        if check:
            yield from (f"{name}: would change: {task}" for task in result.changes)
            if diffs:
                yield from (f"    {line}" for text in result.diffs for line in text.splitlines())


def states_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row per host: what it has, and what is declared if that differs."""
    cells = (
        (
            row["host"],
            row["pool"] or "-",
            "yes" if row["reached"] else ("no", "red"),
            row["system"] or "-",
            _compared(row["driver"], row["declared"]["driver"] if row["reached"] else ""),
            _gpus(row["gpus"]),
            _compared(row["toolkit"], row["declared"]["toolkit"] if row["reached"] else ""),
            row["node"],
        )
        for row in rows
    )
    return build_table(
        "Hosts", ("host", "pool", "reached", "system", "driver", "GPUs", "toolkit", "node"), cells
    )


def check_tables(report: Report) -> Iterator[Table]:
    """One table per ``COLUMNS`` hosts: a row per check, a column per host."""
    by_place = {(verdict.host, verdict.check): verdict.verdict for verdict in report.verdicts}
    for start in range(0, len(report.hosts), COLUMNS):
        hosts = report.hosts[start : start + COLUMNS]
        rows: list[list[Cell]] = [
            [check, *(_VERDICTS[by_place.get((host, check), "SKIP")] for host in hosts)]
            for check in report.checks
        ]
        yield build_table("", ("check", *hosts), rows)


def failure_lines(report: Report) -> Iterator[str]:
    """Each failed check with its remedy, then the number of checks per verdict."""
    for verdict in report.verdicts:
        if verdict.verdict == "FAIL":
            yield f"{verdict.host}: {verdict.check}: {verdict.fact}; {verdict.remedy}"
    passed, failed, skipped = (
        sum(verdict.verdict == word for verdict in report.verdicts) for word in ("PASS", "FAIL", "SKIP")
    )
    yield (
        f"{count_of(len(report.hosts), 'host')} over {report.backend}: {count_of(passed, 'check')} passed, "
        f"{failed} failed, {skipped} had nothing to check"
    )


def _result(result: HostResult, check: bool) -> Cell:
    if not result.ok:
        return "unreachable" if result.unreachable else "failed", "red"
    return ("differs", "yellow") if check and result.changed else ("ok", "green")


def _compared(actual: str, wanted: str) -> Cell:
    if wanted in ("", actual):
        return actual or "-"
    return f"{actual or 'none'}, declared {wanted}", "yellow"


def _gpus(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(f"{listed.count(name)}x {name}" for name in dict.fromkeys(listed)) or "-"

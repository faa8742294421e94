"""The checks of hosts: tables of checks by host, and a line per failed check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gpuform.hosts.verify import Report

COLUMNS = 6  # hosts side by side that a terminal of 80 columns holds
_STYLES = {"PASS": "green", "SKIP": "dim", "FAIL": "bold red"}
_WORDS = {"PASS": "ok", "SKIP": "-", "FAIL": "FAIL"}


def verdicts(report: Report) -> Iterator[Table]:
    """One table per ``COLUMNS`` hosts: a row per check, a column per host."""
    by_place = {(one.host, one.check): one.verdict for one in report.verdicts}
    for start in range(0, len(report.hosts), COLUMNS):
        hosts = report.hosts[start : start + COLUMNS]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("check", header_style="dim")
        for host in hosts:
            table.add_column(host, header_style="dim", overflow="fold")
        for check in report.checks:
            found = [by_place.get((host, check), "SKIP") for host in hosts]
            table.add_row(check, *(Text(_WORDS[word], style=_STYLES[word]) for word in found))
        yield table


def findings(report: Report) -> Iterator[str]:
    """Each failed check with its remedy, then the number of checks per verdict."""
    for one in report.verdicts:
        if one.verdict == "FAIL":
            yield f"{one.host}: {one.check}: {one.fact}; {one.remedy}"
    counts = {word: sum(one.verdict == word for one in report.verdicts) for word in _WORDS}
    yield (
        f"{_count(len(report.hosts), 'host')} over {report.backend}: "
        f"{_count(counts['PASS'], 'check')} passed, {counts['FAIL']} failed, "
        f"{counts['SKIP']} had nothing to check"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

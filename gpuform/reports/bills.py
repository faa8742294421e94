"""The cost of an environment as a table: USD a month, before and after a change."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from gpuform.reports.tables import filled
from infra.plan.bill import Bill, per_month


def table(before: Bill | None, after: Bill) -> Table:
    columns = ("item", *(["before"] if before else []), "now", "USD an hour per unit")
    lines = []
    for what, had, has in [*rows(before, after), ("all", all_of(before), all_of(after))]:
        units = next((line.units for line in after.lines if line.what == what), {})
        each = ", ".join(f"{name.removeprefix('nvidia.com/')} {usd:.3f}" for name, usd in units.items())
        lines.append((what, *([had] if before else []), has, each or ("" if what == "all" else "-")))
    return filled(f"Cost, USD a month; {after.price_source}", columns, lines)


def rows(before: Bill | None, after: Bill) -> Iterator[tuple[str, str, str]]:
    """``(what, before, after)`` for each item of either bill."""
    lines = {line.what: line for line in (*(before.lines if before else ()), *after.lines)}
    for what in lines:
        yield what, _line(before, what), _line(after, what)


def all_of(bill: Bill | None) -> str:
    """Sum of the known prices, with ``+`` if some are unknown; ``unknown`` if all are."""
    if bill and bill.lines and bill.nothing_known:
        return "unknown"
    return _between(bill.low, bill.high) + ("+" if bill.unknown else "") if bill else "-"


def _line(bill: Bill | None, what: str) -> str:
    found = next((line for line in bill.lines if line.what == what), None) if bill else None
    if found is None:
        return "-"
    return "unknown" if found.high is None else _between(found.low or 0.0, found.high)


def _between(low: float, high: float) -> str:
    least, most = (f"{per_month(usd):,.0f}" for usd in (low, high))
    return most if least == most else f"{least} to {most}"

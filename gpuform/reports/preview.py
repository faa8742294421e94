"""A preview as tables: the parts of the summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from gpuform.reports import bills
from gpuform.reports.tables import empty

if TYPE_CHECKING:
    from gpuform.stack.preview.effect import Effect
    from gpuform.stack.preview.outcome import Outcome


def tables(outcome: Outcome) -> Iterator[Table | Text | str]:
    from gpuform.reports.pull_request import pods
    from gpuform.stack.preview.outcome import fact

    if outcome.effects:
        shown = empty("Effects", "resource", "effect", "pods stopped")
        for one in outcome.effects:
            shown.add_row(Text(one.what, style=_style(one)), one.how, pods(one.evicts))
        yield from (shown, "")
    if outcome.after:
        yield from (bills.table(outcome.before, outcome.after), "")
    broken = empty("Policies", "", "policy", "resource", "violation")
    for violation in outcome.said:
        level = Text("broken", style="red") if violation.mandatory else Text("warning", style="yellow")
        broken.add_row(
            level, violation.policy.split("/")[-1], violation.urn.rsplit("::", 1)[-1], fact(violation.text)
        )
    if broken.rows:
        yield from (broken, "")
    yield Text(f"{outcome.stack}: {outcome.verdict}", style="bold red" if outcome.reasons else "bold")


def _style(effect: Effect) -> str:
    return {0: "bold red", 1: "yellow"}.get(effect.weight, "")

"""How a rehearsal's pods and nodes have followed requests (``--qps``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from gpuform.reports import html
from gpuform.reports.tables import empty
from gpuform.usage.rehearsal import Outcome

TITLE = "Requests per second of each scaled workload"
COLUMNS = ("requests", "workload", "pods", "nodes", "USD an hour", "seconds")


def terminal(outcome: Outcome) -> Iterator[Table | Text | str]:
    if outcome.loads:
        table = empty(TITLE, *COLUMNS)
        for row in rows(outcome):
            table.add_row(*row)
        yield table
        yield from map(Text, lines(outcome))
        yield ""


def page(outcome: Outcome) -> Iterator[str]:
    if outcome.loads:
        yield f"<h2>{TITLE}</h2>"
        yield html.table(COLUMNS, rows(outcome))
        yield html.paragraphs(lines(outcome))


def rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for load in outcome.loads:
        changes = [*_counted("bought", load.bought), *_counted("removed", load.removed)]
        nodes = "; ".join([str(load.nodes), *changes])
        usd = "unknown" if load.usd_per_hour is None else f"{load.usd_per_hour:,.2f}"
        for one in load.workloads:
            name = f"{one.namespace}/{one.name}"
            pods = f"{one.pods}, wanted {one.wanted}"
            yield f"{load.qps:g}", name, pods, nodes, usd, f"{load.seconds:.0f}"


def lines(outcome: Outcome) -> Iterator[str]:
    """The first additional pods, and what is not as declared."""
    for load in outcome.loads:
        for one in load.workloads:
            head = f"{load.qps:g} requests per second: {one.name}"
            if one.cold:
                steps = ", ".join(f"{step} {at:.0f}" for step, at in one.cold.items())
                new = " on a new node" if "node joined" in one.cold else ""
                yield f"{head}: first additional pod{new}, in seconds since the load changed: {steps}"
            if one.pods != one.wanted and one.within:
                yield f"{head} has {one.pods} pods: the autoscaler tolerates 10 %"
    yield f"shortened, so durations are not those of the cluster: {'; '.join(outcome.shortened)}"


def _counted(what: str, nodes: Mapping[str, int]) -> Iterator[str]:
    if nodes:
        yield f"{what} {', '.join(f'{count}x {machine}' for machine, count in sorted(nodes.items()))}"

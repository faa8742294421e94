"""The HTML page of a rehearsal: nodes, the pods on them, and cost over time."""

from __future__ import annotations

from itertools import groupby

from gpuform.reports import html, rehearsal, timeline
from gpuform.reports.tables import usd
from gpuform.usage.rehearsal import Outcome

MOST_NODES = 60
"""Boxes per pool; further nodes are only counted, and ``--json`` has all."""


def page(outcome: Outcome) -> str:
    last = timeline.end(outcome.timeline, outcome.seconds)
    pools = {pool.name: pool for pool in outcome.pools}
    groups = [(pools[name], list(nodes)) for name, nodes in groupby(outcome.nodes, lambda node: node.pool)]
    cells = (cell for node in outcome.nodes for row in node.gpus for cell in row if cell.pod)
    return html.page(
        "rehearsal.html",
        f"Rehearsal of {outcome.stack}",
        outcome=outcome,
        words=rehearsal,
        known=html.colours(cells),
        groups=groups,
        pools=_pools(outcome),
        last=last,
        most=MOST_NODES,
    )


def _pools(outcome: Outcome) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pool in outcome.pools:
        money = ["-" if not pool.nodes else usd(one) for one in (pool.usd_per_hour, pool.idle_usd_per_hour)]
        used = ", ".join(rehearsal.amount(key, one) for key, one in pool.resources.items())
        rows.append((pool.name, ", ".join(rehearsal.machines(pool.machines)) or "none", used or "-", *money))
        if pool.in_vain:
            rows.append((pool.name, f"launched, but never used: {', '.join(pool.in_vain)}", "", "", ""))
    return rows

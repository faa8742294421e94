"""What the health loop has done, as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from gpuform.reports.tables import empty
from gpuform.usage.health import Seen
from infra.model import labels
from infra.model.health import HEALTH


def table(seen: Seen) -> Table:
    shown = empty("", "node", "pool", "class", "since", "fault", "repaired")
    for node in seen.nodes:
        shown.add_row(node.name, node.pool, node.kind, node.since, node.why, node.repaired or "")
    return shown


def lines(seen: Seen, mode: str) -> Iterator[str]:
    """Mode, open tickets, the breaker and how to reset it, and how to mark a node as repaired."""
    opened = sum(one.open for one in seen.tickets)
    yield f"mode {mode}; {len(seen.nodes)} out of use, {opened} ticket{'' if opened == 1 else 's'} open"
    if seen.breaker is not None:
        yield f"breaker open: {seen.breaker}; withheld: {', '.join(seen.withheld)}"
        yield (
            f"look for a common cause, then: kubectl -n {HEALTH} annotate configmap "
            f"gpu-health-state {labels.RESET_BREAKER}='why'"
        )
    if seen.nodes:
        yield f"to mark a node as repaired: kubectl annotate node NODE {labels.GPU_REPAIRED}='what was done'"

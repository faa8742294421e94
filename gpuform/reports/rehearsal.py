"""A rehearsal's outcome as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from gpuform.checkout.listing import some
from gpuform.reports import rehearsal_loads, rehearsal_queues
from gpuform.reports.tables import empty
from gpuform.usage.nodes import CPU, MEMORY_GIB
from gpuform.usage.rehearsal import Amount, Machines, Outcome, PoolOutcome, Refusal, Shrink
from infra.model.labels import HUGE_PAGES

Part = Table | Text | str
"""Pod names per line; further ones are only counted."""


def tables(outcome: Outcome) -> Iterator[Part]:
    """Pools and cost, shrinking, durations, what is real; what stays pending comes last."""
    yield _pools(outcome)
    yield ""
    yield from _bought_in_vain(outcome)
    yield from rehearsal_queues.terminal(outcome)
    for one in outcome.jobs:
        yield f"job {one.namespace}/{one.name}: {one.succeeded} of {number(one.completions, 'pod')} succeeded"
    if outcome.played or outcome.refusals:
        yield from switched(outcome)
        yield ""
    yield from rehearsal_loads.terminal(outcome)
    if outcome.shrink:
        yield from _shrunk(outcome.shrink)
        yield ""
    steps = ", ".join(f"{one.name} {one.seconds:.1f} s" for one in outcome.steps)
    yield Text(f"steps: {steps}")
    yield Text(f"prices: {outcome.prices}")
    if outcome.measured:
        yield Text(f"monitoring: {outcome.measured}")
    yield Text(f"simulated: {'; '.join(outcome.simulated)}. Real: {'; '.join(outcome.real)}.")
    if outcome.blind:
        yield Text(f"not covered: {'; '.join(outcome.blind)}.")
    yield ""
    yield from pending(outcome)
    style = "bold red" if outcome.failed else "bold green"
    yield Text(verdict(outcome), style=style)


def verdict(outcome: Outcome) -> str:
    if outcome.pods:
        head = f"{outcome.placed} of {outcome.pods} pods placed"
    else:
        head = "no workloads: only the platform was simulated"
    nodes = sum(pool.nodes for pool in outcome.pools)
    return f"{outcome.stack}: {head}, {number(nodes, 'node')}, {cost(outcome)}"


def cost(outcome: Outcome) -> str:
    unknown = ", ".join(outcome.unpriced)
    if not unknown:
        return f"{usd(outcome.usd_per_hour)} an hour"
    if not outcome.known_usd_per_hour:
        return "price unknown"
    return f"{usd(outcome.known_usd_per_hour)} an hour, without {unknown} (price unknown)"


def usd(amount: float | None) -> str:
    return "unknown price" if amount is None else f"{amount:,.2f} USD"


def number(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def machines(found: tuple[Machines, ...]) -> Iterator[str]:
    """``2x p4d.24xlarge, on-demand, us-west-2a`` for each kind."""
    for one in found:
        where = ", ".join(filter(None, (one.machine or "own host", one.capacity, one.zone)))
        yield f"{one.count}x {where}"


def amount(name: str, found: Amount) -> str:
    """``gpu.shared 4 of 8``: in use, of what is offered."""
    units = {CPU: "cores", MEMORY_GIB: "GiB", HUGE_PAGES: "GiB in huge pages"}
    unit = units.get(name, name.removeprefix("nvidia.com/"))
    return f"{unit} {found.used:.4g} of {found.offers:.4g}"


def _gpus_first(resources: Mapping[str, Amount]) -> Iterator[str]:
    gpus = [key for key in resources if key not in (CPU, MEMORY_GIB)]
    for key in [*gpus, CPU, MEMORY_GIB]:
        if key in resources:
            yield amount(key, resources[key])


def _pools(outcome: Outcome) -> Table:
    table = empty("Pools", "pool", "nodes", "in use", "USD an hour", "of which idle")
    for pool in outcome.pools:
        table.add_row(
            pool.name,
            "\n".join(machines(pool.machines)) or "none",
            "\n".join(_gpus_first(pool.resources)) or "-",
            _money(pool, pool.usd_per_hour),
            _money(pool, pool.idle_usd_per_hour),
        )
    known = f"{outcome.known_usd_per_hour:,.2f}{'+' if outcome.unpriced else ''}"
    if outcome.unpriced and not outcome.known_usd_per_hour:
        known = "unknown"
    table.add_row("all", "", "", known, "", style="bold")
    return table


def _money(pool: PoolOutcome, amount: float | None) -> str:
    if not pool.nodes:
        return "-"
    return "unknown" if amount is None else f"{amount:,.2f}"


def _bought_in_vain(outcome: Outcome) -> Iterator[Text | str]:
    for pool in outcome.pools:
        if pool.in_vain:
            names = ", ".join(pool.in_vain)
            yield Text(f"{pool.name}: launched, but no pod of a workload ever ran there: {names}", "red")
            yield ""


def switched(outcome: Outcome) -> Iterator[Text]:
    """What was simulated beside the stack itself, and which capacity AWS did not have."""
    for one in outcome.played:
        yield Text(f"scenario: {one}")
    asked: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in outcome.refusals:
        asked.setdefault((refusal.machine, refusal.capacity), []).append(refusal)
    for (machine, capacity), found in asked.items():
        zones, times = ", ".join(one.zone for one in found), sum(one.times for one in found)
        yield Text(f"no capacity: {machine}, {capacity}, in {zones}; requested {number(times, 'time')}")


def _shrunk(shrink: Shrink) -> Iterator[Table | Text]:
    before, after = shrink.before, shrink.after
    table = empty("Half of each workload removed", "", "pods", "nodes", "USD an hour")
    for name, side in (("before", before), ("after", after)):
        table.add_row(name, str(side.pods), str(side.nodes), usd(side.usd_per_hour).removesuffix(" USD"))
    yield table
    for line in _followed(shrink):
        yield Text(line)


def shrunk(shrink: Shrink) -> Iterator[str]:
    for name, side in (("before", shrink.before), ("after", shrink.after)):
        cost = f"{usd(side.usd_per_hour)} an hour"
        yield f"{name}: {number(side.pods, 'pod')} on {number(side.nodes, 'node')}, {cost}"
    yield from _followed(shrink)


def _followed(shrink: Shrink) -> Iterator[str]:
    for one in shrink.gone:
        yield f"{one.node} ({one.machine}, {usd(one.usd_per_hour)} an hour) was removed: {one.why}"
    for said in shrink.stays:
        yield f"stays: {said}"
    yield f"note: {shrink.note}"


def pending(outcome: Outcome) -> Iterator[Text | str]:
    """Pending pods, grouped by reason, with the events' messages; then other troubles."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for pod in outcome.pending:
        key = (pod.pool, pod.why, *pod.said)
        groups.setdefault(key, []).append(f"{pod.namespace}/{pod.name}")
    for (pool, why, *said), names in groups.items():
        of = f" (pool {pool})" if pool else ""
        yield Text(f"pending: {some(names)}{of}: {why}", style="red")
        for text in said:
            yield Text(f"    {text}", style="dim")
    for trouble in outcome.troubles:
        yield Text(trouble, style="red")
    if groups or outcome.troubles:
        yield ""

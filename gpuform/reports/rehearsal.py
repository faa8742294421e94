"""A rehearsal's outcome as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.table import Table
from rich.text import Text

from gpuform.checkout.listing import some
from gpuform.reports.tables import QUEUES, bare_usd, filled, number, queues, usd
from gpuform.usage.node_prices import Amount, Machines
from gpuform.usage.nodes import CPU, MEMORY_GIB
from gpuform.usage.rehearsal import Load, Outcome, Refusal, Shrink
from infra.model.labels import HUGE_PAGES

Part = Table | Text | str
QUEUE_COLUMNS = (*QUEUES, "USD an hour")
TIMES = ("queue", "workload", "what happened, in seconds after the start")
QUEUE_COST = (
    "once pods were placed; USD an hour: the nodes' price, by the part of their GPUs that a queue's pods hold"
)
LOADS = "Requests per second of each scaled workload"
LOAD_COLUMNS = ("requests", "workload", "pods", "nodes", "USD an hour", "seconds")


def tables(outcome: Outcome) -> Iterator[Part]:
    """Pools and cost, shrinking, durations, what is real; what stays pending comes last."""
    yield _pools(outcome)
    yield ""
    yield from _bought_in_vain(outcome)
    if outcome.queues:
        yield filled("Queues", QUEUE_COLUMNS, queue_rows(outcome))
        yield Text(QUEUE_COST)
        yield ""
        yield from (filled("In queues", TIMES, queue_histories(outcome, 10)), "")
    for one in outcome.jobs:
        yield f"job {one.namespace}/{one.name}: {one.succeeded} of {number(one.completions, 'pod')} succeeded"
    if outcome.played or outcome.refusals:
        yield from switched(outcome)
        yield ""
    if outcome.loads:
        yield filled(LOADS, LOAD_COLUMNS, load_rows(outcome))
        yield from map(Text, load_lines(outcome))
        yield ""
    if outcome.shrink:
        sides = (("before", outcome.shrink.before), ("after", outcome.shrink.after))
        rows = (
            (name, str(side.pods), str(side.nodes), usd(side.usd_per_hour).removesuffix(" USD"))
            for name, side in sides
        )
        yield filled("Half of each workload removed", ("", "pods", "nodes", "USD an hour"), rows)
        yield from map(Text, _followed(outcome.shrink))
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
    rows = (
        (
            pool.name,
            "\n".join(machines(pool.machines)) or "none",
            "\n".join(_gpus_first(pool.resources)) or "-",
            *(bare_usd(one) if pool.nodes else "-" for one in (pool.usd_per_hour, pool.idle_usd_per_hour)),
        )
        for pool in outcome.pools
    )
    known = f"{outcome.known_usd_per_hour:,.2f}{'+' if outcome.unpriced else ''}"
    if outcome.unpriced and not outcome.known_usd_per_hour:
        known = "unknown"
    table = filled("Pools", ("pool", "nodes", "in use", "USD an hour", "of which idle"), rows)
    table.add_row("all", "", "", known, "", style="bold")
    return table


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


def queue_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for one in outcome.queues:
        for index, row in enumerate(queues([one.status])):
            yield *row, "" if index else bare_usd(one.usd_per_hour)


def queue_histories(outcome: Outcome, most: int) -> Iterator[tuple[str, str, str]]:
    """At most ``most`` workloads per queue; ``--json`` has all."""
    for queue in outcome.queues:
        for one in queue.workloads[:most]:
            told = [f"{turn.what} {turn.at:.1f}{turn.why and f' ({turn.why})'}" for turn in one.turns]
            yield one.queue, str(one), ", ".join([*told, *(["waits"] if one.waits else [])])
        if (more := len(queue.workloads) - most) > 0:
            yield queue.status.name, f"and {more} more", "`--json` has all"


def load_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for load in outcome.loads:
        for one in load.workloads:
            name, pods = f"{one.namespace}/{one.name}", f"{one.pods}, wanted {one.wanted}"
            yield (
                f"{load.qps:g}",
                name,
                pods,
                _load_nodes(load),
                bare_usd(load.usd_per_hour),
                f"{load.seconds:.0f}",
            )


def _load_nodes(load: Load) -> str:
    """``4; bought 3x g4dn.xlarge``."""
    changes = (("bought", load.bought), ("removed", load.removed))
    found = (
        f"{what} {', '.join(f'{count}x {machine}' for machine, count in sorted(nodes.items()))}"
        for what, nodes in changes
        if nodes
    )
    return "; ".join([str(load.nodes), *found])


def load_lines(outcome: Outcome) -> Iterator[str]:
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

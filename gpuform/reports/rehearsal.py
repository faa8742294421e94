"""A rehearsal's outcome as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from gpuform.checkout.listing import abbreviate, count_of
from gpuform.reports.tables import QUEUES, build_table, format_amount, format_usd, queue_rows
from gpuform.usage.node_prices import Amount, Machines
from gpuform.usage.nodes import CPU, MEMORY_GIB
from gpuform.usage.rehearsal import Load, NodeTimeline, Outcome, Refusal, Shrink
from infra.model.base.labels import HUGE_PAGES

Part = Table | Text | str
QUEUE_COLUMNS = (*QUEUES, "USD an hour")
TIMES = ("queue", "workload", "what happened, in seconds after the start")
QUEUE_COST = (
    "once pods were placed; USD an hour: the nodes' price, by the part of their GPUs that a queue's pods hold"
)
LOADS = "Requests per second of each scaled workload"
LOAD_COLUMNS = ("requests", "workload", "pods", "nodes", "USD an hour", "seconds")


def rehearsal_parts(outcome: Outcome) -> Iterator[Part]:
    """Pools and cost, shrinking, durations, what is real; what stays pending comes last."""
    yield _pools_table(outcome)
    yield ""
    yield from _bought_in_vain(outcome)
    if outcome.queues:
        yield build_table("Queues", QUEUE_COLUMNS, queue_cost_rows(outcome))
        yield Text(QUEUE_COST)
        yield ""
        yield from (build_table("In queues", TIMES, queue_histories(outcome, 10)), "")
    for job in outcome.jobs:
        name = f"{job.namespace}/{job.name}"
        yield f"job {name}: {job.succeeded} of {count_of(job.completions, 'pod')} succeeded"
    if outcome.played or outcome.refusals:
        yield from scenario_lines(outcome)
        yield ""
    if outcome.loads:
        yield build_table(LOADS, LOAD_COLUMNS, load_rows(outcome))
        yield from map(Text, load_lines(outcome))
        yield ""
    if outcome.shrink:
        sides = (("before", outcome.shrink.before), ("after", outcome.shrink.after))
        rows = (
            (name, str(side.pods), str(side.nodes), format_usd(side.usd_per_hour).removesuffix(" USD"))
            for name, side in sides
        )
        yield build_table("Half of each workload removed", ("", "pods", "nodes", "USD an hour"), rows)
        yield from map(Text, _shrink_details(outcome.shrink))
        yield ""
    steps = ", ".join(f"{step.name} {step.seconds:.1f} s" for step in outcome.steps)
    yield Text(f"steps: {steps}")
    yield Text(f"prices: {outcome.prices}")
    if outcome.measured:
        yield Text(f"monitoring: {outcome.measured}")
    yield Text(f"simulated: {'; '.join(outcome.simulated)}. Real: {'; '.join(outcome.real)}.")
    if outcome.blind:
        yield Text(f"not covered: {'; '.join(outcome.blind)}.")
    yield ""
    yield from pending_lines(outcome)
    style = "bold red" if outcome.failed else "bold green"
    yield Text(verdict_line(outcome), style=style)


def verdict_line(outcome: Outcome) -> str:
    if outcome.pods:
        head = f"{outcome.placed} of {outcome.pods} pods placed"
    else:
        head = "no workloads: only the platform was simulated"
    nodes = sum(pool.nodes for pool in outcome.pools)
    return f"{outcome.stack}: {head}, {count_of(nodes, 'node')}, {format_cost(outcome)}"


def format_cost(outcome: Outcome) -> str:
    unknown = ", ".join(outcome.unpriced)
    if not unknown:
        return f"{format_usd(outcome.usd_per_hour)} an hour"
    if not outcome.known_usd_per_hour:
        return "price unknown"
    return f"{format_usd(outcome.known_usd_per_hour)} an hour, without {unknown} (price unknown)"


def format_machines(groups: tuple[Machines, ...]) -> Iterator[str]:
    """``2x p4d.24xlarge, on-demand, us-west-2a`` for each kind."""
    for group in groups:
        facts = ", ".join(filter(None, (group.machine or "own host", group.capacity, group.zone)))
        yield f"{group.count}x {facts}"


def nodes_and_pods(outcome: Outcome) -> dict[str, tuple[str, str]]:
    """Of each pool: its nodes, a line for each kind, and how many pods with GPUs they have."""
    pods: dict[str, set[tuple[str, str]]] = {pool.name: set() for pool in outcome.pools}
    for node in outcome.nodes:
        pods[node.pool] |= {(cell.namespace, cell.pod) for gpu in node.gpus for cell in gpu if cell.pod}
    return {
        pool.name: ("\n".join(format_machines(pool.machines)) or "none", str(len(pods[pool.name])))
        for pool in outcome.pools
    }


def format_usage(name: str, amount: Amount) -> str:
    """``gpu.shared 4 of 8``: in use, of what is offered."""
    units = {CPU: "cores", MEMORY_GIB: "GiB", HUGE_PAGES: "GiB in huge pages"}
    unit = units.get(name, name.removeprefix("nvidia.com/"))
    return f"{unit} {amount.used:.4g} of {amount.offers:.4g}"


def _gpus_first(resources: Mapping[str, Amount]) -> Iterator[str]:
    gpus = [key for key in resources if key not in (CPU, MEMORY_GIB)]
    for key in [*gpus, CPU, MEMORY_GIB]:
        if key in resources:
            yield format_usage(key, resources[key])


def _pools_table(outcome: Outcome) -> Table:
    rows = (
        (
            pool.name,
            "\n".join(format_machines(pool.machines)) or "none",
            "\n".join(_gpus_first(pool.resources)) or "-",
            *(
                format_amount(usd) if pool.nodes else "-"
                for usd in (pool.usd_per_hour, pool.idle_usd_per_hour)
            ),
        )
        for pool in outcome.pools
    )
    known = f"{outcome.known_usd_per_hour:,.2f}{'+' if outcome.unpriced else ''}"
    if outcome.unpriced and not outcome.known_usd_per_hour:
        known = "unknown"
    table = build_table("Pools", ("pool", "nodes", "in use", "USD an hour", "of which idle"), rows)
    table.add_row("all", "", "", known, "", style="bold")
    return table


def _bought_in_vain(outcome: Outcome) -> Iterator[Text | str]:
    for pool in outcome.pools:
        if pool.in_vain:
            names = ", ".join(pool.in_vain)
            yield Text(f"{pool.name}: launched, but no pod of a workload ever ran there: {names}", "red")
            yield ""


def scenario_lines(outcome: Outcome) -> Iterator[Text]:
    """What was simulated beside the stack itself, and which capacity AWS did not have."""
    for scenario in outcome.played:
        yield Text(f"scenario: {scenario}")
    by_machine: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in outcome.refusals:
        by_machine.setdefault((refusal.machine, refusal.capacity), []).append(refusal)
    for (machine, capacity), refusals in by_machine.items():
        zones, times = ", ".join(item.zone for item in refusals), sum(item.times for item in refusals)
        yield Text(f"no capacity: {machine}, {capacity}, in {zones}; requested {count_of(times, 'time')}")


def shrink_lines(shrink: Shrink) -> Iterator[str]:
    for name, side in (("before", shrink.before), ("after", shrink.after)):
        cost = f"{format_usd(side.usd_per_hour)} an hour"
        yield f"{name}: {count_of(side.pods, 'pod')} on {count_of(side.nodes, 'node')}, {cost}"
    yield from _shrink_details(shrink)


def _shrink_details(shrink: Shrink) -> Iterator[str]:
    for node in shrink.gone:
        yield f"{node.node} ({node.machine}, {format_usd(node.usd_per_hour)} an hour) was removed: {node.why}"
    for reason in shrink.stays:
        yield f"stays: {reason}"
    yield f"note: {shrink.note}"


def pending_lines(outcome: Outcome) -> Iterator[Text | str]:
    """Pending pods, grouped by reason, with the events' messages; then other troubles."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for pod in outcome.pending:
        key = (pod.pool, pod.why, *pod.said)
        groups.setdefault(key, []).append(f"{pod.namespace}/{pod.name}")
    for (pool, why, *messages), names in groups.items():
        suffix = f" (pool {pool})" if pool else ""
        yield Text(f"pending: {abbreviate(names)}{suffix}: {why}", style="red")
        for text in messages:
            yield Text(f"    {text}", style="dim")
    for trouble in outcome.troubles:
        yield Text(trouble, style="red")
    if groups or outcome.troubles:
        yield ""


def queue_cost_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for queue in outcome.queues:
        for index, row in enumerate(queue_rows([queue.status])):
            yield *row, "" if index else format_amount(queue.usd_per_hour)


def queue_histories(outcome: Outcome, limit: int) -> Iterator[tuple[str, str, str]]:
    """At most ``limit`` workloads per queue; ``--json`` has all."""
    for queue in outcome.queues:
        for workload in queue.workloads[:limit]:
            changes = [f"{turn.what} {turn.at:.1f}{turn.why and f' ({turn.why})'}" for turn in workload.turns]
            yield workload.queue, str(workload), ", ".join([*changes, *(["waits"] if workload.waits else [])])
        if (more := len(queue.workloads) - limit) > 0:
            yield queue.status.name, f"and {more} more", "`--json` has all"


def load_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    for load in outcome.loads:
        for workload in load.workloads:
            name, pods = f"{workload.namespace}/{workload.name}", f"{workload.pods}, wanted {workload.wanted}"
            yield (
                f"{load.qps:g}",
                name,
                pods,
                _format_load_nodes(load),
                format_amount(load.usd_per_hour),
                f"{load.seconds:.0f}",
            )


def _format_load_nodes(load: Load) -> str:
    """``4; bought 3x g4dn.xlarge``."""
    changes = (("bought", load.bought), ("removed", load.removed))
    changed = (
        f"{what} {', '.join(f'{count}x {machine}' for machine, count in sorted(nodes.items()))}"
        for what, nodes in changes
        if nodes
    )
    return "; ".join([str(load.nodes), *changed])


def load_lines(outcome: Outcome) -> Iterator[str]:
    """The first additional pods, and what is not as declared."""
    for load in outcome.loads:
        for workload in load.workloads:
            head = f"{load.qps:g} requests per second: {workload.name}"
            if workload.cold:
                steps = ", ".join(f"{step} {at:.0f}" for step, at in workload.cold.items())
                new = " on a new node" if "node joined" in workload.cold else ""
                yield f"{head}: first additional pod{new}, in seconds since the load changed: {steps}"
            if workload.pods != workload.wanted and workload.within:
                yield f"{head} has {workload.pods} pods: the autoscaler tolerates 10 %"
    yield f"shortened, so durations are not those of the cluster: {'; '.join(outcome.shortened)}"


WIDTH, LEFT, RIGHT = 1100, 230, 16
PRICE_TOP, PRICE_HEIGHT = 22, 70
ROW = 18
MOST_ROWS = 60
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)


@dataclass(frozen=True)
class Row:
    """One bar, in seconds: from ``begin`` to ``ready`` it is lighter, then solid until ``end``.

    A node starts until it is ready, a workload in a queue waits until it is admitted (``came``).
    """

    text: str
    begin: float
    ready: float
    end: float
    fixed: bool
    came: str = "ready"

    @property
    def when(self) -> str:
        never = "never all ready" if self.fixed else f"never {self.came}"
        came = f"{self.came} at {self.ready:.0f} s" if self.ready < self.end else never
        return f"{self.begin:.0f} s to {self.end:.0f} s, {came}"

    def pixels(self, last: float) -> list[float]:
        return [x_position(at, last) for at in (self.begin, self.ready, self.end)]


def x_position(at: float, last: float) -> float:
    """X position of a second, in pixels."""
    return LEFT + (WIDTH - LEFT - RIGHT) * at / last


def ticks(last: float) -> Iterator[tuple[float, float]]:
    """About ten round seconds and their X, without late ones that would put text outside the picture."""
    step = next((step for step in _STEPS if last / step <= 10), 7200)
    for second in range(0, int(last) + 1, step):
        if (x := x_position(second, last)) < WIDTH - 24:
            yield float(second), x


def last_second(lines: Sequence[NodeTimeline], seconds: float) -> float:
    return max(seconds, *(max(line.begin, line.ready or 0.0, line.end or 0.0) for line in lines), 1.0)


def timeline_rows(lines: Iterable[NodeTimeline], last: float) -> Iterator[Row]:
    """One row per fixed pool, and one per node of the other pools."""
    fixed: dict[str, list[NodeTimeline]] = {}
    for line in lines:
        if line.fixed:
            fixed.setdefault(line.pool, []).append(line)
    for pool, nodes in fixed.items():
        begin = min(line.begin for line in nodes)
        ready = max((line.ready or last) for line in nodes)
        yield Row(f"{pool}: {len(nodes)} fixed", begin, max(begin, ready), last, True)
    for line in lines:
        if not line.fixed:
            end = last if line.end is None else line.end
            ready = end if line.ready is None else min(line.ready, end)
            yield Row(f"{line.pool}: {line.machine}", line.begin, ready, end, False)


def cost_steps(lines: Iterable[NodeTimeline]) -> list[tuple[float, float]]:
    """(second, USD per hour from then on) at each change; nodes without a price are left out."""
    changes: dict[float, float] = {0.0: 0.0}
    for line in lines:
        if line.usd_per_hour is not None:
            changes[line.begin] = changes.get(line.begin, 0.0) + line.usd_per_hour
            if line.end is not None:
                changes[line.end] = changes.get(line.end, 0.0) - line.usd_per_hour
    steps, total = [], 0.0
    for at in sorted(changes):
        total += changes[at]
        steps.append((at, max(0.0, round(total, 6))))
    return steps


def price_path(steps: Sequence[tuple[float, float]], highest: float, last: float) -> str:
    """The steps of the cost, from 0 to ``highest``."""
    points, before = [], 0.0
    for at, usd in [*steps, (last, steps[-1][1])]:
        x, base = x_position(at, last), PRICE_TOP + PRICE_HEIGHT
        points += [(x, base - PRICE_HEIGHT * before / highest), (x, base - PRICE_HEIGHT * usd / highest)]
        before = usd
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points[1:])


def queue_timeline(outcome: Outcome) -> Iterator[Row]:
    """One row for each time that a workload waits in a queue and then, perhaps, is admitted."""
    for queue in outcome.queues:
        for work in queue.workloads:
            begin = admitted = None
            turns = [(turn.what, turn.at) for turn in work.turns]
            lasts = bool(work.waits) or turns[-1][0] == "admitted"
            for change, at in [*turns, *([("until", queue.until)] if lasts else [])]:
                if change == "admitted":
                    admitted = at
                    continue
                if begin is not None:
                    ready = at if admitted is None else admitted
                    yield Row(f"{work.queue}: {work.name}", begin, ready, at, False, "admitted")
                begin, admitted = at, None

"""The tables of the commands; each shows only what ``--json`` prints.

They fit their terminal: they drop columns before they break or shorten a name.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import SegmentLines
from rich.table import Column, Table
from rich.text import Text

from gpuform.usage.nodes import Node, Pod
from gpuform.usage.status import ClusterStatus, PoolStatus
from infra.model.base import labels
from infra.plan.cost import Bill, per_month

if TYPE_CHECKING:
    from gpuform.stack.preflight.check import Finding
    from gpuform.usage.queues import QueueStatus

MANY = 5  # checks with the same reason that are shown as one
Cell = str | Text | tuple[str, str]
"""Of a table: a text, or a text and its style. Markup in it is not interpreted."""
SIMULATED = "simulated: nodes, GPU operator components; real: control plane, Helm, Pulumi engine"
PLAYED = "stack {0} is simulated on its own control plane on this machine"
NO_NODES = "; it has no nodes yet: `gpuform local nodes {0}` creates them"
PACKED = (
    "gpuform-packer schedules the pods with GPUs: a second, real kube-scheduler, here a process "
    "(elsewhere a Deployment)."
)


def pools_table(current: ClusterStatus) -> Table:
    rows = (
        (
            pool.name,
            pool.machine,
            _sharing(pool),
            (format_nodes(pool), "" if _all_ready(pool) else "red"),
            "\n".join(distinct_offers(pool.nodes)) or "-",
            _in_use(pool.nodes),
        )
        for pool in current.pools
    )
    columns = ("pool", "machine", "sharing", "nodes", "each node offers", "in use")
    return build_table("Pools", columns, rows, whole=("pool", "machine", "nodes"), optional=("machine",))


def format_nodes(pool: PoolStatus) -> str:
    """Ready of declared (else existing) nodes, with an elastic pool's bounds: ``1/2``, ``1/1, 1 to 4``."""
    ready = sum(node.ready for node in pool.nodes)
    expected = len(pool.nodes) if pool.declared is None else pool.declared
    return ", ".join([f"{ready}/{expected}", *([format_bounds(pool.bounds)] if pool.bounds else [])])


def format_bounds(bounds: tuple[int, int]) -> str:
    """Fewest and most nodes of an elastic pool: ``1 to 4``."""
    return "{} to {}".format(*bounds)


def pods_table(current: ClusterStatus) -> Table:
    """One row per pod outside the system namespaces: what it requests and its node.

    `trouble_lines` gives the reason for a pod in trouble: a scheduler's message does not fit into a column.
    """
    rows = (
        (pod.namespace, pod.name, format_counts(pod.gpu_requests) or "no GPU", pod.node or "-", _phase(pod))
        for pod in current.pods
        if pod.namespace not in current.system
    )
    columns = ("namespace", "pod", "requests", "node", "phase")
    return build_table("Pods", columns, rows, whole=columns, optional=("requests", "node"))


QUEUES = ("queue", "pool", "resource", "quota", "used", "of which borrowed", "waiting")
WAITING = ("queue", "waiting", "why")


def queue_rows(statuses: Iterable[QueueStatus]) -> Iterator[tuple[str, ...]]:
    """One row per team and resource of a pool, as `QUEUES`; a queue that admits nothing has one with why.

    The first row of a queue has the number of all that wait in it.
    """
    for queue in statuses:
        waiting = str(len(queue.waiting))
        if queue.trouble:
            yield queue.name, queue.trouble, *["-"] * 4, waiting
            continue
        for usage in queue.usage:
            name = usage.resource.removeprefix("nvidia.com/")
            yield queue.name, usage.pool, name, *map(str, (usage.quota, usage.used, usage.borrowed)), waiting
            waiting = ""


def waiting_rows(current: ClusterStatus, limit: int) -> Iterator[tuple[str, str, str]]:
    """One row per waiting workload, as `WAITING`, the first of each queue; at most ``limit`` of each."""
    for queue in current.queues:
        for work in queue.waiting[:limit]:
            yield queue.name, f"{work.kind} {work.namespace}/{work.name}", work.reason
        if (more := len(queue.waiting) - limit) > 0:
            yield queue.name, f"and {more} more", "`gpuform status --json` has all"


class FittingTable(Table):
    """Drops the columns of ``optional``, the first one first, until no word of the others has to be broken.

    If the terminal is still too narrow, with ``below`` the last column goes below its neighbour; then columns
    with ``no_wrap`` are shortened, the widest first.
    """

    optional: Sequence[str] = ()
    below: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        padding, room = self.padding[1], options.max_width + self.padding[1]
        fields = [(column, *_limits(console, options, column)) for column in self.columns]
        for name in self.optional:
            if sum(least + padding for _, least, _ in fields) > room:
                fields = [field for field in fields if field[0].header != name]
        if self.below and sum(least + padding for _, least, _ in fields) > room:
            *others, (left, _, _), (right, _, _) = fields
            merged = _put_below(left, right)
            fields = [*others, (merged, *_limits(console, options, merged))]
        widths = [least for _, least, _ in fields]
        spare = room - sum(widths) - padding * len(widths)
        for _ in range(abs(spare)):
            lacking = [most - width for (_, _, most), width in zip(fields, widths, strict=True)]
            weights = lacking if spare > 0 else widths
            widths[weights.index(max(weights))] += (max(weights) > 0) if spare > 0 else -1
        fitted = copy.copy(self)
        fitted.columns = [
            replace(column, width=width, _index=index)
            for index, ((column, _, _), width) in enumerate(zip(fields, widths, strict=True))
        ]
        yield from Table.__rich_console__(fitted, console, options)


def _put_below(left: Column, right: Column) -> Column:
    """One column of two: a cell of the right one is a line below, after the name of its column."""
    pairs = zip(left.cells, map(str, right.cells), strict=True)
    cells = [Group(cell, Text(f"{right.header}: {below}")) if below else cell for cell, below in pairs]
    return replace(left, _cells=cells)


def _limits(console: Console, options: ConsoleOptions, column: Column) -> tuple[int, int]:
    """Width of the column without broken words, and without wrapped lines."""
    cells = (column.header, *column.cells)
    measured = [Measurement.get(console, options.update(width=10_000), cell) for cell in cells]
    most = max(cell.maximum for cell in measured)
    return most if column.no_wrap else max(cell.minimum for cell in measured), most


def crop_to_height(console: Console, parts: Iterable[RenderableType]) -> RenderableType:
    """The parts, or as many of their lines as the terminal has room for, and how many are hidden."""
    lines = console.render_lines(Group(*parts), pad=False)
    if (hidden := len(lines) - console.height + 1) > 1:
        more = f"and {hidden} more lines; --pool, --node and --namespace select"
        lines[-hidden:] = console.render_lines(more, pad=False)[:1]
    return SegmentLines(lines, new_lines=True)


def build_table(
    title: str,
    columns: Iterable[str],
    rows: Iterable[Iterable[Cell]],
    whole: Container[str] = (),
    optional: Sequence[str] = (),
    below: bool = False,
) -> Table:
    """A table; in a narrow terminal it drops ``optional`` columns and wraps all but the ``whole`` ones.

    With ``below``, the last column goes below the one before, rather than that a word is broken.
    """
    table = FittingTable(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.optional, table.below = optional, below
    for column in columns:
        kept = column in whole
        table.add_column(column, header_style="dim", overflow="ellipsis" if kept else "fold", no_wrap=kept)
    for row in rows:
        table.add_row(*map(Text.assemble, row))
    return table


_UPGRADED = "upgrade-done"


def trouble_lines(current: ClusterStatus) -> list[str]:
    """Lines: of nodes that take no pods or have no pool, of a driver upgrade, and of pods in trouble.

    Pods of the system are included.
    """
    nodes = [node for pool in current.pools for node in pool.nodes]
    lines = [f"node {node.name} takes no pods yet: {node.waits_for}" for node in nodes if node.waits_for]
    closed = (node for node in nodes if node.closed and not node.waits_for)
    lines += [f"node {node.name} takes no new pods: {node.closed}" for node in closed]
    states = Counter(state for node in nodes if (state := node.labels.get(labels.DRIVER_UPGRADE_STATE)))
    if steps := [f"{state} {count}" for state, count in sorted(states.items()) if state != _UPGRADED]:
        done = f"; done {states[_UPGRADED]}" if states[_UPGRADED] else ""
        lines.append(f"the operator upgrades the driver, nodes by step: {', '.join(steps)}{done}")
    for name, label in current.unassigned_nodes.items():
        state = f"is {label}" if label else "is missing"
        lines.append(f"node {name} offers GPUs but is in no declared pool: its label {labels.POOL} {state}")
    return lines + [f"{pod.namespace}/{pod.name}: {pod.reason}" for pod in current.pods if pod.reason]


def findings_table(findings: Iterable[Finding]) -> Table:
    """One row per finding; `manual_checks` has the commands that check the same."""
    styles = {"PASS": "green", "SKIP": "yellow", "FAIL": "red"}
    rows = (((item.verdict, styles[item.verdict]), item.subject, item.fact, item.fix) for item in findings)
    return build_table("", ("", "check", "finding", "fix"), rows, below=True)


def condensed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, failed ones first; many that were not checked for the same reason are one, at the end."""
    ordered = sorted(findings, key=lambda finding: finding.verdict != "FAIL")
    reasons = Counter(finding.fact for finding in ordered if finding.fact.startswith("not checked: "))
    many = [reason for reason, count in reasons.items() if count >= MANY]
    firsts = (next(finding for finding in ordered if finding.fact == reason) for reason in many)
    rows = [replace(one, subject=f"{reasons[one.fact]} checks", fix="", check="") for one in firsts]
    return [*(finding for finding in ordered if finding.fact not in many), *rows]


def manual_checks(checked: Iterable[Finding]) -> list[str]:
    """The commands that check the same by hand, one per line so that they can be copied."""
    lines = [f"  {finding.check}  # {finding.subject}" for finding in checked if finding.check]
    return ["to check by hand:", *lines] if lines else []


def bill_table(before: Bill | None, after: Bill) -> Table:
    columns = ("item", *(["before"] if before else []), "now", "USD an hour per unit")
    lines = []
    for item, old, new in [*bill_rows(before, after), ("all", bill_total(before), bill_total(after))]:
        units = next((entry.units for entry in after.lines if entry.item == item), {})
        prices = ", ".join(f"{name.removeprefix('nvidia.com/')} {usd:.3f}" for name, usd in units.items())
        lines.append((item, *([old] if before else []), new, prices or ("" if item == "all" else "-")))
    return build_table(f"Cost, USD a month; {after.price_source}", columns, lines)


def cost_line(stack: str, bill: Bill) -> str:
    """What the stack costs per hour, with elastic pools at their minimum and at their limit."""
    if bill.has_no_price:
        return f"{stack}: {bill.price_source}"
    unknown = f", without {', '.join(bill.unknown)}" if bill.unknown else ""
    return f"{stack} costs {bill.low:,.2f} to {bill.high:,.2f} USD an hour{unknown}; {bill.price_source}"


def bill_rows(before: Bill | None, after: Bill) -> Iterator[tuple[str, str, str]]:
    """``(what, before, after)`` for each item of either bill."""
    lines = {line.item: line for line in (*(before.lines if before else ()), *after.lines)}
    for item in lines:
        yield item, _bill_line(before, item), _bill_line(after, item)


def bill_total(bill: Bill | None) -> str:
    """Sum of the known prices, with ``+`` if some are unknown; ``unknown`` if all are."""
    if bill and bill.lines and bill.has_no_price:
        return "unknown"
    return _usd_a_month(bill.low, bill.high) + ("+" if bill.unknown else "") if bill else "-"


def _bill_line(bill: Bill | None, item: str) -> str:
    entry = next((other for other in bill.lines if other.item == item), None) if bill else None
    if entry is None:
        return "-"
    return "unknown" if entry.high is None else _usd_a_month(entry.low or 0.0, entry.high)


def _usd_a_month(low: float, high: float) -> str:
    least, most = (f"{per_month(usd):,.0f}" for usd in (low, high))
    return most if least == most else f"{least} to {most}"


def format_amount(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def format_usd(amount: float | None) -> str:
    return "unknown price" if amount is None else f"{amount:,.2f} USD"


def format_counts(resources: Mapping[str, int | str]) -> str:
    """Resources and how many, without the vendor's prefix: ``gpu.shared 4``."""
    return ", ".join(f"{key.removeprefix('nvidia.com/')} {n}" for key, n in sorted(resources.items()))


def simulated_line(operator: str) -> str:
    """What is simulated on this machine; ``operator`` names NVIDIA's own, if it runs here."""
    if not operator:
        return SIMULATED
    return f"simulated: nodes, operands; real: control plane, {operator}"


def simulated_note(stack: str, status: ClusterStatus) -> str:
    has_nodes = any(pool.nodes for pool in status.pools)
    return (PLAYED if has_nodes else PLAYED + NO_NODES).format(stack)


def _all_ready(pool: PoolStatus) -> bool:
    return len(pool.nodes) >= (pool.declared or 0) and all(node.ready for node in pool.nodes)


def _sharing(pool: PoolStatus) -> str:
    if not pool.planned:
        return "-"
    declared = "declared " if any(node.deviations for node in pool.nodes) else ""
    return f"{declared}{pool.sharing}: {pool.detail}" if pool.detail else pool.sharing


def distinct_offers(nodes: Iterable[Node]) -> list[str]:
    """What the nodes offer, with the declared number where it differs."""
    offers = (format_counts({**node.allocatable, **node.deviations}) or "no GPU" for node in nodes)
    return list(dict.fromkeys(offers))


def _in_use(nodes: Iterable[Node]) -> str:
    total: Counter[str] = Counter()
    for node in nodes:
        total.update(node.used)
    return format_counts(total) or "-"


def _phase(pod: Pod) -> Cell:
    fine = pod.phase in ("Running", "Succeeded") and not pod.reason
    return pod.phase, "green" if fine else "red"

"""``gpuform top`` as a table: a tree of nodes, GPUs, slices and pods, with figures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from gpuform.reports.rehearsal import number
from gpuform.reports.tables import empty, reach
from gpuform.usage.top.view import Gpu, Node, PodUse, Slice, Use, View

ATTRIBUTED = "~: share by request; several pods share that device, or a pod's device is unknown"
UNMEASURED = "not measured"
"""Shown where Prometheus has no series of an object, but has those of others."""
_GIB = 2**30


@dataclass(frozen=True)
class Row:
    """One line: its ``depth`` in the tree, and its columns."""

    depth: int
    what: str
    style: str = ""
    requested: str = ""
    used: str = ""
    memory: str = ""
    power: str = ""


def table(view: View) -> Table:
    """The tree; without Prometheus only with what is requested."""
    measured = ("used", "GPU memory", "power") if view.measured else ()
    shown = empty("", "node, GPU, slice, pod", "requested", *measured)
    rows = list(rows_of(view))
    for row, lead in zip(rows, leads([row.depth for row in rows]), strict=True):
        cells = [Text.assemble((lead, "dim"), (row.what, row.style)), Text(row.requested)]
        if view.measured:
            cells += [Text(row.used), Text(row.memory), Text(row.power)]
        shown.add_row(*cells)
    return shown


def notes(view: View) -> list[str]:
    found = []
    if not view.nodes:
        found.append("no nodes with GPUs, or none that the options select")
    found += [
        f"pool {one.pool} has {number(one.nodes, 'node')}, and may have {reach((one.min, one.max))}"
        for one in view.growing
    ]
    if any(pod.attributed for node in view.nodes for pod in node.everyone):
        found.append(ATTRIBUTED)
    if view.why:
        found.append(f"requested only: {view.why}")
    return found


def rows_of(view: View) -> Iterator[Row]:
    for node in view.nodes:
        yield _node(node)
        for gpu in node.gpus:
            yield _gpu(gpu)
            for one in gpu.slices:
                yield _slice(one, gpu.vacant)
                yield from (_pod(pod, 3) for pod in one.pods)
            yield from (_pod(pod, 2) for pod in gpu.pods)
        yield from (_pod(pod, 1) for pod in node.loose)


def _node(node: Node) -> Row:
    ready = "" if node.ready else "not ready"
    busy = UNMEASURED if node.busy is None else f"{amount(node.busy)} of {_gpus(len(node.gpus))}"
    return Row(
        0,
        f"{node.name} ({', '.join(filter(None, (node.pool, node.machine, ready, node.closed)))})",
        "bold" if node.ready and not node.closed else "bold red",
        f"{amount(node.requested)} of {_gpus(len(node.gpus))}",
        busy,
    )


def _gpu(gpu: Gpu) -> Row:
    shares = f", {gpu.shares} shares" if gpu.shares > 1 else ""
    power = "" if gpu.use.power_watts is None else f"{gpu.use.power_watts:.0f} W"
    sick = f": {', '.join(map(str, gpu.faults))}" if gpu.faults else ""
    what, style = f"GPU {gpu.index} {gpu.model}{shares}{sick}", "red" if sick else ""
    return Row(1, what, style, _asked(gpu), *_use(gpu.use), power)


def _slice(one: Slice, vacant: str) -> Row:
    shares = f", {one.shares} shares" if one.shares > 1 else ""
    requested = vacant if not one.pods else amount(sum(pod.requested for pod in one.pods))
    return Row(2, f"{one.profile}{shares}", "", requested, *_use(one.use))


def _asked(gpu: Gpu) -> str:
    return amount(gpu.requested) if gpu.requested else gpu.vacant


def _pod(pod: PodUse, depth: int) -> Row:
    what = f"{pod.count} {pod.resource.removeprefix('nvidia.com/')}"
    return Row(
        depth, f"{pod.namespace}/{pod.name}", "cyan", f"{amount(pod.requested)} ({what})", used_by(pod)
    )


def used_by(pod: PodUse) -> str:
    """GPUs that a pod uses; ``~`` marks a share attributed by request."""
    if pod.used is None:
        return UNMEASURED
    return f"{'~' if pod.attributed else ''}{amount(pod.used)}"


def _use(use: Use) -> tuple[str, str]:
    return percent(use), memory(use)


def percent(use: Use) -> str:
    return UNMEASURED if use.util is None else f"{use.util * 100:.0f} %"


def memory(use: Use) -> str:
    """``9.8 of 15.0 GiB``; empty if not measured."""
    if use.memory_used is None:
        return ""
    used = f"{use.memory_used / _GIB:.1f}"
    return f"{used} GiB" if use.memory_total is None else f"{used} of {use.memory_total / _GIB:.1f} GiB"


def amount(gpus: float) -> str:
    return f"{gpus:.2f}".rstrip("0").rstrip(".")


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def leads(depths: Sequence[int]) -> list[str]:
    """The lines of the tree before each row, by the rows' depths."""
    found = []
    for index, depth in enumerate(depths):
        parts = []
        for level in range(1, depth + 1):
            more = _goes_on(depths[index + 1 :], level)
            parts.append(("├─ " if more else "└─ ") if level == depth else ("│  " if more else "   "))
        found.append("".join(parts))
    return found


def _goes_on(after: Iterable[int], level: int) -> bool:
    """Whether another row of that level follows before a row of a smaller depth."""
    return next((depth == level for depth in after if depth <= level), False)

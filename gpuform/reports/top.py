"""``gpuform top`` as a table: a tree of nodes, GPUs, slices and pods, with figures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from gpuform.reports.tables import Cell, filled, number, reach
from gpuform.usage.top.view import Gpu, PodUse, Slice, Use, View

ATTRIBUTED = "~: share by request; several pods share that device, or a pod's device is unknown"
UNMEASURED = "not measured"
"""Shown where Prometheus has no series of an object, but has those of others."""
_GIB = 2**30


def table(view: View) -> Table:
    """The tree; without Prometheus only with what is requested."""
    columns = ("requested", "used", "GPU memory", "power") if view.measured else ("requested",)
    rows = list(_rows(view))
    cells: list[list[Cell]] = []
    for (_, name, style, *figures), lead in zip(rows, leads([row[0] for row in rows]), strict=True):
        what = Text.assemble((lead, "dim"), (name, style))
        cells.append([what, *[*figures, "", "", ""][: len(columns)]])
    return filled("", ("node, GPU, slice, pod", *columns), cells)


def notes(view: View) -> list[str]:
    found = []
    if not view.nodes:
        found.append("no nodes with GPUs, or none that the options select")
    found += [
        f"pool {one.name} has {number(len(one.nodes), 'node')}, and may have {reach(one.bounds)}"
        for one in view.growing
        if one.bounds
    ]
    if any(pod.attributed for node in view.nodes for pod in node.everyone):
        found.append(ATTRIBUTED)
    if view.why:
        found.append(f"requested only: {view.why}")
    return found


def _rows(view: View) -> Iterator[tuple[int, str, str, *tuple[str, ...]]]:
    """Each row: depth in the tree, name, style, requested; then used, memory and power if measured."""
    for node in view.nodes:
        of = f" of {number(len(node.gpus), 'GPU')}"
        state = (node.pool, node.machine, "" if node.ready else "not ready", node.closed)
        busy = UNMEASURED if node.busy is None else amount(node.busy) + of
        style = "bold" if node.ready and not node.closed else "bold red"
        yield 0, f"{node.name} ({', '.join(filter(None, state))})", style, amount(node.requested) + of, busy
        for gpu in node.gpus:
            sick = f": {', '.join(map(str, gpu.faults))}" if gpu.faults else ""
            power = "" if gpu.use.power_watts is None else f"{gpu.use.power_watts:.0f} W"
            name, asked = f"GPU {gpu.index} {gpu.model}{_shared(gpu)}{sick}", _asked(gpu.requested, gpu)
            yield 1, name, "red" if sick else "", asked, percent(gpu.use), memory(gpu.use), power
            for one in gpu.slices:
                asked = _asked(sum(pod.requested for pod in one.pods), gpu)
                yield 2, one.profile + _shared(one), "", asked, percent(one.use), memory(one.use)
                yield from (_pod(pod, 3) for pod in one.pods)
            yield from (_pod(pod, 2) for pod in gpu.pods)
        yield from (_pod(pod, 1) for pod in node.loose)


def _shared(one: Gpu | Slice) -> str:
    return f", {one.shares} shares" if one.shares > 1 else ""


def _asked(requested: float, gpu: Gpu) -> str:
    return amount(requested) if requested else gpu.vacant


def _pod(pod: PodUse, depth: int) -> tuple[int, str, str, str, str]:
    asked = f"{amount(pod.requested)} ({pod.count} {pod.resource.removeprefix('nvidia.com/')})"
    return depth, f"{pod.namespace}/{pod.name}", "cyan", asked, used_by(pod)


def used_by(pod: PodUse) -> str:
    """GPUs that a pod uses; ``~`` marks a share attributed by request."""
    if pod.used is None:
        return UNMEASURED
    return f"{'~' if pod.attributed else ''}{amount(pod.used)}"


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

"""``gpuform top`` as a table: a tree of nodes, GPUs, slices and pods, with figures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from gpuform.checkout.listing import count_of
from gpuform.reports.tables import Cell, build_table, format_bounds, format_counts
from gpuform.usage.top.view import Gpu, PodUse, Slice, Use, View

ATTRIBUTED = "~: share by request; several pods share that device, or a pod's device is unknown"
UNMEASURED = "not measured"
"""Shown where Prometheus has no series of an object, but has those of others."""
_GIB = 2**30


def top_table(view: View) -> Table:
    """The tree; without Prometheus only with what is requested."""
    tree, measured = "node, GPU, slice, pod", ("used", "GPU memory", "power") if view.measured else ()
    columns = (tree, "requested", "resource", *measured)
    title = "Requested and used, in GPUs" if view.measured else "Requested, in GPUs"
    rows = list(_rows(view))
    cells: list[list[Cell]] = []
    for (_, name, style, *figures), lead in zip(rows, tree_prefixes([row[0] for row in rows]), strict=True):
        what = Text.assemble((lead, "dim"), (name, style))
        cells.append([what, *[*figures, "", "", "", ""][: len(columns) - 1]])
    optional = ("resource", "power", "GPU memory")
    return build_table(title, columns, cells, whole=columns, optional=optional)


def top_notes(view: View) -> list[str]:
    notes = []
    if not view.nodes:
        notes.append("no nodes with GPUs, or none that the options select")
    notes += [
        f"pool {pool.name} has {count_of(len(pool.nodes), 'node')}, and may have {format_bounds(pool.bounds)}"
        for pool in view.growing
        if pool.bounds
    ]
    if any(pod.attributed for node in view.nodes for pod in node.all_pods):
        notes.append(ATTRIBUTED)
    if view.why:
        notes.append(f"requested only: {view.why}")
    return notes


def _rows(view: View) -> Iterator[tuple[int, str, str, *tuple[str, ...]]]:
    """Each row: depth in the tree, name, style, requested, resource; if measured, used, memory and power."""
    for node in view.nodes:
        suffix = f" of {len(node.gpus)}"
        state = (node.pool, node.machine, "" if node.ready else "not ready", node.closed)
        busy = UNMEASURED if node.busy is None else format_gpus(node.busy) + suffix
        style = "bold" if node.ready and not node.closed else "bold red"
        name, requested = f"{node.name} ({', '.join(filter(None, state))})", format_gpus(node.requested)
        yield 0, name, style, requested + suffix, "", busy
        for gpu in node.gpus:
            faults = f": {', '.join(map(str, gpu.faults))}" if gpu.faults else ""
            power = "" if gpu.use.power_watts is None else f"{gpu.use.power_watts:.0f} W"
            name, style = f"GPU {gpu.index} {gpu.model}{_shares(gpu)}{faults}", "red" if faults else ""
            requested = _requested(gpu.requested, gpu)
            yield 1, name, style, requested, "", percent(gpu.use), memory_text(gpu.use), power
            for mig in gpu.slices:
                requested = _requested(sum(pod.requested for pod in mig.pods), gpu)
                yield 2, mig.profile + _shares(mig), "", requested, "", percent(mig.use), memory_text(mig.use)
                yield from (_pod(pod, 3) for pod in mig.pods)
            yield from (_pod(pod, 2) for pod in gpu.pods)
        yield from (_pod(pod, 1) for pod in node.unassigned)


def _shares(device: Gpu | Slice) -> str:
    return f", {device.shares} shares" if device.shares > 1 else ""


def _requested(requested: float, gpu: Gpu) -> str:
    return format_gpus(requested) if requested else gpu.free_word


def _pod(pod: PodUse, depth: int) -> tuple[int, str, str, *tuple[str, ...]]:
    name, resource = f"{pod.namespace}/{pod.name}", format_counts({pod.resource: pod.count})
    return depth, name, "cyan", format_gpus(pod.requested), resource, format_used(pod)


def format_used(pod: PodUse) -> str:
    """GPUs that a pod uses; ``~`` marks a share attributed by request."""
    if pod.used is None:
        return UNMEASURED
    return f"{'~' if pod.attributed else ''}{format_gpus(pod.used)}"


def percent(use: Use) -> str:
    return UNMEASURED if use.util is None else f"{use.util * 100:.0f} %"


def memory_text(use: Use) -> str:
    """``9.8 of 15.0 GiB``; empty if not measured."""
    if use.memory_used is None:
        return ""
    used = f"{use.memory_used / _GIB:.1f}"
    return f"{used} GiB" if use.memory_total is None else f"{used} of {use.memory_total / _GIB:.1f} GiB"


def format_gpus(gpus: float) -> str:
    return f"{gpus:.2f}".rstrip("0").rstrip(".")


def tree_prefixes(depths: Sequence[int]) -> list[str]:
    """The lines of the tree before each row, by the rows' depths."""
    prefixes = []
    for index, depth in enumerate(depths):
        parts = []
        for level in range(1, depth + 1):
            more = _has_sibling(depths[index + 1 :], level)
            parts.append(("├─ " if more else "└─ ") if level == depth else ("│  " if more else "   "))
        prefixes.append("".join(parts))
    return prefixes


def _has_sibling(after: Iterable[int], level: int) -> bool:
    """Whether another row of that level follows before a row of a smaller depth."""
    return next((depth == level for depth in after if depth <= level), False)

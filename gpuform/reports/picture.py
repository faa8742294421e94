"""A GPU as a picture: its MIG slices to scale, its shares, the pods that hold them, and its load.

The width is the GPU's memory slices, and each MIG slice is as wide as its own memory slices; the small
squares are compute slices. Memory slices in no instance are left open. If the first memory slice of an
instance is unknown (DCGM does not report it), instances are drawn one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from gpuform.reports import html, top
from gpuform.usage.top.view import Gpu, PodUse, Slice, Use

WIDTH, HEIGHT = 320, 34
BAR, GAP = 4, 2
"""Pixels: height of the two bars below the picture, and the gap above each."""
_UNIT, _STEP = 4, 6
_PAD, _LITTLE, _WIDE = 5, 2.5, 60
"""Padding beside a text; ``_LITTLE`` in a part of at most ``_WIDE`` pixels."""

Colours = Mapping[tuple[str, str], int]
"""Number of the style's class for each workload, by namespace and name."""


def colours(gpus: Iterable[Gpu], more: Iterable[PodUse] = ()) -> dict[tuple[str, str], int]:
    """A colour for each workload in order of appearance; after eight they repeat."""
    found: dict[tuple[str, str], int] = {}
    for pod in [*(pod for gpu in gpus for pod in gpu.everyone), *more]:
        found.setdefault((pod.namespace, pod.workload), len(found) % html.COLOURS)
    return found


def picture(gpu: Gpu, known: Colours) -> str:
    """The SVG of one GPU; its label has the same content as text."""
    parts = list(_cut(gpu, known)) if gpu.slices else list(_part(gpu, known))
    height = HEIGHT + (2 * (BAR + GAP) if _measured(gpu) else 0)
    label = escape(said(gpu), quote=True)
    return (
        f'<svg class="gpu" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def said(gpu: Gpu) -> str:
    """``GPU 0: 2g.10gb a/b; 3g.20gb free``."""
    parts = (f"{one.profile} {_names(one.pods, gpu)}" for one in gpu.slices)
    return f"GPU {gpu.index}: {'; '.join(parts) or _names(gpu.pods, gpu)}"


def _names(pods: Sequence[PodUse], gpu: Gpu) -> str:
    return ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods) or gpu.vacant


def _measured(gpu: Gpu) -> bool:
    return gpu.use.measured or any(one.use.measured for one in gpu.slices)


def _part(gpu: Gpu, known: Colours) -> Iterator[str]:
    yield from _shares((0, WIDTH), gpu, gpu, "", known)
    yield from _bars(0, WIDTH, gpu.use)


def _cut(gpu: Gpu, known: Colours) -> Iterator[str]:
    places = _places(gpu)
    all_of = max((start + size for start, size in places), default=0)
    unit = WIDTH / max(gpu.memory, all_of)
    taken = {cell for start, size in places for cell in range(start, start + size)}
    for cell in range(gpu.memory):
        if cell not in taken:
            title = "<title>in no slice</title>"
            yield f'<rect class="hole" {_box(cell * unit, unit)}>{title}</rect>'
    for one, (start, size) in zip(gpu.slices, places, strict=True):
        x, width = start * unit, size * unit
        yield from _shares((x, width), gpu, one, one.profile, known)
        yield from _units(one, x, width)
        yield from _bars(x, width, one.use)


def _places(gpu: Gpu) -> list[tuple[int, int]]:
    """(first memory slice, number of slices) of each instance; size 1 if unknown."""
    sizes = [one.memory or 1 for one in gpu.slices]
    if all(one.start is not None for one in gpu.slices):
        return [(one.start or 0, size) for one, size in zip(gpu.slices, sizes, strict=True)]
    return [(sum(sizes[:index]), size) for index, size in enumerate(sizes)]


def _shares(
    place: tuple[float, float], gpu: Gpu, of: Gpu | Slice, kind: str, known: Colours
) -> Iterator[str]:
    """A slice or a GPU divided into its shares, shares held by pods first."""
    held = [pod for pod in of.pods for _ in range(min(pod.count, of.shares))]
    count = max(of.shares, len(held))
    left, each = place[0], place[1] / count
    for index in range(count):
        pod = held[index] if index < len(held) else None
        part = kind if count == 1 else " ".join(filter(None, (kind, f"1/{count}")))
        yield _cell((left + index * each, each), pod, gpu.vacant, part, known)


def _cell(place: tuple[float, float], pod: PodUse | None, vacant: str, kind: str, known: Colours) -> str:
    x, width = place
    style = f"w{known.get((pod.namespace, pod.workload), 0)}" if pod else "free"
    holder = f"{pod.namespace}/{pod.name}" if pod else vacant
    title = escape(": ".join(filter(None, (holder, kind))))
    pad = _PAD if width > _WIDE else _LITTLE
    name = html.cut(pod.workload if pod else vacant, width - 2 * pad)
    below = html.cut(kind, width - 2 * pad, html.SMALL_LETTER)
    texts, left = "", f'x="{x + pad:.1f}"'
    if name:
        texts += f'<text class="{"name" if pod else ""}" {left} y="13">{escape(name)}</text>'
    if below:
        texts += f'<text class="small" {left} y="{HEIGHT - 9}">{escape(below)}</text>'
    return f'<g><title>{title}</title><rect class="{style}" rx="3" {_box(x, width)}/>{texts}</g>'


def _units(one: Slice, x: float, width: float) -> Iterator[str]:
    for index in range(one.compute):
        left = x + (_PAD if width > _WIDE else _LITTLE) + index * _STEP
        if left + _UNIT < x + width - 2:
            yield f'<rect class="unit" x="{left:.1f}" y="{HEIGHT - 6}" width="{_UNIT}" height="{_UNIT}"/>'


def _bars(x: float, width: float, use: Use) -> Iterator[str]:
    y = HEIGHT + GAP
    if use.util is not None:
        yield from _bar("bar", x, width, y, use.util, f"{top.percent(use)} busy")
    if use.memory_used is not None and use.memory_total:
        part = use.memory_used / use.memory_total
        yield from _bar("memory", x, width, y + BAR + GAP, part, f"{top.memory(use)} in use")


def _bar(kind: str, x: float, width: float, y: int, part: float, title: str) -> Iterator[str]:
    full = width - 2
    filled = full * min(1.0, max(0.0, part))
    size = f'y="{y}" height="{BAR}"'
    yield f'<g><title>{escape(title)}</title><rect class="track" x="{x + 1:.1f}" width="{full:.1f}" {size}/>'
    yield f'<rect class="{kind}" x="{x + 1:.1f}" width="{filled:.1f}" {size}/></g>'


def _box(x: float, width: float) -> str:
    return f'x="{x + 1:.1f}" y="0" width="{width - 2:.1f}" height="{HEIGHT}"'

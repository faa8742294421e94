"""Geometry of the pictures: a GPU with its MIG slices to scale, its shares and its load; a value over time.

A GPU's width is its memory slices, and each MIG slice is as wide as its own memory slices; the small squares
are compute slices. Memory slices in no instance are left open. If the first memory slice of an instance is
unknown (DCGM does not report it), instances are drawn one after another. All in pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuform.reports import top
from gpuform.usage.top.view import Gpu, PodUse, Slice, Use

WIDTH, HEIGHT = 320, 34
BAR, GAP = 4, 2
"""Height of the two bars below the picture, and the gap above each."""
UNIT, _STEP = 4, 6
LETTER, SMALL_LETTER = 6.4, 5.8
"""Width of a letter at 11 and at 10 px, rounded up: a name must not run into its neighbour."""
_PAD = 1.5
Points = Sequence[tuple[float, float]]


def shorten(text: str, width: float, letter: float = LETTER) -> str:
    """The text, cut with an ellipsis to ``width``; empty if only three letters of it would fit."""
    letters = int(width / letter)
    return text if len(text) <= letters else f"{text[: letters - 1]}\u2026" if letters > 3 else ""


def padding(width: float) -> float:
    """Padding beside a text in a part of this width."""
    return 5 if width > 60 else 2.5


def describe_gpu(gpu: Gpu) -> str:
    """``GPU 0: 2g.10gb a/b; 3g.20gb free``: the picture as text."""
    parts = (f"{mig.profile} {_pod_names(mig.pods, gpu)}" for mig in gpu.slices)
    return f"GPU {gpu.index}: {'; '.join(parts) or _pod_names(gpu.pods, gpu)}"


def _pod_names(pods: Sequence[PodUse], gpu: Gpu) -> str:
    return ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods) or gpu.free_word


def picture_height(gpu: Gpu) -> int:
    measured = gpu.use.measured or any(mig.use.measured for mig in gpu.slices)
    return HEIGHT + (2 * (BAR + GAP) if measured else 0)


def gpu_strips(gpu: Gpu) -> Iterator[tuple[float, float, Gpu | Slice | None, str]]:
    """(x, width, what, profile): memory slices in no instance (None), then the instances, or the GPU."""
    if not gpu.slices:
        yield 0, WIDTH, gpu, ""
        return
    sizes = [mig.memory or 1 for mig in gpu.slices]
    begins = [sum(sizes[:index]) for index in range(len(sizes))]
    if all(mig.start is not None for mig in gpu.slices):
        begins = [mig.start or 0 for mig in gpu.slices]
    taken = {cell for begin, size in zip(begins, sizes, strict=True) for cell in range(begin, begin + size)}
    unit = WIDTH / max(gpu.memory, *(cell + 1 for cell in taken))
    for cell in range(gpu.memory):
        if cell not in taken:
            yield cell * unit, unit, None, ""
    for mig, begin, size in zip(gpu.slices, begins, sizes, strict=True):
        yield begin * unit, size * unit, mig, mig.profile


def strip_shares(
    x: float, width: float, device: Gpu | Slice, profile: str
) -> Iterator[tuple[float, float, PodUse | None, str]]:
    """(x, width, pod, what it is) of each share, those held by pods first."""
    holders = [pod for pod in device.pods for _ in range(min(pod.count, device.shares))]
    count = max(device.shares, len(holders))
    kind = profile if count == 1 else f"{profile} 1/{count}".strip()
    for index in range(count):
        pod = holders[index] if index < len(holders) else None
        yield x + index * (width / count), width / count, pod, kind


def compute_marks(x: float, width: float, count: int) -> list[float]:
    """The X of each compute slice for which there is room."""
    places = [x + padding(width) + index * _STEP for index in range(count)]
    return [place for place in places if place + UNIT < x + width - 2]


def use_bars(use: Use) -> Iterator[tuple[str, int, float, str]]:
    """(class, Y, part of the width, title) of what is measured."""
    if use.util is not None:
        yield "bar", HEIGHT + GAP, min(1.0, max(0.0, use.util)), f"{top.percent(use)} busy"
    if use.memory_used is not None and use.memory_total:
        part = min(1.0, max(0.0, use.memory_used / use.memory_total))
        yield "memory", HEIGHT + BAR + 2 * GAP, part, f"{top.memory_text(use)} in use"


@dataclass(frozen=True)
class Plot:
    """From ``begin`` to ``end`` (Unix seconds), and from 0 to ``top``."""

    begin: float
    end: float
    top: float
    width: int
    height: int

    def path(self, points: Points) -> str:
        places = []
        for at, value in points:
            x = _PAD + (self.width - 2 * _PAD) * (at - self.begin) / max(self.end - self.begin, 1e-9)
            part = min(1.0, max(0.0, value / self.top if self.top else 0.0))
            places.append(f"{x:.1f},{self.height - _PAD - (self.height - 2 * _PAD) * part:.1f}")
        return " ".join(places if len(places) != 1 else places * 2)  # a line needs two

    def ground(self, points: Points) -> str:
        return self.path([(points[0][0], 0.0), *points, (points[-1][0], 0.0)])


def split_at_gaps(points: Points) -> list[Points]:
    """The points split at gaps: steps of more than three times the median step."""
    steps = sorted(after[0] - before[0] for before, after in pairwise(points))
    gaps = [
        index
        for index, (before, after) in enumerate(pairwise(points), 1)
        if after[0] - before[0] > 3 * steps[len(steps) // 2]
    ]
    return [points[begin:end] for begin, end in pairwise([0, *gaps, len(points)]) if begin < end]

"""A small picture of one value over time; its label has the same content as text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

Points = Sequence[tuple[float, float]]
_PAD = 1.5


def sparkline(
    points: Points,
    span: tuple[float, float],
    top: float,
    label: str,
    size: tuple[int, int] = (96, 20),
    beside: Points = (),
) -> str:
    """An SVG from ``span[0]`` to ``span[1]`` (Unix seconds) and from 0 to ``top``; empty without a point.

    ``beside`` is a second value, a line without a filled area. A gap of over three steps breaks the line.
    """
    if not points:
        return ""
    width, height = size
    drawn = "".join(_ground(part, span, top, size) for part in _parts(points))
    lines = "".join(
        f'<polyline class="{kind}" points="{_path(part, span, top, size)}"/>'
        for kind, values in (("beside", beside), ("line", points))
        for part in _parts(values)
    )
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label, quote=True)}"><title>{escape(label)}</title>{drawn}{lines}</svg>'
    )


def _parts(points: Points) -> list[Points]:
    """The points split at gaps: steps of more than three times the median step."""
    if len(points) < 2:
        return [points] if points else []
    steps = sorted(after[0] - before[0] for before, after in pairwise(points))
    usual = steps[len(steps) // 2]
    found: list[list[tuple[float, float]]] = [[points[0]]]
    for before, after in pairwise(points):
        if after[0] - before[0] > 3 * usual:
            found.append([])
        found[-1].append(after)
    return list(found)


def _path(points: Points, span: tuple[float, float], top: float, size: tuple[int, int]) -> str:
    (begin, end), (width, height) = span, size
    places = []
    for at, value in points:
        x = _PAD + (width - 2 * _PAD) * (at - begin) / max(end - begin, 1e-9)
        y = height - _PAD - (height - 2 * _PAD) * min(1.0, max(0.0, value / top if top else 0.0))
        places.append(f"{x:.1f},{y:.1f}")
    if len(places) == 1:  # a line needs two
        places.append(places[0])
    return " ".join(places)


def _ground(points: Points, span: tuple[float, float], top: float, size: tuple[int, int]) -> str:
    first, last = (points[0][0], 0.0), (points[-1][0], 0.0)
    return f'<polygon class="ground" points="{_path([first, *points, last], span, top, size)}"/>'

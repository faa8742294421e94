"""Nodes over time as a picture: a bar per node, and above the bars the hourly cost of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gpuform.reports import html
from gpuform.usage.rehearsal import Line

WIDTH, LEFT, RIGHT = 1100, 230, 16
PRICE_TOP, PRICE_HEIGHT = 22, 70
ROW, BAR = 18, 11
MOST_ROWS = 60


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


def timeline(lines: Sequence[Line], seconds: float) -> str:
    """An SVG of ``seconds`` seconds; a sentence if no node ever existed."""
    if not lines:
        return "<p>There were no nodes.</p>"
    last = max(seconds, *(max(line.begin, line.ready or 0.0, line.end or 0.0) for line in lines), 1.0)
    top = PRICE_TOP + PRICE_HEIGHT + 16
    return bars("nodes over time", list(rows(lines, last)), last, top, _price(lines, last))


def bars(
    label: str, found: Sequence[Row], last: float, top: int = PRICE_TOP, above: Iterable[str] = ()
) -> str:
    """An SVG of ``last`` seconds with a bar for each row, below ``top`` pixels with ``above``."""
    shown, more = found[:MOST_ROWS], len(found) - MOST_ROWS
    height = top + ROW * len(shown) + 26
    parts = [*_axis(last, top, height), *above]
    parts += [part for index, row in enumerate(shown) for part in _bar(row, top + ROW * index, last)]
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )
    return svg + (f"<p>and {more} more</p>" if more > 0 else "")


def rows(lines: Iterable[Line], last: float) -> Iterator[Row]:
    """One row per fixed pool, and one per node of the other pools."""
    fixed: dict[str, list[Line]] = {}
    for line in lines:
        if line.fixed:
            fixed.setdefault(line.pool, []).append(line)
    for pool, found in fixed.items():
        begin = min(line.begin for line in found)
        ready = max((line.ready or last) for line in found)
        text = f"{pool}: {len(found)} fixed"
        yield Row(text, begin, max(begin, ready), last, True)
    for line in lines:
        if not line.fixed:
            end = last if line.end is None else line.end
            ready = end if line.ready is None else min(line.ready, end)
            yield Row(f"{line.pool}: {line.machine}", line.begin, ready, end, False)


def across(at: float, last: float) -> float:
    """X position of a second, in pixels."""
    return LEFT + (WIDTH - LEFT - RIGHT) * at / last


def costs(lines: Iterable[Line]) -> list[tuple[float, float]]:
    """(second, USD per hour from then on) at each change; nodes without a price are left out."""
    changes: dict[float, float] = {0.0: 0.0}
    for line in lines:
        if line.usd_per_hour is None:
            continue
        changes[line.begin] = changes.get(line.begin, 0.0) + line.usd_per_hour
        if line.end is not None:
            changes[line.end] = changes.get(line.end, 0.0) - line.usd_per_hour
    found, now = [], 0.0
    for at in sorted(changes):
        now += changes[at]
        found.append((at, max(0.0, round(now, 6))))
    return found


def _axis(last: float, top: int, height: int) -> Iterator[str]:
    for second in _ticks(last):
        x = across(second, last)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{PRICE_TOP}" y2="{height - 22}"/>'
        yield f'<text x="{x:.1f}" y="{height - 7}" text-anchor="middle">{second:g} s</text>'


_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)


def _ticks(last: float) -> list[float]:
    """About ten round seconds, without late ones that would put text outside the picture."""
    step = next((step for step in _STEPS if last / step <= 10), 7200)
    return [float(second) for second in range(0, int(last) + 1, step) if across(second, last) < WIDTH - 24]


def _price(lines: Sequence[Line], last: float) -> Iterator[str]:
    found = costs(lines)
    most = max(usd for _, usd in found)
    base = PRICE_TOP + PRICE_HEIGHT
    unknown = sum(line.usd_per_hour is None for line in lines)
    note = f"{unknown} without a price" if unknown else ""
    yield f'<text class="name" x="0" y="{PRICE_TOP + 10}">USD an hour, all nodes</text>'
    if note:
        yield f'<text x="0" y="{PRICE_TOP + 26}">{escape(note)}</text>'
    if not most:
        return
    yield f'<text x="{LEFT - 6}" y="{PRICE_TOP + 4}" text-anchor="end">{most:,.2f}</text>'
    yield f'<text x="{LEFT - 6}" y="{base}" text-anchor="end">0</text>'
    points, before = [], 0.0
    for at, usd in [*found, (last, found[-1][1])]:
        x = across(at, last)
        points += [(x, base - PRICE_HEIGHT * before / most), (x, base - PRICE_HEIGHT * usd / most)]
        before = usd
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points[1:])
    yield f'<polyline class="price" points="{path}"/>'


def _bar(row: Row, y: int, last: float) -> Iterator[str]:
    begin, ready, end = (across(at, last) for at in (row.begin, row.ready, row.end))
    kind, size = "fixed" if row.fixed else "bar", f'height="{BAR}" rx="2"'
    never = "never all ready" if row.fixed else f"never {row.came}"
    came = f"{row.came} at {row.ready:.0f} s" if row.ready < row.end else never
    seconds = f"{row.begin:.0f} s to {row.end:.0f} s, {came}"
    yield f"<g><title>{escape(f'{row.text}: {seconds}')}</title>"
    yield f'<text class="name" x="0" y="{y + 10}">{escape(html.cut(row.text, LEFT - 12))}</text>'
    yield f'<rect class="wait" x="{begin:.1f}" y="{y + 1}" width="{ready - begin:.1f}" {size}/>'
    yield f'<rect class="{kind}" x="{ready:.1f}" y="{y + 1}" width="{end - ready:.1f}" {size}/></g>'

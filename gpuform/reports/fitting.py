"""Tables that fit their terminal: they drop columns before they break or shorten a name."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import SegmentLines
from rich.table import Column, Table


class FittingTable(Table):
    """Drops the columns of ``optional``, the first one first, until no word of the others has to be broken.

    If the terminal is still too narrow, columns with ``no_wrap`` are shortened, the widest first.
    """

    optional: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        padding, room = self.padding[1], options.max_width + self.padding[1]
        fields = [(column, *_limits(console, options, column)) for column in self.columns]
        for name in self.optional:
            if sum(least + padding for _, least, _ in fields) > room:
                fields = [field for field in fields if field[0].header != name]
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

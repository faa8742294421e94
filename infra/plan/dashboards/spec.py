"""Specification of a dashboard: sections of panels with their queries.

Independent of Grafana's model, which ``grafana.py`` builds. Widths and heights are Grafana's grid: 24
columns, a row of about 30 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = 24

Steps = tuple[tuple[float, str], ...]
"""Thresholds: (value, colour from this value on). Green below the first; neutral without any."""

VARIABLES = {
    "pool": "label_values(gpuform:node:info, pool)",
    "node": 'label_values(gpuform:node:info{pool=~"$pool"}, node)',
    "namespace": "label_values(gpuform:namespace:gpus_requested, namespace)",
}
"""Dashboard variables in display order, each with the query of its values."""

POOL = 'pool=~"$pool"'
NODE = 'node=~"$node"'
NAMESPACE = 'namespace=~"$namespace"'


def of_pool(series: str) -> str:
    """The series with the label pool of its node, for the chosen pools only.

    NVIDIA's series have no such label; nodes without a pool are left out.
    """
    return f"{series} * on (node) group_left (pool) gpuform:node:info{{{POOL}}}"


MOST_LINES = 50
"""Most lines of single GPUs and slices in a panel: 1000 GPUs can have 7000 slices, too many to read."""


def highest(expr: str) -> str:
    """The ``MOST_LINES`` highest series; choosing a pool or node shows others."""
    return f"topk({MOST_LINES}, {expr})"


@dataclass(frozen=True)
class Query:
    """One PromQL expression; ``legend`` names its series by their labels, as ``{{pool}}``."""

    expr: str
    legend: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Base of all panels; ``description`` is shown at the panel's corner."""

    title: str
    description: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Stat(Panel):
    """One number, with its history behind it."""

    expr: str
    unit: str
    steps: Steps = ()
    width: int = 4
    height: int = 4


@dataclass(frozen=True, kw_only=True)
class Series(Panel):
    """Values over time; ``stacked`` if their sum means something, ``most`` is the end of the axis."""

    queries: tuple[Query, ...]
    unit: str
    stacked: bool = False
    most: float | None = None
    steps: Steps = ()
    width: int = 12
    height: int = 8


@dataclass(frozen=True, kw_only=True)
class Bars(Panel):
    """Current values, one bar per series."""

    queries: tuple[Query, ...]
    unit: str
    most: float | None = None
    steps: Steps = ()
    width: int = 12
    height: int = 8


@dataclass(frozen=True)
class Column:
    """One column of a table; ``bar`` draws a ratio from 0 to 1 as a bar in the cell."""

    header: str
    expr: str
    unit: str
    steps: Steps = ()
    bar: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Current values as rows: every column's series has exactly the labels ``keys``.

    ``keys`` maps a label to its heading; ``links`` a label to the title and URL of its cells' link. Rows are
    sorted by the heading ``sort``, largest first.
    """

    keys: dict[str, str]
    columns: tuple[Column, ...]
    links: dict[str, tuple[str, str]]
    sort: str
    width: int = COLUMNS
    height: int = 8


@dataclass(frozen=True, kw_only=True)
class Text(Panel):
    """Markdown."""

    content: str
    width: int = COLUMNS
    height: int = 3


@dataclass(frozen=True, kw_only=True)
class Alerts(Panel):
    """Grafana's alert list: pending and firing alerts, by the beginning of their names."""

    prefix: str
    height: int = 10


@dataclass(frozen=True)
class Section:
    """Panels under one heading, from left to right; a panel that does not fit starts a new line."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Board:
    """One dashboard. Its uid is ``gpuform-<name>``, so that its URL stays the same."""

    name: str
    title: str
    description: str
    sections: tuple[Section, ...]
    hours: int = 6
    """Default time range, in hours."""

    @property
    def uid(self) -> str:
        return f"gpuform-{self.name}"


def to(board: str, variable: str) -> str:
    """URL of another board, filtered by the value of the clicked cell, with the same time range."""
    return f"/d/gpuform-{board}?var-{variable}=${{__value.raw}}&${{__url_time_range}}"

"""What a dashboard says, before it is Grafana's JSON: sections of panels, each a question with its queries.

Nothing here knows Grafana's model; ``grafana.py`` does. Widths and heights are Grafana's grid: 24 columns, a
row of about 30 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = 24

Steps = tuple[tuple[float, str], ...]
"""From which value on which colour; below the first it is green, and without any it is neither."""

VARIABLES = {
    "pool": "label_values(gpuform:node:info, pool)",
    "node": 'label_values(gpuform:node:info{pool=~"$pool"}, node)',
    "namespace": "label_values(gpuform:namespace:gpus_requested, namespace)",
}
"""The variables by which panels choose, in the order of their boxes, and where their values come from."""

POOL = 'pool=~"$pool"'
NODE = 'node=~"$node"'
NAMESPACE = 'namespace=~"$namespace"'


def of_pool(series: str) -> str:
    """A series of nodes that knows no pools, with the pool of its node, for the chosen pools only.

    Every NVIDIA series is like that; a node that is in no pool is left out.
    """
    return f"{series} * on (node) group_left (pool) gpuform:node:info{{{POOL}}}"


MOST_LINES = 50
"""Of single GPUs and slices in one panel: a thousand cut cards have seven thousand, which nobody reads."""


def highest(expr: str) -> str:
    """The highest of the series, as many as a panel shows; choosing a pool or node shows others."""
    return f"topk({MOST_LINES}, {expr})"


@dataclass(frozen=True)
class Query:
    """One PromQL expression; ``legend`` names its series by their labels, as ``{{pool}}``."""

    expr: str
    legend: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What all panels have; ``description`` is what one reads at the panel's corner."""

    title: str
    description: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Stat(Panel):
    """One number, with its course behind it."""

    expr: str
    unit: str
    steps: Steps = ()
    width: int = 4
    height: int = 4


@dataclass(frozen=True, kw_only=True)
class Series(Panel):
    """Values over time; ``stacked`` where their sum means something, ``most`` where the axis has an end."""

    queries: tuple[Query, ...]
    unit: str
    stacked: bool = False
    most: float | None = None
    steps: Steps = ()
    width: int = 12
    height: int = 8


@dataclass(frozen=True, kw_only=True)
class Bars(Panel):
    """Values of now, one bar for each series."""

    queries: tuple[Query, ...]
    unit: str
    most: float | None = None
    steps: Steps = ()
    width: int = 12
    height: int = 8


@dataclass(frozen=True)
class Column:
    """One number of each row of a table; ``bar`` draws a share of one as a bar in its cell."""

    header: str
    expr: str
    unit: str
    steps: Steps = ()
    bar: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Panel):
    """Rows of now: ``keys`` are the labels that every column's series have, and no others.

    ``keys`` maps a label to its heading; ``links`` a label to the address that its cells lead to. ``sort`` is
    the heading by which rows are sorted, largest first.
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
    """Grafana's own list of alerts that wait or fire, by the beginning of their names."""

    prefix: str
    height: int = 10


@dataclass(frozen=True)
class Section:
    """Panels under one heading, set from left to right; one that does not fit begins a new line."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Board:
    """One dashboard. Its uid is ``gpuform-<name>``: addresses of it stay what they are."""

    name: str
    title: str
    description: str
    sections: tuple[Section, ...]
    hours: int = 6
    """How far back it begins."""

    @property
    def uid(self) -> str:
        """The identity that Grafana and other boards' links know it by."""
        return f"gpuform-{self.name}"


def to(board: str, variable: str) -> str:
    """The address of another board, for the value of the cell that was clicked, over the same time."""
    return f"/d/gpuform-{board}?var-{variable}=${{__value.raw}}&${{__url_time_range}}"

"""The HTML pages: one file each, no scripts, no requests, light or dark as the reader's system."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpuform.reports import picture, tables, timeline, top
from gpuform.reports.tables import number, usd
from gpuform.usage.rehearsal import Cell
from gpuform.usage.top.view import PodUse

COLOURS = 8
"""Classes w0 to w7 of the style."""
TEMPLATES = Path(__file__).with_name("templates")
Colours = dict[tuple[str, str], int]
"""Number of the style's class for each workload, by namespace and name; in order of appearance."""


def colours(pods: Iterable[Cell | PodUse]) -> Colours:
    found: Colours = {}
    for pod in pods:
        found.setdefault((pod.namespace, pod.workload), len(found) % COLOURS)
    return found


def _colour(known: Colours, pod: Cell | PodUse) -> str:
    return f"w{known.get((pod.namespace, pod.workload), 0)}"


PAGES = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.globals |= {"picture": picture, "tables": tables, "timeline": timeline, "top": top}
PAGES.globals |= {"number": number, "usd": usd}
PAGES.filters |= {"px": "{:.1f}".format, "colour": _colour}


def page(template: str, title: str, **values: Any) -> str:
    return PAGES.get_template(template).render(title=title, **values)

"""Boards as Grafana's dashboard model, built with Grafana's SDK.

Only this module and ``panels`` load the SDK (40 ms). The same board gives the same JSON: ids are fixed (a
panel's id is 100 times its section's number plus its position in it), and no time is written.
"""

from __future__ import annotations

import json
import re
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from infra.plan.dashboards.panels import SOURCE, builder
from infra.plan.dashboards.spec import COLUMNS, VARIABLES, Board, Section

TAG = "gpuform"
# As Grafana's variable editor writes them.
_LABEL_VALUES, _OF_EDITOR = 1, "PrometheusVariableQueryEditor-VariableQuery"
_OF_VARIABLE = "Filters the panels of this dashboard; all if nothing is selected."


def model(board: Board) -> dict[str, Any]:
    """The dashboard as Grafana reads it from a file."""
    found = (
        builders.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG, "gpu"])
        .readonly()
        .timezone("browser")
        .time(f"now-{board.hours}h", "now")
        .refresh("1m")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_to_the_others())
        .annotations([])
        .with_variable(_source())
    )
    for name in used(board):
        found = found.with_variable(_variable(name))
    top = 0
    for number, section in enumerate(board.sections, start=1):
        row = models.GridPos(x=0, y=top, w=COLUMNS, h=1)
        found = found.with_row(builders.Row(section.title).id(number * 100).grid_pos(row))
        places, top = _places(section, top + 1)
        for index, (panel, place) in enumerate(zip(section.panels, places, strict=True), start=1):
            found = found.with_panel(builder(panel).id(number * 100 + index).grid_pos(place))
    # The builders return objects that only the SDK's encoder knows; a manifest needs plain values.
    made: dict[str, Any] = json.loads(json.dumps(found.build(), cls=JSONEncoder, sort_keys=True))
    return made


def used(board: Board) -> list[str]:
    """Variables that the board's panels use, and those that these depend on."""
    text = repr(board.sections)
    found: set[str] = set()
    while found != (found := found | {name for name in VARIABLES if re.search(rf"\$({name})\b", text)}):
        text += "".join(VARIABLES[name] for name in found)
    return [name for name in VARIABLES if name in found]


def _places(section: Section, top: int) -> tuple[list[models.GridPos], int]:
    """Position of each panel, and the next free row. A line is as high as its tallest panel."""
    places: list[models.GridPos] = []
    left = tallest = 0
    for panel in section.panels:
        if left + panel.width > COLUMNS:
            left, top, tallest = 0, top + tallest, 0
        places.append(models.GridPos(x=left, y=top, w=panel.width, h=panel.height))
        left, tallest = left + panel.width, max(tallest, panel.height)
    return places, top + tallest


def _source() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _variable(name: str) -> builders.QueryVariable:
    """A variable with "All" first, which matches any value, so that queries stay short."""
    every = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .description(_OF_VARIABLE)
        .datasource(SOURCE)
        .query({"qryType": _LABEL_VALUES, "query": VARIABLES[name], "refId": _OF_EDITOR})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(every)
    )


def _to_the_others() -> builders.DashboardLink:
    return (
        builders.DashboardLink("GPU dashboards")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )

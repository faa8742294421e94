"""Boards as Grafana's dashboard model, by Grafana's own builders. The one module that loads them (40 ms).

The same board gives the same JSON: identities are fixed, a panel's id is a hundred times its section's number
and its place in it, and nothing tells the time.
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
# As Grafana's editor of variables writes them.
_LABEL_VALUES, _OF_EDITOR = 1, "PrometheusVariableQueryEditor-VariableQuery"
_OF_VARIABLE = "What the panels of this dashboard are of; all if nothing is chosen."


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
    # Its builders give objects; only its encoder knows them, and a plain value is what a manifest holds.
    made: dict[str, Any] = json.loads(json.dumps(found.build(), cls=JSONEncoder, sort_keys=True))
    return made


def used(board: Board) -> list[str]:
    """The variables that a panel of the board chooses by, and those that their values hang on."""
    text = repr(board.sections)
    found: set[str] = set()
    while found != (found := found | {name for name in VARIABLES if re.search(rf"\$({name})\b", text)}):
        text += "".join(VARIABLES[name] for name in found)
    return [name for name in VARIABLES if name in found]


def _places(section: Section, top: int) -> tuple[list[models.GridPos], int]:
    """Where each panel stands, and the line under them all. Lines are as high as their highest panel."""
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
    """A variable with "all" as its first choice, which is any value, so that queries stay short."""
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
    """A box at the top with every dashboard of ours, which keeps what was chosen and the time."""
    return (
        builders.DashboardLink("GPU dashboards")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )

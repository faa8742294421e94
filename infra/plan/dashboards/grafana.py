"""Boards as Grafana's dashboard model, built with Grafana's SDK.

Only this module and ``panels`` load the SDK (40 ms). The same board gives the same JSON: ids are fixed (a
panel's id is 100 times its row's number plus its position in it), and no time is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from infra.plan.dashboards.panels import COLUMNS, SOURCE, Panel, builder, size

TAG = "gpuform"
# As Grafana's variable editor writes them.
_LABEL_VALUES, _OF_EDITOR = 1, "PrometheusVariableQueryEditor-VariableQuery"
VARIABLES = {
    "pool": "label_values(gpuform:node:info, pool)",
    "node": 'label_values(gpuform:node:info{pool=~"$pool"}, node)',
    "namespace": "label_values(gpuform:namespace:gpus_requested, namespace)",
}
"""Dashboard variables in display order, each with the query of its values."""
_OF_VARIABLE = "Filters the panels of this dashboard; all if nothing is selected."


def model(board: Mapping[str, Any]) -> dict[str, Any]:
    """The dashboard as Grafana reads it from a file; rows without panels are left out."""
    rows = {title: panels for title, panels in board["rows"].items() if panels}
    found = (
        builders.Dashboard(board["title"])
        .uid(f"gpuform-{board['name']}")
        .description(board["help"])
        .tags([TAG, "gpu"])
        .readonly()
        .timezone("browser")
        .time(f"now-{board.get('hours', 6)}h", "now")
        .refresh("1m")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_to_the_others())
        .annotations([])
        .with_variable(_source())
    )
    for name in used(repr(rows)):
        found = found.with_variable(_variable(name))
    top = 0
    for number, (title, panels) in enumerate(rows.items(), start=1):
        row = models.GridPos(x=0, y=top, w=COLUMNS, h=1)
        found = found.with_row(builders.Row(title).id(number * 100).grid_pos(row))
        places, top = _places(panels, top + 1)
        for index, (panel, place) in enumerate(zip(panels, places, strict=True), start=1):
            found = found.with_panel(builder(panel).id(number * 100 + index).grid_pos(place))
    # The builders return objects that only the SDK's encoder knows; a manifest needs plain values.
    made: dict[str, Any] = json.loads(json.dumps(found.build(), cls=JSONEncoder, sort_keys=True))
    return made


def used(text: str) -> list[str]:
    """Variables that panels use, and those that these depend on."""
    found: set[str] = set()
    while found != (found := found | {name for name in VARIABLES if re.search(rf"\$({name})\b", text)}):
        text += "".join(VARIABLES[name] for name in found)
    return [name for name in VARIABLES if name in found]


def _places(panels: Sequence[Panel], top: int) -> tuple[list[models.GridPos], int]:
    """Position of each panel, and the next free line. A line is as high as its tallest panel."""
    places: list[models.GridPos] = []
    left = tallest = 0
    for width, height in map(size, panels):
        if left + width > COLUMNS:
            left, top, tallest = 0, top + tallest, 0
        places.append(models.GridPos(x=left, y=top, w=width, h=height))
        left, tallest = left + width, max(tallest, height)
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

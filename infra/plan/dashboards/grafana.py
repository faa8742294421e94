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

from infra.plan.dashboards.panels import COLUMNS, SOURCE, Panel, panel_builder, panel_size

TAG = "gpuform"
# As Grafana's variable editor writes them.
_LABEL_VALUES, _EDITOR_REF = 1, "PrometheusVariableQueryEditor-VariableQuery"
VARIABLES = {
    "pool": "label_values(gpuform:node:info, pool)",
    "node": 'label_values(gpuform:node:info{pool=~"$pool"}, node)',
    "namespace": "label_values(gpuform:namespace:gpus_requested, namespace)",
}
"""Dashboard variables in display order, each with the query of its values."""
_VARIABLE_HELP = "Filters the panels of this dashboard; all if nothing is selected."


def model(board: Mapping[str, Any]) -> dict[str, Any]:
    """The dashboard as Grafana reads it from a file; rows without panels are left out."""
    rows = {title: panels for title, panels in board["rows"].items() if panels}
    dashboard = (
        builders.Dashboard(board["title"])
        .uid(f"gpuform-{board['name']}")
        .description(board["help"])
        .tags([TAG, "gpu"])
        .readonly()
        .timezone("browser")
        .time(f"now-{board.get('hours', 6)}h", "now")
        .refresh("1m")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_dashboards_link())
        .annotations([])
        .with_variable(_source())
    )
    for name in used_variables(repr(rows)):
        dashboard = dashboard.with_variable(_variable(name))
    top = 0
    for number, (title, panels) in enumerate(rows.items(), start=1):
        row = models.GridPos(x=0, y=top, w=COLUMNS, h=1)
        dashboard = dashboard.with_row(builders.Row(title).id(number * 100).grid_pos(row))
        places, top = _grid_positions(panels, top + 1)
        for index, (panel, place) in enumerate(zip(panels, places, strict=True), start=1):
            dashboard = dashboard.with_panel(panel_builder(panel).id(number * 100 + index).grid_pos(place))
    # The builders return objects that only the SDK's encoder knows; a manifest needs plain values.
    plain: dict[str, Any] = json.loads(json.dumps(dashboard.build(), cls=JSONEncoder, sort_keys=True))
    return plain


def used_variables(text: str) -> list[str]:
    """Variables that panels use, and those that these depend on."""
    names: set[str] = set()
    while names != (names := names | {name for name in VARIABLES if re.search(rf"\$({name})\b", text)}):
        text += "".join(VARIABLES[name] for name in names)
    return [name for name in VARIABLES if name in names]


def _grid_positions(panels: Sequence[Panel], y: int) -> tuple[list[models.GridPos], int]:
    """Position of each panel, and the next free line. A line is as high as its tallest panel."""
    positions: list[models.GridPos] = []
    x = line_height = 0
    for width, height in map(panel_size, panels):
        if x + width > COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        positions.append(models.GridPos(x=x, y=y, w=width, h=height))
        x, line_height = x + width, max(line_height, height)
    return positions, y + line_height


def _source() -> builders.DatasourceVariable:
    return builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _variable(name: str) -> builders.QueryVariable:
    """A variable with "All" first, which matches any value, so that queries stay short."""
    all_option = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .description(_VARIABLE_HELP)
        .datasource(SOURCE)
        .query({"qryType": _LABEL_VALUES, "query": VARIABLES[name], "refId": _EDITOR_REF})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(all_option)
    )


def _dashboards_link() -> builders.DashboardLink:
    return (
        builders.DashboardLink("GPU dashboards")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )

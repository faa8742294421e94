"""Grafana's builder for each kind of panel; the look of all dashboards is defined here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

Panel = Mapping[str, Any]
Steps = Mapping[float, str]
"""Thresholds: the colour from each value on. Green below the first; neutral without any."""

COLUMNS = 24
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_NO_VALUE = "-"
_NEUTRAL = "blue"
"""Colour of values that are neither good nor bad."""
_BAR = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}


def panel_builder(panel: Panel) -> Any:
    """Builder of a panel, without id and position; KeyError for an unknown kind of panel."""
    kind = _kind(panel)
    view = _KINDS[kind][0](panel).title(panel[kind]).description(panel.get("help", ""))
    return view if kind in ("text", "alerts") else view.datasource(SOURCE)


def panel_size(panel: Panel) -> tuple[int, int]:
    """Width and height."""
    _, width, height = _KINDS[_kind(panel)]
    return panel.get("width", width), panel.get("height", height)


def _kind(panel: Panel) -> str:
    return next(key for key in panel if key in _KINDS)


def _stat(panel: Panel) -> stat.Panel:
    """One number, with its history behind it."""
    return (
        stat.Panel()
        .with_target(_query(0, panel["expr"]).range())
        .unit(panel.get("unit", "short"))
        .no_value(_NO_VALUE)
        .thresholds(_thresholds(panel.get("steps", {})))
        .color_mode(looks.BigValueColorMode.VALUE)
        .graph_mode(looks.BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _series(panel: Panel) -> timeseries.Panel:
    """Values over time; ``stacked`` if their sum means something, ``most`` is the end of the axis."""
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(looks.LegendDisplayMode.TABLE)
        .placement(looks.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    tooltip = common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI)
    stacked = panel.get("stacked", False)
    view = (
        timeseries.Panel()
        .targets([query.range() for query in _queries(panel)])
        .unit(panel.get("unit", "short"))
        .min(0)
        .legend(legend)
        .tooltip(tooltip.sort(looks.SortOrder.DESCENDING))
        .show_points(looks.VisibilityMode.NEVER)
        .fill_opacity(40 if stacked else 8)
    )
    if stacked:
        view = view.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if "most" in panel:
        view = view.max(panel["most"])
    if "steps" in panel:
        style = common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
        view = view.thresholds(_thresholds(panel["steps"])).thresholds_style(style)
    return view


def _bars(panel: Panel) -> bargauge.Panel:
    """Current values, one bar per series."""
    return (
        bargauge.Panel()
        .targets([query.instant() for query in _queries(panel)])
        .unit(panel.get("unit", "short"))
        .min(0)
        .max(panel["most"])
        .no_value(_NO_VALUE)
        .thresholds(_thresholds(panel["steps"]))
        .orientation(looks.VizOrientation.HORIZONTAL)
        .display_mode(looks.BarGaugeDisplayMode.BASIC)
        .value_mode(looks.BarGaugeValueMode.TEXT)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _table(panel: Panel) -> table.Panel:
    """Current values as rows: every column's series has exactly the labels ``keys`` (label: heading).

    Each column is a frame; frames are merged by their common labels and named by their headings. ``links`` of
    a label: title and name of the dashboard that its cells lead to. Rows are sorted by the heading ``sort``.
    """
    columns, keys = panel["columns"], panel["keys"]
    names = {f"Value #{_ref(index)}": header for index, header in enumerate(columns)}
    renamed = {"Value": next(iter(columns))} if len(columns) == 1 else names
    order = {name: index for index, name in enumerate([*keys, *renamed])}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": {**keys, **renamed}}
    view = (
        table.Panel()
        .targets(
            [
                _query(index, _expr(column)).instant().format(PromQueryFormat.TABLE)
                for index, column in enumerate(columns.values())
            ]
        )
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))
        .no_value(_NO_VALUE)
        .filterable(True)
        .cell_height(looks.TableCellHeight.SM)
        .sort_by([common.TableSortByFieldState().display_name(panel["sort"]).desc(True)])
    )
    for header, column in columns.items():
        view = view.override_by_name(header, _cells({} if isinstance(column, str) else column))
    for label, link in panel.get("links", {}).items():
        view = view.override_by_name(keys[label], [_property("links", [_link(label, link)])])
    return view


def _cells(column: Panel) -> list[models.DynamicConfigValue]:
    """The look of a column; ``bar`` draws a ratio from 0 to 1 as a bar in the cell."""
    steps, bar = column.get("steps", {}), "bar" in column
    properties = [_property("unit", column.get("unit", "short"))]
    if steps or bar:
        properties.append(_property("thresholds", _thresholds(steps).build()))
    if bar:
        properties += [_property("min", 0), _property("max", 1), _property("custom.cellOptions", _BAR)]
    elif steps:
        properties.append(_property("custom.cellOptions", {"type": "color-text"}))
    return properties


def _link(label: str, link: Any) -> dict[str, str]:
    """To another dashboard, filtered by the clicked cell, with the same time range; or a link as it is."""
    if isinstance(link, dict):
        return link
    title, board = link
    return {"title": title, "url": f"/d/gpuform-{board}?var-{label}=${{__value.raw}}&${{__url_time_range}}"}


def _text(panel: Panel) -> text.Panel:
    """Markdown."""
    return text.Panel().mode(TextMode.MARKDOWN).content(panel["content"])


def _alerts(panel: Panel) -> builders.Panel:
    """Grafana's alert list: pending and firing alerts, by the beginning of their names.

    It has no builder in the SDK; its options are those of Grafana 11's own panel.
    """
    options = {
        "alertName": panel["prefix"],
        "alertInstanceLabelFilter": "",
        "dashboardAlerts": False,
        "groupBy": [],
        "groupMode": "default",
        "maxItems": 50,
        "sortOrder": 3,  # by importance
        "stateFilter": {"error": True, "firing": True, "noData": False, "normal": False, "pending": True},
        "viewMode": "list",
    }
    return builders.Panel().type("alertlist").options(options)


_KINDS: Mapping[str, tuple[Callable[[Panel], Any], int, int]] = {
    "stat": (_stat, 4, 4),
    "series": (_series, 12, 8),
    "bars": (_bars, 12, 8),
    "table": (_table, COLUMNS, 8),
    "text": (_text, COLUMNS, 3),
    "alerts": (_alerts, 8, 10),
}
"""Builder, width and height of each kind of panel."""


def _queries(panel: Panel) -> Iterable[prometheus.Dataquery]:
    """``queries`` has a query for each legend, which names its series by their labels, as ``{{pool}}``."""
    for index, (legend, query) in enumerate(panel["queries"].items()):
        yield _query(index, _expr(query)).legend_format(legend)


def _query(index: int, expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(SOURCE).expr(expr).ref_id(_ref(index))


def _expr(query: Any) -> str:
    """``expr: X`` may be written as X."""
    expression: str = query if isinstance(query, str) else query["expr"]
    return expression


def _ref(index: int) -> str:
    return chr(ord("A") + index)


def _thresholds(steps: Steps) -> builders.ThresholdsConfig:
    thresholds = [models.Threshold(value=None, color="green" if steps else _NEUTRAL)]
    thresholds += [models.Threshold(value=value, color=color) for value, color in steps.items()]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(thresholds)


def _property(name: str, value: object) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val=name, value=value)

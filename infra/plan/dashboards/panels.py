"""Grafana's builder for each kind of panel; the look of all dashboards is defined here."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from infra.plan.dashboards.spec import Alerts, Bars, Column, Panel, Query, Series, Stat, Steps, Table, Text

AnyBuilder = TypeVar("AnyBuilder")
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_NO_VALUE = "-"
_NEUTRAL = "blue"
"""Colour of values that are neither good nor bad."""


@singledispatch
def builder(panel: Panel) -> Any:
    """Builder of a panel, without id and position; TypeError for an unknown kind of panel."""
    raise TypeError(f"no Grafana panel for {type(panel).__name__}")


@builder.register
def _stat(panel: Stat) -> stat.Panel:
    return (
        _said(stat.Panel(), panel)
        .with_target(_query(0, Query(panel.expr, "")).range())
        .unit(panel.unit)
        .no_value(_NO_VALUE)
        .thresholds(_thresholds(panel.steps))
        .color_mode(looks.BigValueColorMode.VALUE)
        .graph_mode(looks.BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


@builder.register
def _series(panel: Series) -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(looks.LegendDisplayMode.TABLE)
        .placement(looks.LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )
    tooltip = common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI)
    found = (
        _said(timeseries.Panel(), panel)
        .targets([_query(index, query).range() for index, query in enumerate(panel.queries)])
        .unit(panel.unit)
        .min(0)
        .legend(legend)
        .tooltip(tooltip.sort(looks.SortOrder.DESCENDING))
        .show_points(looks.VisibilityMode.NEVER)
        .fill_opacity(40 if panel.stacked else 8)
    )
    if panel.stacked:
        found = found.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if panel.most is not None:
        found = found.max(panel.most)
    if panel.steps:
        style = common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
        found = found.thresholds(_thresholds(panel.steps)).thresholds_style(style)
    return found


@builder.register
def _bars(panel: Bars) -> bargauge.Panel:
    found = (
        _said(bargauge.Panel(), panel)
        .targets([_query(index, query).instant() for index, query in enumerate(panel.queries)])
        .unit(panel.unit)
        .min(0)
        .no_value(_NO_VALUE)
        .thresholds(_thresholds(panel.steps))
        .orientation(looks.VizOrientation.HORIZONTAL)
        .display_mode(looks.BarGaugeDisplayMode.BASIC)
        .value_mode(looks.BarGaugeValueMode.TEXT)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    return found if panel.most is None else found.max(panel.most)


@builder.register
def _table(panel: Table) -> table.Panel:
    """Each column is a frame; frames are merged by their common labels and named by their headings."""
    alone = len(panel.columns) == 1
    names = {f"Value #{_ref(index)}": column.header for index, column in enumerate(panel.columns)}
    renamed = {"Value": panel.columns[0].header} if alone else names
    order = {name: index for index, name in enumerate([*panel.keys, *renamed])}
    found = (
        _said(table.Panel(), panel)
        .targets(
            [
                _query(index, Query(column.expr, "")).instant().format(PromQueryFormat.TABLE)
                for index, column in enumerate(panel.columns)
            ]
        )
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True},
                    "indexByName": order,
                    "renameByName": {**panel.keys, **renamed},
                },
            )
        )
        .no_value(_NO_VALUE)
        .filterable(True)
        .cell_height(looks.TableCellHeight.SM)
        .sort_by([common.TableSortByFieldState().display_name(panel.sort).desc(True)])
    )
    for column in panel.columns:
        found = found.override_by_name(column.header, _of_column(column))
    for label, (title, url) in panel.links.items():
        link = {"title": title, "url": url}
        found = found.override_by_name(panel.keys[label], [_value("links", [link])])
    return found


@builder.register
def _text(panel: Text) -> text.Panel:
    return _said(text.Panel(), panel).mode(TextMode.MARKDOWN).content(panel.content)


@builder.register
def _alerts(panel: Alerts) -> builders.Panel:
    """Grafana's alert list has no builder in the SDK; its options are those of Grafana 11's own panel."""
    options = {
        "alertName": panel.prefix,
        "alertInstanceLabelFilter": "",
        "dashboardAlerts": False,
        "groupBy": [],
        "groupMode": "default",
        "maxItems": 50,
        "sortOrder": 3,  # by importance
        "stateFilter": {"error": True, "firing": True, "noData": False, "normal": False, "pending": True},
        "viewMode": "list",
    }
    return _said(builders.Panel().type("alertlist"), panel).options(options)


def _said(found: AnyBuilder, panel: Panel) -> AnyBuilder:
    """Set what every panel has; the SDK's builders share these methods, but no base class."""
    some: Any = found
    some.title(panel.title).description(panel.description)
    if not isinstance(panel, Text | Alerts):
        some.datasource(SOURCE)
    return found


def _query(index: int, query: Query) -> prometheus.Dataquery:
    found = prometheus.Dataquery().datasource(SOURCE).expr(query.expr).ref_id(_ref(index))
    return found.legend_format(query.legend) if query.legend else found


def _ref(index: int) -> str:
    return chr(ord("A") + index)


def _thresholds(steps: Steps) -> builders.ThresholdsConfig:
    found = [models.Threshold(value=None, color="green" if steps else _NEUTRAL)]
    found += [models.Threshold(value=value, color=color) for value, color in steps]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(found)


def _of_column(column: Column) -> list[models.DynamicConfigValue]:
    found = [_value("unit", column.unit)]
    if column.steps or column.bar:
        found.append(_value("thresholds", _thresholds(column.steps).build()))
    if column.bar:
        found += [_value("min", 0), _value("max", 1), _value("custom.cellOptions", _BAR)]
    elif column.steps:
        found.append(_value("custom.cellOptions", {"type": "color-text"}))
    return found


_BAR = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}


def _value(what: str, value: object) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val=what, value=value)

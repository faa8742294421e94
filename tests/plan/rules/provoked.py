"""What triggers each alert (``troubles.yaml``): other series than the healthy cluster's from minute 10 to 45.

Rows of one part are triggered together, each on its own GPU, node or pod, because a run of promtool
takes a second. At every checked time the set of firing alerts is compared as a whole: so each row fires
after its ``for``, with its own labels, ends, and triggers no other alert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.plan.rules import world
from tests.plan.rules.promtool import Case, Series, selector

Labels = dict[str, Any]

BEGIN = 10
_SLACK = 1
"""Minutes until both a rule and an alert that reads it have been evaluated."""


def fired(alert: str, severity: str, **labels: Any) -> Labels:
    return {"alertname": alert, "severity": severity, **world.with_uuid(labels)}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One triggered alert: series that are added or replace healthy ones.

    ``wait`` is the expected ``for`` in minutes. ``labels``: one entry for each alert that fires.
    """

    alert: str
    severity: str
    series: Series
    labels: Sequence[Labels]
    wait: int = 0


def provoke(base: Series, rows: Sequence[Row], times: Sequence[int], ended: int) -> Case:
    """All rows at once: none fires before, at each time those past their wait, none at ``ended``."""
    series: dict[str, str] = dict(base)
    for row in rows:
        assert not {name for name in row.series if series.get(name, base.get(name)) != base.get(name)}, row
        series |= row.series
    fires: dict[float, list[Labels]] = {BEGIN - 1: [], ended: []}
    for time in times:
        waited = [row for row in rows if BEGIN + row.wait + _SLACK <= time]
        fires[time] = [fired(row.alert, row.severity, **labels) for row in waited for labels in row.labels]
    return Case(series, fires)


def during(value: str, healthy: str = "0") -> str:
    """A value from minute 10 to 45, and the healthy one before and after."""
    return f"{healthy}x{BEGIN - 1} {value}x35 {healthy}x300"


def only_during(value: str = "1") -> str:
    """A series that exists only from minute 10 to 45."""
    return f"_x{BEGIN} {value}x35 stale"


def not_during(value: str) -> str:
    """A healthy series that is absent from minute 10 to 45."""
    return value.replace("x300", f"x{BEGIN - 1} stale _x35 {value.split('x')[0].split('+')[0]}x300")


def of_node(of: world.Node, **more: Any) -> Labels:
    return {"node": of.name, "pool": of.pool, **more}


def xid_count(node: world.Node, number: int, values: str) -> dict[str, str]:
    return gpu_series(node, "DCGM_EXP_XID_ERRORS_COUNT", values, xid=number, window_size_in_ms=300000)


def gpu_series(node: world.Node, field: str, values: str, index: int = 0, **more: Any) -> dict[str, str]:
    return {selector(field, **node.gpu(index), **more): values}


def waiting(name: str, resource: str, amount: int = 1) -> dict[str, str]:
    """A pod that is unschedulable from minute 10 to 45."""
    return {
        series: only_during(value.split("x")[0])
        for series, value in world.pod(name, None, {resource: amount}, "team", "Pending").items()
    }


def _relabelled(name: str, label: str, value: str) -> dict[str, str]:
    """Another value of a node label, from minute 10 to 45."""
    of, states = _NODES[name], {f"label_nvidia_com_{label}": value}
    return {world.labelled(of): not_during("1x300"), world.labelled(of, **states): only_during()}


_NODES = {node.name: node for node in world.NODES}
_FILE = yaml.safe_load(Path(__file__).with_name("troubles.yaml").read_text(encoding="utf-8"))


def rows(part: str) -> list[Row]:
    """The rows of a part of ``troubles.yaml``."""
    return [_row(**item) for item in _FILE[part]]


def _row(
    series: Mapping[str, str] | None = None,
    pod: tuple[str, str, int] | None = None,
    relabelled: tuple[str, str, str] | None = None,
    **own: Any,
) -> Row:
    found: dict[str, str] = {}
    for name, values in (series or {}).items():
        field, place, *more = name.split(" ") if "{" not in name else [name, ""]
        node, _, index = place.partition("/")
        pairs = dict(pair.split("=") for pair in more)
        found |= gpu_series(_NODES[node], field, values, int(index), **pairs) if place else {field: values}
    found |= waiting(*pod) if pod else {}
    found |= _relabelled(*relabelled) if relabelled else {}
    return Row(series=found, **own)

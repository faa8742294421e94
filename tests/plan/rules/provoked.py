"""What provokes each alert: series that differ from the healthy cluster's from minute 10 to minute 45.

Rows of one table are provoked together, each on a GPU, a node or a pod of its own, for a run of promtool
costs a second. At every time that is looked at, what fires is compared as a whole: so each row fires when its
``for`` has passed, on its own labels, ends, and makes nothing else fire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.plan.rules import world
from tests.plan.rules.promtool import At, Case, Series

Labels = dict[str, Any]

BEGIN = 10
_SLACK = 1
"""Minutes until a rule and an alert that reads it have both been evaluated."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One alert, provoked: series that come, or take the place of healthy ones (None: that are not there).

    ``wait`` in minutes, as the alert's ``for`` is meant to be. ``labels`` are of each alert that fires.
    """

    alert: str
    severity: str
    series: Mapping[str, str | None]
    labels: Sequence[Labels]
    wait: int = 0

    def fired(self) -> list[Labels]:
        """The alerts, as they fire."""
        return [{"alertname": self.alert, "severity": self.severity, **one} for one in self.labels]


def together(base: Series, rows: Sequence[Row], times: Sequence[int], ended: int) -> Case:
    """All rows at once: nothing before, at each time those that have waited, and nothing at ``ended``."""
    series: dict[str, str | None] = dict(base)
    for row in rows:
        assert not {name for name in row.series if series.get(name, base.get(name)) != base.get(name)}, row
        series |= row.series
    then = [At(f"{BEGIN - 1}m", fires=[]), At(f"{ended}m", fires=[])]
    for time in times:
        waited = [row for row in rows if BEGIN + row.wait + _SLACK <= time]
        then.append(At(f"{time}m", fires=[one for row in waited for one in row.fired()]))
    return Case({name: values for name, values in series.items() if values is not None}, then)


def during(value: str, healthy: str = "0") -> str:
    """A value from minute 10 to 45, and the healthy one before and after."""
    return f"{healthy}x{BEGIN - 1} {value}x35 {healthy}x300"


def only_during(value: str = "1") -> str:
    """A series that is there from minute 10 to 45."""
    return f"_x{BEGIN} {value}x35 stale"


def not_during(value: str) -> str:
    """A healthy series that is away from minute 10 to 45."""
    return value.replace("x300", f"x{BEGIN - 1} stale _x35 {value.split('x')[0].split('+')[0]}x300")


def growing(each_minute: int) -> str:
    """A counter that grows from minute 10 to 45, and then begins anew."""
    return f"0x{BEGIN - 1} 0+{each_minute}x35 0x300"


def gpu(node: world.Node, index: int = 0, **more: Any) -> Labels:
    """A GPU's labels as alerts have them."""
    return {"node": node.name, "pool": node.pool, "gpu": index, "UUID": f"GPU-{node.name}-{index}", **more}


def fault(node: world.Node, kind: str, reason: str, index: int = 0, **more: Any) -> Labels:
    """Labels of a fault of one GPU."""
    return gpu(node, index, **{"class": kind, "reason": reason, **more})

"""History of the last hour for pools and GPUs, in about sixty steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from gpuform.checkout.errors import Failure
from gpuform.usage.prometheus import Prometheus, Series
from gpuform.usage.top.view import Node, View
from infra.plan.rules.promql import POOL_REQUESTED, POOL_USED, UTILISATION

HOUR_S = 3600.0
STEPS = 60
_FEW = 12
"""With fewer points, Prometheus is young, and its short history is queried again at a finer step."""
MOST_NODES = 60
"""Nodes of a pool with GPU history: as many as the report draws."""
LEAST_S = 60.0
"""Each point is a mean over its step, and at least over this: rules are evaluated only so often."""

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class History:
    """Values over time; ``since`` is the time of the first, in Unix seconds.

    ``pools`` by pool and series, in GPUs; ``gpus`` by node and index, 0 to 1.
    """

    since: float = 0.0
    until: float = 0.0
    pools: Mapping[tuple[str, str], Points] = field(default_factory=dict)
    gpus: Mapping[tuple[str, int], Points] = field(default_factory=dict)


def ask(prometheus: Prometheus, view: View, at: float) -> History:
    """Query the hour before ``at``; empty if Prometheus does not answer."""
    start, step = at - HOUR_S, HOUR_S / STEPS
    try:
        used = prometheus.query_range(_pools(POOL_USED, step), start, at, step)
        if 0 < _longest(used) < _FEW:
            start = min(series.points[0][0] for series in used if series.points) - step
            step = max(1.0, (at - start) / STEPS)
            used = prometheus.query_range(_pools(POOL_USED, step), start, at, step)
        asked = prometheus.query_range(_pools(POOL_REQUESTED, step), start, at, step)
        gpus = [
            one
            for nodes in drawn(view)
            for one in prometheus.query_range(_gpus(nodes, step), start, at, step)
        ]
    except Failure:
        return History()
    times = [series.points[0][0] for series in (*used, *asked, *gpus) if series.points]
    pools = ((name, one) for name, found in ((POOL_USED, used), (POOL_REQUESTED, asked)) for one in found)
    return History(
        since=min(times, default=at),
        until=at,
        pools={(one.labels.get("pool", ""), name): one.points for name, one in pools},
        gpus=_whole(gpus, view),
    )


def _whole(found: Iterable[Series], view: View) -> dict[tuple[str, int], Points]:
    """History per GPU; for one with MIG, the sum of its slices by their current size."""
    sizes = {
        (node.name, gpu.index, one.instance): one.size
        for node in view.nodes
        for gpu in node.gpus
        for one in gpu.slices
    }
    together: dict[tuple[str, int], dict[float, float]] = {}
    for series in found:
        node, index = series.labels.get("node", ""), series.labels.get("gpu", "")
        if node and index.isdecimal():
            size = sizes.get((node, int(index), series.labels.get("GPU_I_ID", "")), 1.0)
            values = together.setdefault((node, int(index)), {})
            for at, value in series.points:
                values[at] = values.get(at, 0.0) + value * size
    return {key: tuple(sorted(values.items())) for key, values in together.items()}


def drawn(view: View) -> list[Sequence[Node]]:
    """The nodes of each pool to draw: those that take no pods first, then by name."""
    found: list[Sequence[Node]] = []
    for _, group in groupby(view.nodes, key=lambda node: node.pool):
        nodes = sorted(group, key=lambda node: (node.ready and not node.closed, node.name))
        found.append(nodes[:MOST_NODES])
    return found


def _longest(found: Iterable[Series]) -> int:
    return max((len(series.points) for series in found), default=0)


def _pools(series: str, step: float) -> str:
    return f"sum by (pool) ({_mean(series, step)})"


def _gpus(nodes: Iterable[Node], step: float) -> str:
    """Node names are DNS names, so the dot is the only special character of a pattern in them."""
    names = "|".join(node.name.replace(".", "[.]") for node in nodes)
    return _mean(f'{UTILISATION}{{node=~"{names}"}}', step)


def _mean(series: str, step: float) -> str:
    return f"avg_over_time({series}[{max(step, LEAST_S):.0f}s])"

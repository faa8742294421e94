"""Prometheus' data on GPUs and pods, from the recorded series and from DCGM's pod labels; and the last hour.

Two queries for the present: the recorded series of devices, GPUs, pods and faults, and which pods DCGM saw on
which device. DCGM names pods on whole GPUs and MIG instances, never on a GPU that time-slicing or MPS shares.
The last hour of pools and GPUs has about sixty steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from gpuform.checkout.errors import Failure
from gpuform.usage.prometheus import Prometheus, Sample, Series
from gpuform.usage.top.view import Fault, Node, Use, View
from infra.plan.rules.promql import (
    ACTIVE,
    MEMORY_TOTAL,
    MEMORY_USED,
    POD_USED,
    POOL_REQUESTED,
    POOL_USED,
    POWER,
    TEMPERATURE,
    UTILISATION,
)

SERIES = (UTILISATION, MEMORY_USED, MEMORY_TOTAL, POWER, TEMPERATURE, POD_USED, ACTIVE)
HOLDERS = 'group by (node, gpu, GPU_I_ID, namespace, pod) (DCGM_FI_DEV_FB_USED{pod!=""})'

Key = tuple[str, int, str]
"""Node, GPU index, GPU_I_ID (empty for a whole GPU)."""
PodName = tuple[str, str]

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
class Known:
    """A device's identity from the labels of its series."""

    uuid: str
    model: str
    profile: str


@dataclass(frozen=True)
class Measured:
    """All measurements, by device and by pod; empty if nothing is scraped yet."""

    devices: Mapping[Key, Known] = field(default_factory=dict)
    values: Mapping[tuple[str, Key], float] = field(default_factory=dict)
    """By series name and device."""
    used: Mapping[PodName, float] = field(default_factory=dict)
    """GPUs that a pod uses, attributed by request."""
    holders: Mapping[Key, tuple[PodName, ...]] = field(default_factory=dict)
    faults: Mapping[tuple[str, int], tuple[Fault, ...]] = field(default_factory=dict)
    """By node and GPU index."""

    def on(self, node: str) -> list[Key]:
        """The devices of a node, in the order of the GPUs and of their instances."""
        return self._by_node.get(node, [])

    @cached_property
    def _by_node(self) -> dict[str, list[Key]]:
        found: dict[str, list[Key]] = {}
        for key in sorted(self.devices, key=_in_order):
            found.setdefault(key[0], []).append(key)
        return found

    def use(self, key: Key) -> Use:
        """Measurements of a device; power and temperature only for a whole GPU."""
        node, gpu, _ = key
        return Use(
            util=self.values.get((UTILISATION, key)),
            memory_used=self.values.get((MEMORY_USED, key)),
            memory_total=self.values.get((MEMORY_TOTAL, key)),
            power_watts=self.values.get((POWER, (node, gpu, ""))),
            celsius=self.values.get((TEMPERATURE, (node, gpu, ""))),
        )


def _in_order(key: Key) -> tuple[str, int, int, str]:
    return key[0], key[1], int(key[2]) if key[2].isdecimal() else -1, key[2]


def ask(prometheus: Prometheus) -> Measured:
    """Run both queries. Raises Failure if Prometheus does not answer."""
    recorded = prometheus.query(f'{{__name__=~"{"|".join(SERIES)}"}}')
    return gather(recorded, prometheus.query(HOLDERS))


def gather(recorded: Iterable[Sample], seen: Iterable[Sample]) -> Measured:
    """Group samples by kind; leaves out samples without a node or with an invalid GPU index."""
    devices: dict[Key, Known] = {}
    values: dict[tuple[str, Key], float] = {}
    used: dict[PodName, float] = {}
    faults: dict[tuple[str, int], list[Fault]] = {}
    gone: dict[Key, Known] = {}
    for sample in recorded:
        if sample.name == POD_USED:
            name = (sample.labels.get("namespace", ""), sample.labels.get("pod", ""))
            used[name] = used.get(name, 0.0) + sample.value  # one series for each requested resource
            continue
        for key in _key(sample):
            if sample.name == ACTIVE:
                faults.setdefault(key[:2], []).append(_fault(sample))
                gone[key] = Known(sample.labels.get("UUID", ""), "", "")
                continue
            values[sample.name, key] = sample.value
            if sample.name in (UTILISATION, MEMORY_USED, MEMORY_TOTAL):
                devices[key] = Known(
                    sample.labels.get("UUID", ""),
                    sample.labels.get("modelName", ""),
                    sample.labels.get("GPU_I_PROFILE", ""),
                )
    # A lost GPU has only its fault's series; it still belongs to the node.
    there = {key[:2] for key in devices}
    devices |= {key: known for key, known in gone.items() if key[:2] not in there}
    holders: dict[Key, set[PodName]] = {}
    for sample in seen:
        for key in _key(sample):
            holders.setdefault(key, set()).add((sample.labels.get("namespace", ""), sample.labels["pod"]))
    return Measured(
        devices,
        values,
        used,
        holders={key: tuple(sorted(found)) for key, found in holders.items()},
        faults={key: tuple(sorted(set(found), key=str)) for key, found in faults.items()},
    )


def _fault(sample: Sample) -> Fault:
    return Fault(*(sample.labels.get(key, "") for key in ("reason", "class", "xid")))


def _key(sample: Sample) -> Iterator[Key]:
    node, gpu = sample.labels.get("node", ""), sample.labels.get("gpu", "")
    if node and gpu.isdecimal():
        yield node, int(gpu), sample.labels.get("GPU_I_ID", "")


@dataclass(frozen=True)
class History:
    """Values over time; ``since`` is the time of the first, in Unix seconds.

    ``pools`` by pool and series, in GPUs; ``gpus`` by node and index, 0 to 1.
    """

    since: float = 0.0
    until: float = 0.0
    pools: Mapping[tuple[str, str], Points] = field(default_factory=dict)
    gpus: Mapping[tuple[str, int], Points] = field(default_factory=dict)


def last_hour(prometheus: Prometheus, view: View, at: float) -> History:
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

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
_FEW_POINTS = 12
"""With fewer points, Prometheus is young, and its short history is queried again at a finer step."""
MOST_NODES = 60
"""Nodes of a pool with GPU history: as many as the report draws."""
LEAST_S = 60.0
"""Each point is a mean over its step, and at least over this: rules are evaluated only so often."""

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DeviceIdentity:
    """A device's identity from the labels of its series."""

    uuid: str
    model: str
    profile: str


@dataclass(frozen=True)
class Metrics:
    """All measurements, by device and by pod; empty if nothing is scraped yet."""

    devices: Mapping[Key, DeviceIdentity] = field(default_factory=dict)
    values: Mapping[tuple[str, Key], float] = field(default_factory=dict)
    """By series name and device."""
    used: Mapping[PodName, float] = field(default_factory=dict)
    """GPUs that a pod uses, attributed by request."""
    holders: Mapping[Key, tuple[PodName, ...]] = field(default_factory=dict)
    faults: Mapping[tuple[str, int], tuple[Fault, ...]] = field(default_factory=dict)
    """By node and GPU index."""

    def keys_on(self, node: str) -> list[Key]:
        """The devices of a node, in the order of the GPUs and of their instances."""
        return self._by_node.get(node, [])

    @cached_property
    def _by_node(self) -> dict[str, list[Key]]:
        keys: dict[str, list[Key]] = {}
        for key in sorted(self.devices, key=_sort_key):
            keys.setdefault(key[0], []).append(key)
        return keys

    def use(self, key: Key) -> Use:
        """Metrics of a device; power and temperature only for a whole GPU."""
        node, gpu, _ = key
        return Use(
            util=self.values.get((UTILISATION, key)),
            memory_used=self.values.get((MEMORY_USED, key)),
            memory_total=self.values.get((MEMORY_TOTAL, key)),
            power_watts=self.values.get((POWER, (node, gpu, ""))),
            celsius=self.values.get((TEMPERATURE, (node, gpu, ""))),
        )


def _sort_key(key: Key) -> tuple[str, int, int, str]:
    return key[0], key[1], int(key[2]) if key[2].isdecimal() else -1, key[2]


def query_measurements(prometheus: Prometheus) -> Metrics:
    """Run both queries. Raises Failure if Prometheus does not answer."""
    samples = prometheus.query(f'{{__name__=~"{"|".join(SERIES)}"}}')
    return group_samples(samples, prometheus.query(HOLDERS))


def group_samples(recorded: Iterable[Sample], pod_samples: Iterable[Sample]) -> Metrics:
    """Group samples by kind; leaves out samples without a node or with an invalid GPU index."""
    devices: dict[Key, DeviceIdentity] = {}
    values: dict[tuple[str, Key], float] = {}
    used: dict[PodName, float] = {}
    faults: dict[tuple[str, int], list[Fault]] = {}
    faulty: dict[Key, DeviceIdentity] = {}
    for sample in recorded:
        if sample.name == POD_USED:
            name = (sample.labels.get("namespace", ""), sample.labels.get("pod", ""))
            used[name] = used.get(name, 0.0) + sample.value  # one series for each requested resource
            continue
        for key in _key(sample):
            if sample.name == ACTIVE:
                faults.setdefault(key[:2], []).append(_fault(sample))
                faulty[key] = DeviceIdentity(sample.labels.get("UUID", ""), "", "")
                continue
            values[sample.name, key] = sample.value
            if sample.name in (UTILISATION, MEMORY_USED, MEMORY_TOTAL):
                devices[key] = DeviceIdentity(
                    sample.labels.get("UUID", ""),
                    sample.labels.get("modelName", ""),
                    sample.labels.get("GPU_I_PROFILE", ""),
                )
    # A lost GPU has only its fault's series; it still belongs to the node.
    present = {key[:2] for key in devices}
    devices |= {key: known for key, known in faulty.items() if key[:2] not in present}
    holders: dict[Key, set[PodName]] = {}
    for sample in pod_samples:
        for key in _key(sample):
            holders.setdefault(key, set()).add((sample.labels.get("namespace", ""), sample.labels["pod"]))
    return Metrics(
        devices,
        values,
        used,
        holders={key: tuple(sorted(pods)) for key, pods in holders.items()},
        faults={key: tuple(sorted(set(of_gpu), key=str)) for key, of_gpu in faults.items()},
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
        used = prometheus.query_range(_pools_query(POOL_USED, step), start, at, step)
        if 0 < _most_points(used) < _FEW_POINTS:
            start = min(series.points[0][0] for series in used if series.points) - step
            step = max(1.0, (at - start) / STEPS)
            used = prometheus.query_range(_pools_query(POOL_USED, step), start, at, step)
        requested = prometheus.query_range(_pools_query(POOL_REQUESTED, step), start, at, step)
        gpus = [
            series
            for nodes in nodes_to_draw(view)
            for series in prometheus.query_range(_gpus_query(nodes, step), start, at, step)
        ]
    except Failure:
        return History()
    times = [series.points[0][0] for series in (*used, *requested, *gpus) if series.points]
    pools = (
        (name, series)
        for name, history in ((POOL_USED, used), (POOL_REQUESTED, requested))
        for series in history
    )
    return History(
        since=min(times, default=at),
        until=at,
        pools={(series.labels.get("pool", ""), name): series.points for name, series in pools},
        gpus=_gpu_history(gpus, view),
    )


def _gpu_history(history: Iterable[Series], view: View) -> dict[tuple[str, int], Points]:
    """History per GPU; for one with MIG, the sum of its slices by their current size."""
    sizes = {
        (node.name, gpu.index, mig.instance): mig.size
        for node in view.nodes
        for gpu in node.gpus
        for mig in gpu.slices
    }
    values_by_gpu: dict[tuple[str, int], dict[float, float]] = {}
    for series in history:
        node, index = series.labels.get("node", ""), series.labels.get("gpu", "")
        if node and index.isdecimal():
            size = sizes.get((node, int(index), series.labels.get("GPU_I_ID", "")), 1.0)
            values = values_by_gpu.setdefault((node, int(index)), {})
            for at, value in series.points:
                values[at] = values.get(at, 0.0) + value * size
    return {key: tuple(sorted(values.items())) for key, values in values_by_gpu.items()}


def nodes_to_draw(view: View) -> list[Sequence[Node]]:
    """The nodes of each pool to draw: those that take no pods first, then by name."""
    groups: list[Sequence[Node]] = []
    for _, group in groupby(view.nodes, key=lambda node: node.pool):
        nodes = sorted(group, key=lambda node: (node.ready and not node.closed, node.name))
        groups.append(nodes[:MOST_NODES])
    return groups


def _most_points(history: Iterable[Series]) -> int:
    return max((len(series.points) for series in history), default=0)


def _pools_query(series: str, step: float) -> str:
    return f"sum by (pool) ({_mean_over_step(series, step)})"


def _gpus_query(nodes: Iterable[Node], step: float) -> str:
    """Node names are DNS names, so the dot is the only special character of a pattern in them."""
    names = "|".join(node.name.replace(".", "[.]") for node in nodes)
    return _mean_over_step(f'{UTILISATION}{{node=~"{names}"}}', step)


def _mean_over_step(series: str, step: float) -> str:
    return f"avg_over_time({series}[{max(step, LEAST_S):.0f}s])"

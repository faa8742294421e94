"""Prometheus' data on GPUs and pods, from the recorded series and from DCGM's pod labels.

Two queries in all: the recorded series of devices, GPUs, pods and faults, and which pods DCGM saw on which
device. DCGM names pods on whole GPUs and MIG instances, never on a GPU that is shared by time-slicing or MPS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpuform.usage.prometheus import Prometheus, Sample
from gpuform.usage.top.view import Fault, Use
from infra.plan.rules.promql import (
    ACTIVE,
    MEMORY_TOTAL,
    MEMORY_USED,
    POD_USED,
    POWER,
    TEMPERATURE,
    UTILISATION,
)

SERIES = (UTILISATION, MEMORY_USED, MEMORY_TOTAL, POWER, TEMPERATURE, POD_USED, ACTIVE)
HOLDERS = 'group by (node, gpu, GPU_I_ID, namespace, pod) (DCGM_FI_DEV_FB_USED{pod!=""})'

Key = tuple[str, int, str]
"""Node, GPU index, GPU_I_ID (empty for a whole GPU)."""
PodName = tuple[str, str]


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

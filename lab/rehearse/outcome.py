"""The outcome of a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lab.rehearse.ending import Ended
from lab.rehearse.monitored import Scraped
from lab.rehearse.pods import Pending
from lab.rehearse.queued import QueueOutcome


@dataclass(frozen=True)
class Step:
    """A part of the rehearsal, and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Machines:
    """Identical nodes of a pool; ``usd_per_hour`` is per node, None if unknown.

    ``zone`` and ``capacity`` (on-demand, spot, reserved) are empty if nodes are not bought.
    """

    machine: str
    capacity: str
    zone: str
    count: int
    usd_per_hour: float | None


@dataclass(frozen=True)
class Amount:
    """A resource of a pool's nodes: cores, GiB, or a count."""

    offers: float
    used: float

    @property
    def idle(self) -> float:
        return max(0.0, self.offers - self.used)


@dataclass(frozen=True)
class PoolOutcome:
    """One pool once the pods are placed.

    ``machines`` are the nodes at that time. ``launched`` counts every node that the pool has had in this
    rehearsal. ``in_vain`` names bought nodes that never had a pod of a workload, except those kept free on
    purpose. ``idle_usd_per_hour`` is None if a price or the idle part is unknown (GPUs allocated by claim).
    """

    name: str
    fixed: bool
    machines: tuple[Machines, ...]
    resources: Mapping[str, Amount]
    usd_per_hour: float | None
    idle_usd_per_hour: float | None
    launched: int
    in_vain: tuple[str, ...]

    @property
    def nodes(self) -> int:
        return sum(one.count for one in self.machines)


@dataclass(frozen=True)
class Cell:
    """A share of a GPU, a slice, or a whole GPU; ``pod`` is the pod that has it, empty if it is free."""

    resource: str
    namespace: str = ""
    pod: str = ""
    workload: str = ""


@dataclass(frozen=True)
class NodeDrawn:
    """One node of the picture: a row of cells for each GPU; ``others`` are the pods without a GPU."""

    name: str
    pool: str
    machine: str
    capacity: str
    zone: str
    usd_per_hour: float | None
    gpus: tuple[tuple[Cell, ...], ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """One node's timeline in seconds after the start; ``end`` is None for a node that stayed."""

    node: str
    pool: str
    machine: str
    usd_per_hour: float | None
    begin: float
    ready: float | None
    end: float | None
    fixed: bool


@dataclass(frozen=True)
class Side:
    """Totals before or after half of the pods were removed."""

    nodes: int
    pods: int
    usd_per_hour: float | None


@dataclass(frozen=True)
class Gone:
    """A removed node, the reason, and the original event texts (``said``)."""

    node: str
    pool: str
    machine: str
    usd_per_hour: float | None
    why: str
    said: tuple[str, ...]


@dataclass(frozen=True)
class Shrink:
    """Half of the pods are removed; ``stays`` are the reported reasons why nodes remain."""

    before: Side
    after: Side
    gone: tuple[Gone, ...]
    stays: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Reached:
    """A scaled workload at a load; ``cold`` is how its first additional pod started.

    That is seconds after the load changed: asked for, created, its node requested, launched, joined and
    ready (if it was launched meanwhile), running. ``within``: the autoscaler's tolerance leaves the number
    of pods alone.
    """

    namespace: str
    name: str
    wanted: int
    pods: int
    within: bool
    cold: Mapping[str, float]
    waiting: tuple[Pending, ...]


@dataclass(frozen=True)
class Load:
    """``qps`` requests per second of each scaled workload, held for ``seconds``; nodes at its end.

    ``bought`` and ``removed`` count nodes by machine.
    """

    qps: float
    seconds: float
    workloads: tuple[Reached, ...]
    nodes: int
    bought: Mapping[str, int]
    removed: Mapping[str, int]
    usd_per_hour: float | None


@dataclass(frozen=True)
class Refusal:
    """Capacity that the simulated AWS did not have, and how often it was requested."""

    machine: str
    zone: str
    capacity: str
    times: int


@dataclass(frozen=True)
class Outcome:
    """The whole outcome; ``troubles`` fail the rehearsal, as pending pods do."""

    stack: str
    kind: str
    way: Literal["none", "aws", "counted"]
    steps: tuple[Step, ...]
    pools: tuple[PoolOutcome, ...]
    pods: int
    placed: int
    pending: tuple[Pending, ...]
    nodes: tuple[NodeDrawn, ...]
    timeline: tuple[Line, ...]
    simulated: tuple[str, ...]
    real: tuple[str, ...]
    prices: str
    blind: tuple[str, ...] = ()
    """What this way of buying cannot show."""
    seconds: float = 0.0
    """From the control plane's start to the end; the timeline's scale."""
    played: tuple[str, ...] = ()
    """What was switched on: shortages, an interruption, a used-up reservation."""
    refusals: tuple[Refusal, ...] = ()
    jobs: tuple[Ended, ...] = ()
    """Jobs that were run to their end; empty if a pod is pending for another reason than its queue."""
    queues: tuple[QueueOutcome, ...] = ()
    shrink: Shrink | None = None
    troubles: tuple[str, ...] = ()
    rss_bytes: Mapping[str, int] = field(default_factory=dict)
    measured: Scraped | None = None
    """What the stack's Prometheus has scraped; None if the stack declares no monitoring."""
    loads: tuple[Load, ...] = ()
    """Reactions to requests, in the order of --qps."""
    shortened: tuple[str, ...] = ()
    """What was not as declared while requests were played."""

    @property
    def failed(self) -> bool:
        """Whether a pod is pending, or a node does not offer what was planned."""
        return bool(self.pending or self.troubles)

    @property
    def usd_per_hour(self) -> float | None:
        """All nodes once the pods were placed; None if the price of a node is unknown."""
        return total(pool.usd_per_hour for pool in self.pools)

    @property
    def known_usd_per_hour(self) -> float:
        """The same, without pools of unknown price."""
        return sum(pool.usd_per_hour or 0.0 for pool in self.pools)

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(pool.name for pool in self.pools if pool.usd_per_hour is None)


def total(prices: Any) -> float | None:
    """The sum of prices; None if a price is unknown."""
    found = list(prices)
    return None if any(one is None for one in found) else sum(found, 0.0)

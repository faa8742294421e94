"""What came of a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuform.rehearse.monitored import Scraped
from gpuform.rehearse.pods import Pending


@dataclass(frozen=True)
class Step:
    """A part of the rehearsal, and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Machines:
    """Equal nodes of a pool; ``usd_per_hour`` is of one, None where nobody knows.

    ``zone`` and ``capacity`` (on-demand, spot, reserved) are empty where nothing is bought.
    """

    machine: str
    capacity: str
    zone: str
    count: int
    usd_per_hour: float | None


@dataclass(frozen=True)
class Amount:
    """A resource of a pool's nodes: cores, GiB, or a number."""

    offers: float
    used: float

    @property
    def idle(self) -> float:
        """What nobody has asked for."""
        return max(0.0, self.offers - self.used)


@dataclass(frozen=True)
class PoolOutcome:
    """One pool once the pods are placed.

    ``machines`` are those that were there then; ``launched`` counts every node that the pool ever had here,
    and ``in_vain`` names those that were bought, not to be kept free, and never had a pod of a workload.
    ``idle_usd_per_hour`` is None where a price is unknown, or what is idle (GPUs that are had by claim).
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
    """A share of a GPU, a slice, or a whole one; ``pod`` has it, where somebody has."""

    resource: str
    namespace: str = ""
    pod: str = ""
    workload: str = ""


@dataclass(frozen=True)
class NodeDrawn:
    """One node as the picture has it: a row of cells for each GPU, ``others`` the pods that have none."""

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
    """One node's time: seconds after the beginning; ``end`` is None for one that stayed."""

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
    """How much there is, before or after half of the pods went."""

    nodes: int
    pods: int
    usd_per_hour: float | None


@dataclass(frozen=True)
class Gone:
    """A node that was taken away, why, and what who did it said of it."""

    node: str
    pool: str
    machine: str
    usd_per_hour: float | None
    why: str
    said: tuple[str, ...]


@dataclass(frozen=True)
class Shrink:
    """Half of the pods go; ``stays`` says why what is left is left, where somebody said so."""

    before: Side
    after: Side
    gone: tuple[Gone, ...]
    stays: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Refusal:
    """What AWS (played) had no capacity for, and how often it was asked."""

    machine: str
    zone: str
    capacity: str
    times: int


@dataclass(frozen=True)
class Outcome:
    """The whole of it. ``troubles`` are what fails it beside pods that wait."""

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
    """From the control plane's start to the end; the timeline's measure."""
    played: tuple[str, ...] = ()
    """What was switched on: shortages, an interruption, a reservation used up."""
    refusals: tuple[Refusal, ...] = ()
    shrink: Shrink | None = None
    troubles: tuple[str, ...] = ()
    rss_bytes: Mapping[str, int] = field(default_factory=dict)
    measured: Scraped | None = None
    """What the stack's Prometheus has seen, None where the stack declares no monitoring."""

    @property
    def failed(self) -> bool:
        """Whether a pod waits, or a node does not offer what was planned."""
        return bool(self.pending or self.troubles)

    @property
    def usd_per_hour(self) -> float | None:
        """All nodes once the pods were placed; None where the price of one is unknown."""
        return total(pool.usd_per_hour for pool in self.pools)

    @property
    def known_usd_per_hour(self) -> float:
        """The same, of those whose price is known."""
        return sum(pool.usd_per_hour or 0.0 for pool in self.pools)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Pools with a node whose price is unknown."""
        return tuple(pool.name for pool in self.pools if pool.usd_per_hour is None)


def total(prices: Any) -> float | None:
    """The sum of prices; None where one of them is unknown."""
    found = list(prices)
    return None if any(one is None for one in found) else sum(found, 0.0)

"""The outcome of a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuform.usage.node_prices import PoolOutcome, total
from gpuform.usage.nodes import Amounts
from gpuform.usage.queues import QueueOutcome


@dataclass(frozen=True)
class Step:
    """A part of the rehearsal, and how long it took."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Cell:
    """A share of a GPU, a slice, or a whole GPU; ``pod`` is the pod that has it, empty if it is free."""

    resource: str
    namespace: str = ""
    pod: str = ""
    workload: str = ""


@dataclass(frozen=True)
class NodePicture:
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
class NodeTimeline:
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
class Totals:
    """Totals before or after half of the pods were removed."""

    nodes: int
    pods: int
    usd_per_hour: float | None


@dataclass(frozen=True)
class RemovedNode:
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

    before: Totals
    after: Totals
    gone: tuple[RemovedNode, ...]
    stays: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class WorkloadAtLoad:
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
    waiting: tuple[PendingPod, ...]


@dataclass(frozen=True)
class Load:
    """``qps`` requests per second of each scaled workload, held for ``seconds``; nodes at its end.

    ``bought`` and ``removed`` count nodes by machine.
    """

    qps: float
    seconds: float
    workloads: tuple[WorkloadAtLoad, ...]
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
class JobResult:
    """A job, and how many of the pods that must succeed have succeeded."""

    namespace: str
    name: str
    succeeded: int
    completions: int


@dataclass(frozen=True)
class ScrapeResult:
    """The number of GPU nodes, and those without measurements."""

    nodes: int
    missing: tuple[str, ...]
    said: str = ""
    """What is not as declared in monitoring, or why Prometheus could not be asked."""

    def __str__(self) -> str:
        head = f"Prometheus (real) has scraped {self.nodes - len(self.missing)} of {self.nodes} GPU nodes"
        head += " (simulated measurements)" if self.nodes else ""
        without = f"; missing: {', '.join(self.missing)}" if self.missing else ""
        return head + without + (f"; {self.said}" if self.said else "")


@dataclass(frozen=True)
class PendingPod:
    """A pod that does not run: why, in words, and the event texts (``said``).

    ``name`` is the workload's if the pod was not even created. ``queue`` is the one that holds it back.
    """

    namespace: str
    name: str
    workload: str
    pool: str
    asks: Amounts
    why: str
    said: tuple[str, ...]
    queue: str = ""


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
    pending: tuple[PendingPod, ...]
    nodes: tuple[NodePicture, ...]
    timeline: tuple[NodeTimeline, ...]
    simulated: tuple[str, ...]
    real: tuple[str, ...]
    prices: str
    budget: float | None = None
    """USD a month, as declared in the stack file."""
    blind: tuple[str, ...] = ()
    """What this way of buying cannot show."""
    seconds: float = 0.0
    """From the control plane's start to the end; the timeline's scale."""
    played: tuple[str, ...] = ()
    """What was switched on: shortages, an interruption, a used-up reservation."""
    refusals: tuple[Refusal, ...] = ()
    jobs: tuple[JobResult, ...] = ()
    """Jobs that were run to their end; empty if a pod is pending for another reason than its queue."""
    queues: tuple[QueueOutcome, ...] = ()
    shrink: Shrink | None = None
    troubles: tuple[str, ...] = ()
    rss_bytes: Mapping[str, int] = field(default_factory=dict)
    measured: ScrapeResult | None = None
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

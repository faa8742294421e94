"""Replay of a trace against a stack's pools: a model with one line of waiting jobs and no cluster.

A job starts at once if a node can hold it, else when one that ended has left room; those that wait are tried
in the order of their arrival, and one that fits passes those that do not.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.model.base.errors import InputError, Place
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.placement.node_resources import free_resources, node_machines
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.plan.cost import machine_price
from infra.planner.placement import Fragmentation, Nodes, Placed, Placer, Policy
from infra.planner.trace import MILLI, Job, NodeSize, Shape, raise_together

_UNLIMITED = 2**40
"""Cores and memory of nodes of an unknown size."""
_HOUR = 3600


@dataclass(frozen=True)
class PoolNodes:
    """Nodes of a pool that are alike. ``elastic``: they exist, and cost, only while they have a job."""

    pool: str
    size: NodeSize
    count: int
    gpus: int
    elastic: bool
    usd_per_hour: float | None


@dataclass(frozen=True)
class Outcome:
    """What a policy did with the trace, from the first arrival to the last end.

    ``allocated``: parts (0 to 1) of all GPUs of the pools. ``fragmented``: the part of the idle GPUs, when
    most are allocated, that the trace's usual jobs cannot use. Waits are of the jobs that waited.
    ``gpu_hours``: held by jobs; ``node_gpu_hours``: of the nodes' GPUs. ``usd``: of nodes with a price, None
    without any.
    """

    policy: str
    allocated_mean: float
    allocated_peak: float
    waited: int
    wait_mean_s: float
    wait_p95_s: float
    fragmented: float
    gpu_hours: float
    node_gpu_hours: float
    usd: float | None


def pool_nodes(env: Environment, prices: PriceList) -> tuple[list[PoolNodes], list[str]]:
    """The nodes of the stack's pools, elastic ones at their limit; and what is not known, as sentences."""
    found, unknown = [], list[str]()
    for pool in env.pools:
        machine = max(node_machines(env, pool), key=lambda one: _at_limit(pool, one), default=None)
        count = _count(pool, machine)
        if count is None:
            unknown.append(f"pool {pool.name} is left out: how many nodes it has is not declared")
            continue
        if machine is None:
            unknown.append(f"cores and memory of pool {pool.name} are not known, and limit no job")
            price = (env.cost.prices if env.cost else {}).get(pool.name)
        else:
            price = machine_price(env, pool, machine, prices)
        if price is None:
            unknown.append(f"pool {pool.name} has no known price, and is not in the sum")
        gpus = machine.gpus if machine else pool.gpu_counts[-1]
        found.append(
            PoolNodes(pool.name, _size(env, pool, machine, gpus), count, gpus, bool(pool.elastic), price)
        )
    if not any(nodes.count for nodes in found):
        raise InputError("pools", "the stack has no nodes to replay on", "give a pool nodes or elastic")
    return found, unknown


def _at_limit(pool: Pool, machine: Machine) -> tuple[int, int, int]:
    """Largest if the pool can have the most GPUs, or else cores, on this machine."""
    nodes = allocatable.max_nodes(pool, machine) if pool.elastic else 1
    return nodes * machine.gpus, nodes * machine.vcpu, -machine.gpus


def _count(pool: Pool, machine: Machine | None) -> int | None:
    """Nodes of the pool, an elastic one at its limit; None if that is not declared."""
    if not pool.elastic:
        return pool.max_nodes if pool.bounds else pool.declared_nodes
    if pool.bounds or machine is None:
        return pool.max_nodes if pool.bounds else None
    kinds = len(pool.capacity) if pool.by_karpenter else 1  # each capacity type has the limit
    return kinds * allocatable.max_nodes(pool, machine)


def _size(env: Environment, pool: Pool, machine: Machine | None, gpus: int) -> NodeSize:
    free = machine and free_resources(env, pool, machine)
    models = [machine.model] if machine and machine.model else pool.gpus
    return NodeSize(
        pool.name,
        free.cpu if free else _UNLIMITED,
        free.memory if free else _UNLIMITED,
        _devices(pool, gpus),
        tuple(sorted(model.name for model in models)),
        gpu_only=bool(gpus) and env.gpu_operator.taint is not None,
    )


def _devices(pool: Pool, gpus: int) -> tuple[int, ...]:
    """What a node offers, in thousandths of a GPU: whole GPUs, shares, or MIG slices by compute slices."""
    if pool.by_claim:
        counts = pool.slices(gpus) or {"": gpus}
        parts = allocatable.slice_parts(pool) or {"": 1.0}
    else:
        counts, parts = allocatable.resources(pool, gpus), allocatable.unit_parts(pool)
    return tuple(round(MILLI * parts[name]) for name, count in counts.items() for _ in range(count))


def check(jobs: Sequence[Job], path: Path, nodes: Nodes) -> None:
    """Raises InputError, with the lines, for a job without times, and for jobs that no node can hold."""
    rows = nodes.np.arange(len(nodes.sizes))
    first: dict[Shape, Job] = {}
    for job in jobs:
        if job.duration_s is None:
            remedy = "give creation_time and deletion_time"
            raise InputError(job.name, "has no times", remedy, Place(str(path), job.line, 1))
        first.setdefault(job.shape, job)
    raise_together(
        [
            InputError(job.name, *_reason(shape, nodes, rows), Place(str(path), job.line, 1))
            for shape, job in first.items()
            if not nodes.fits(shape, rows).any()
        ]
    )


def _reason(shape: Shape, nodes: Nodes, rows: object) -> tuple[str, str]:
    """Why no empty node holds the job, and the remedy."""
    any_model = replace(shape, models=())
    if nodes.fits(any_model, rows).any():
        known = sorted({model for kind in nodes.kinds for model in kind})
        suitable = [one for one in known if nodes.fits(replace(shape, models=(one,)), rows).any()]
        remedy = f"name some of {', '.join(suitable)}, or add a pool"
        return f"no node with {' or '.join(shape.models)} holds it", remedy
    if nodes.fits(replace(any_model, cpu_milli=0, memory_mib=0), rows).any():
        size = f"{shape.cpu_milli / 1000:g} cores and {shape.memory_mib / 1024:g} GiB"
        with_gpus = " with such GPUs" if shape.gpus else ""
        return f"no node{with_gpus} has {size} for it", "request less, or add a pool of larger machines"
    if not shape.gpus:
        return "no pool takes jobs without GPUs", "add a pool without GPUs, or leave these jobs out"
    if shape.milli < MILLI:
        return f"no node offers {shape.milli / MILLI:g} of a GPU", "request less, or add such a pool"
    return f"no node offers as many whole GPUs as {shape.gpus}", "request less, or add such a pool"


def replay(
    name: str,
    make: Callable[[Nodes, Sequence[Shape]], Policy],
    jobs: Sequence[Job],
    pools: Sequence[PoolNodes],
    seed: int = 0,
) -> Outcome:
    """Raises nothing for jobs that `check` accepts: each of them ends."""
    run = _Run(name, make, jobs, pools, seed)
    for job in sorted(jobs, key=lambda one: one.arrival_s):
        run.advance(job.arrival_s)
        if not run.start(job, job.arrival_s):
            run.waiting[job.shape].append(job)
    run.advance(math.inf)
    return run.outcome()


class _Run:
    def __init__(
        self,
        name: str,
        make: Callable[[Nodes, Sequence[Shape]], Policy],
        jobs: Sequence[Job],
        pools: Sequence[PoolNodes],
        seed: int,
    ) -> None:
        self.name = name
        self.kinds = [nodes for nodes in pools for _ in range(nodes.count)]
        self.nodes = Nodes([one.size for one in self.kinds])
        shapes = [job.shape for job in jobs]
        self.placer = Placer(self.nodes, make(self.nodes, shapes), seed)
        self.usual = Fragmentation(self.nodes, shapes)
        self.waiting: dict[Shape, deque[Job]] = defaultdict(deque)
        self.running: list[tuple[float, int, Placed]] = []
        self.waits: list[float] = []
        self.now = self.begin = min(job.arrival_s for job in jobs)
        self.busy = [0] * len(self.kinds)
        self.held = self.most = self.started = 0
        self.fragmented = self.held_s = self.gpu_s = self.usd_s = 0.0
        fixed = [one for one in self.kinds if not one.elastic]
        self.gpus, self.usd = sum(one.gpus for one in fixed), sum(one.usd_per_hour or 0.0 for one in fixed)

    def advance(self, until: float) -> None:
        """End the jobs that end by then, and start those that wait for their room."""
        while self.running and self.running[0][0] <= until:
            now = self.running[0][0]
            self._pass_time(now)
            while self.running and self.running[0][0] == now:
                placed = heapq.heappop(self.running)[2]
                self.nodes.remove(placed)
                self._count(placed, -1)
            for job in self._next():
                self.waits.append(now - job.arrival_s)
        if until < math.inf:
            self._pass_time(until)

    def _next(self) -> Iterator[Job]:
        """Start what fits, in the order of arrival; a shape that does not fit is not tried again."""
        heads = [(queue[0].arrival_s, queue[0].line, shape) for shape, queue in self.waiting.items() if queue]
        heapq.heapify(heads)
        while heads:
            shape = heads[0][2]
            queue = self.waiting[shape]
            if not self.start(queue[0], self.now):
                heapq.heappop(heads)
                continue
            yield queue.popleft()
            if queue:
                heapq.heapreplace(heads, (queue[0].arrival_s, queue[0].line, shape))
            else:
                heapq.heappop(heads)

    def start(self, job: Job, now: float) -> bool:
        placed = self.placer.place(job.shape)
        if placed is None:
            return False
        self.started += 1
        heapq.heappush(self.running, (now + (job.duration_s or 0.0), self.started, placed))
        self._count(placed, 1)
        if self.held > self.most:
            self.most = self.held
            every = self.nodes.np.arange(len(self.kinds))
            idle = self.nodes.idle(every).sum()
            self.fragmented = float(self.usual.amount(self.nodes, every).sum() / idle) if idle else 0.0
        return True

    def _count(self, placed: Placed, sign: int) -> None:
        kind, before = self.kinds[placed.node], self.busy[placed.node]
        self.held += sign * sum(placed.amounts)
        self.busy[placed.node] += sign
        if kind.elastic and (before == 0 or self.busy[placed.node] == 0):
            self.gpus += sign * kind.gpus
            self.usd += sign * (kind.usd_per_hour or 0.0)

    def _pass_time(self, now: float) -> None:
        seconds, self.now = now - self.now, now
        self.held_s += seconds * self.held / MILLI
        self.gpu_s += seconds * self.gpus
        self.usd_s += seconds * self.usd

    def outcome(self) -> Outcome:
        capacity, span = float(self.nodes.capacity.sum()) / MILLI or 1.0, self.now - self.begin or 1.0
        waits = sorted(self.waits)
        return Outcome(
            self.name,
            self.held_s / span / capacity,
            self.most / MILLI / capacity,
            len(waits),
            sum(waits) / len(waits) if waits else 0.0,
            waits[math.ceil(0.95 * len(waits)) - 1] if waits else 0.0,
            self.fragmented,
            self.held_s / _HOUR,
            self.gpu_s / _HOUR,
            self.usd_s / _HOUR if any(one.usd_per_hour is not None for one in self.kinds) else None,
        )

"""Prices of nodes and pools, and the share of a node that its pods have requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.usage.nodes import CPU, MEMORY_GIB, Node, Pod
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.pool.allocatable import claimable, resources, unit_parts
from infra.model.pool.pool import Pool
from infra.model.workload.claims import claimed_parts as parts_of_gpu
from infra.plan import cost


@dataclass(frozen=True)
class NodePrices:
    """Prices by node; ``bought`` is USD per hour of each bought node, by name."""

    env: Environment
    prices: PriceList
    bought: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Every pool that may have nodes, including the system's pool."""
        return (*cost.system_pools(self.env), *self.env.pools)

    def _pool_of(self, node: Node) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == node.pool), None)

    def usd_per_hour(self, node: Node) -> float | None:
        """USD per hour of a node, without its volumes; None if unknown."""
        if node.name in self.bought:
            return self.bought[node.name]
        pool, machine = self._pool_of(node), self.env.machine(node.machine)
        if pool is None:
            return None
        if machine is None:
            return self.env.cost.prices.get(pool.name) if self.env.cost else None
        price = cost.machine_price(self.env, pool, machine, self.prices)
        factor = self.env.cost.spot_factor if self.env.cost else None
        return price * factor if price is not None and factor and self.capacity(node) == "spot" else price

    def capacity(self, node: Node) -> str:
        """The node's capacity type in Karpenter's terms; empty if nodes are not bought."""
        return node.capacity or cost.capacity_type(self.env, self._pool_of(node))


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
    """One pool of a rehearsal once the pods are placed.

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
        return sum(machines.count for machines in self.machines)


def used_share(env: Environment, pool: Pool, node: Node, pods: Iterable[Pod]) -> float | None:
    """The requested share of a node, 0 to 1: of its GPUs, or without GPUs the larger of cores and memory.

    MIG slices count by their compute slices. None for claimed GPUs that no driver has reported.
    """
    requested: Counter[str] = Counter()
    pods = tuple(pods)
    for pod in pods:
        requested.update(pod.requests)
    if not pool.gpus:
        keys = [key for key in (CPU, MEMORY_GIB) if node.offers.get(key)]
        return min(1.0, max((requested[key] / node.offers[key] for key in keys), default=0.0))
    if pool.by_claim:
        return _claimed_share(pool, node, pods)
    weights, gpus = unit_parts(pool), node.gpus or pool.gpu_counts[-1]
    offered_gpus = sum(weights.get(key, 0) * count for key, count in resources(pool, gpus).items())
    requested_gpus = sum(weights.get(key, 0) * count for key, count in requested.items())
    return min(1.0, requested_gpus / offered_gpus) if offered_gpus else 0.0


def _claimed_share(pool: Pool, node: Node, pods: Iterable[Pod]) -> float | None:
    """By the devices allocated to claims; None until the node's driver has reported devices."""
    if not claimable(pool).keys() & node.offers.keys() or not node.gpus:
        return None
    allocated = {device for pod in pods for device in pod.devices}
    sizes = {**parts_of_gpu(pool), "": 1.0}
    allocated_gpus = sum(sizes.get(item.profile, 0.0) for item in node.devices if item.ident in allocated)
    return min(1.0, allocated_gpus / node.gpus)


def total(prices: Any) -> float | None:
    """The sum of prices or other figures; None if one is unknown."""
    known = list(prices)
    return None if any(price is None for price in known) else sum(known, 0.0)

"""Turns observations into results: pools with their machines, idle resources, and the picture's cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from gpuform.checkout.errors import InputError
from gpuform.usage.node_prices import Amount, Machines, NodePrices, PoolOutcome, total, used_share
from gpuform.usage.nodes import Device, Node, Pod
from gpuform.usage.rehearsal import Cell, NodePicture, NodeTimeline
from infra.model.base import labels
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.pool.allocatable import claimable
from infra.model.pool.pool import Pool
from infra.plan.cost import has_listed_prices, machine_price
from lab.rehearse import nodes as assumed
from lab.rehearse.watch import NodeLifetime, Snapshot


class CostReport(NodePrices):
    """Pools, nodes and their timelines, with their cost."""

    def pool_outcome(
        self, pool: Pool, now: Snapshot, lives: Iterable[NodeLifetime], unjoined: tuple[str, ...] = ()
    ) -> PoolOutcome:
        """One pool at one moment, and every node that it has had until then.

        ``unjoined`` are instances that were bought and never became a node.
        """
        nodes = [node for node in now.nodes if node.pool == pool.name]
        offers: Counter[str] = Counter()
        used: Counter[str] = Counter()
        made_up = assumed.simulated_nodes(self.env).undeclared(self.env, pool)
        for node in nodes:
            offers.update({key: n for key, n in node.offers.items() if key not in made_up})
            for pod in now.pods_on(node.name):
                used.update(pod.requests)
        kinds = Counter((n.machine, self.capacity(n), n.zone, self.usd_per_hour(n)) for n in nodes)
        own_lives = [life for life in lives if life.node.pool == pool.name]
        return PoolOutcome(
            name=pool.name,
            fixed=pool.elastic is None,
            machines=tuple(
                Machines(*key[:3], count, key[3]) for key, count in sorted(kinds.items(), key=str)
            ),
            resources={key: Amount(offers[key], used[key]) for key in sorted(offers)},
            usd_per_hour=total(self.usd_per_hour(node) for node in nodes),
            idle_usd_per_hour=total(self._idle_usd(pool, node, now.pods_on(node.name)) for node in nodes),
            launched=len(own_lives) + len(unjoined),
            in_vain=(
                *(life.node.name for life in own_lives if self._is_bought(pool, life) and not life.used),
                *unjoined,
            ),
        )

    def _is_bought(self, pool: Pool, life: NodeLifetime) -> bool:
        """Whether the node was added for pods; a Magnum node group always has its minimum."""
        least = pool.min_nodes if pool.by_autoscaler else 0
        always = {f"{pool.name}-{index}" for index in range(least)}
        return pool.elastic is not None and life.node.name not in always

    def _idle_usd(self, pool: Pool, node: Node, pods: Iterable[Pod]) -> float | None:
        share, usd = used_share(self.env, pool, node, pods), self.usd_per_hour(node)
        return None if share is None or usd is None else usd * (1 - share)

    def queue_usd(self, queue: str, now: Snapshot) -> float | None:
        """USD per hour of the part of GPU nodes that pods of this queue hold; None if a price is unknown."""
        keys = {(work.namespace, work.name) for work in self.env.workloads if work.queue == queue}
        amounts = []
        for pool in (item for item in self.pools if item.gpus):
            for node in (item for item in now.nodes if item.pool == pool.name):
                pods = [pod for pod in now.pods_on(node.name) if (pod.namespace, pod.workload) in keys]
                idle, usd = self._idle_usd(pool, node, pods), self.usd_per_hour(node)
                if pods:
                    amounts.append(None if idle is None or usd is None else usd - idle)
        return total(amounts)

    def timeline(self, lives: Iterable[NodeLifetime]) -> Iterator[NodeTimeline]:
        bought = {pool.name for pool in self.pools if pool.by_karpenter or pool.by_autoscaler}
        for life in sorted(lives, key=lambda life: (life.joined, life.node.name)):
            node = life.node
            times = life.joined, life.ready, life.removed
            yield NodeTimeline(
                node.name, node.pool, node.machine, self.usd_per_hour(node), *times, node.pool not in bought
            )

    def draw_nodes(self, now: Snapshot) -> Iterator[NodePicture]:
        pairs = ((pool, node) for pool in self.pools for node in now.nodes if node.pool == pool.name)
        for pool, node in pairs:
            pods, claimed = now.pods_on(node.name), claimable(pool).keys() & node.offers.keys()
            gpus = ((Cell("by claim"),),) * node.gpus if pool.by_claim and not claimed else cells(node, pods)
            others = tuple(f"{pod.namespace}/{pod.name}" for pod in pods if pod.workload and not pod.devices)
            place = node.name, node.pool, node.machine, self.capacity(node), node.zone
            yield NodePicture(*place, self.usd_per_hour(node), gpus, others)


def cells(node: Node, pods: Iterable[Pod]) -> tuple[tuple[Cell, ...], ...]:
    """A row for each GPU: its slices as placed on it, its shares, or the whole GPU, each with its pod.

    The devices are those that the simulated device manager has allocated.
    """
    holders = {device: pod for pod in pods for device in pod.devices}
    rows = groupby(node.devices, key=lambda device: device.gpu)
    return tuple(tuple(cell for device in row for cell in _cells(node, device, holders)) for _, row in rows)


def _cells(node: Node, device: Device, holders: Mapping[str, Pod]) -> Iterator[Cell]:
    """The cells of a device: itself, or its shares."""
    if device.profile:
        times, suffix = _shares(node)
        name = f"mig-{device.profile}{suffix}"
        replicated = times > 1
    else:
        shared = labels.NVIDIA_GPU_SHARED in node.offers
        offered = node.offers.get(labels.NVIDIA_GPU_SHARED if shared else labels.NVIDIA_GPU, 0)
        times = round(offered) // sum(not device.profile for device in node.devices)
        name = "gpu.shared" if shared else "gpu"
        if not times and not shared and labels.GPU_DEVICE_CLASS not in node.offers:
            name = ""
        replicated = times > 1 or shared
    ids = [f"{device.ident}::{n}" for n in range(times)] if replicated else [device.ident]
    for pod in map(holders.get, ids):
        yield Cell(name, pod.namespace, pod.name, pod.workload) if pod else Cell(name)


def _shares(node: Node) -> tuple[int, str]:
    """The replicas of each slice of the node, and the suffix of its resource name."""
    offers = {key: count for key, count in node.offers.items() if key.startswith(labels.NVIDIA_MIG_PREFIX)}
    if not offers:  # under the strategy single slices have the whole GPU's name
        offers = {key: node.offers.get(key, 0) for key in (labels.NVIDIA_GPU, labels.NVIDIA_GPU_SHARED)}
    shared = any(count for key, count in offers.items() if key.endswith(labels.SHARED))
    slices = sum(len(placed) for placed in node.layout.values())
    return round(sum(offers.values())) // slices, labels.SHARED if shared else ""


def price_source(env: Environment, prices: PriceList) -> str:
    has_prices = env.cost is not None and bool(env.cost.prices)
    if not has_listed_prices(env):
        if has_prices:
            return "the environment's own (cost.prices), without volumes: no price list has these machines"
        return "none: no price list has these machines; set cost.prices"
    own = ", and cost.prices" if has_prices else ""
    text = f"list prices of {prices.region}, {prices.date}{own}, without volumes"
    if not any("spot" in pool.capacity for pool in env.pools):
        return text
    factor = env.cost.spot_factor if env.cost else None
    spot = "at the on-demand price (no cost.spot_factor)" if factor is None else f"at {factor:g} of on-demand"
    return f"{text}; spot {spot}"


def check_prices(env: Environment, prices: PriceList) -> None:
    """Refuse a pool that Karpenter fills if none of its machines has a price, by which Karpenter buys.

    Raises InputError. A pool with a fixed number needs no price: it is shown as unknown, as in the bill.
    """
    for index, pool in enumerate(env.pools):
        if not pool.by_karpenter:
            continue
        unknown = [machine for machine in pool.machines if machine_price(env, pool, machine, prices) is None]
        if unknown and len(unknown) == len(pool.machines):
            names = ", ".join(machine.name for machine in unknown)
            where = f"the price list of {prices.region} of {prices.date}"
            raise InputError(
                f"pools[{index}].{'machine' if pool.machine else 'gpu'}",
                f"{names} has no price in {where}, and Karpenter chooses machines by price",
                f"give one: cost.prices: {{{unknown[0].name}: USD per hour}}",
            )

"""Turns observations into results: pools with their machines, idle resources, and the picture's cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gpuform.usage.device_ids import gpu_id, mig_id
from gpuform.usage.node_prices import NodePrices, total, used_share
from gpuform.usage.nodes import CPU, MEMORY_GIB, Node, Pod
from gpuform.usage.rehearsal import Amount, Cell, Line, Machines, NodeDrawn, PoolOutcome
from infra.model import labels
from infra.model.offer import claimable
from infra.model.openstack import OpenstackCluster
from infra.model.pool import Pool
from infra.plan import magnum, played_groups
from lab.rehearse.watch import Life, Now


class Tally(NodePrices):
    """Pools, nodes and their timelines, with their cost."""

    def _made_up(self, pool: Pool) -> tuple[str, ...]:
        """Resources with assumed amounts: on own hosts, and on default workers of unknown flavor."""
        cluster = self.env.cluster
        unknown = isinstance(cluster, OpenstackCluster) and played_groups.unknown(self.env)
        workers = pool.name == magnum.DEFAULT_WORKERS
        return (CPU, MEMORY_GIB) if cluster.kind == "hosts" or (unknown and workers) else ()

    def pool(
        self, pool: Pool, now: Now, lives: Iterable[Life], unjoined: tuple[str, ...] = ()
    ) -> PoolOutcome:
        """One pool at one moment, and every node that it has had until then.

        ``unjoined`` are instances that were bought and never became a node.
        """
        nodes = [node for node in now.nodes if node.pool == pool.name]
        offers: Counter[str] = Counter()
        used: Counter[str] = Counter()
        made_up = self._made_up(pool)
        for node in nodes:
            offers.update({key: n for key, n in node.offers.items() if key not in made_up})
            for pod in now.on(node.name):
                used.update(pod.asks)
        kinds = Counter((n.machine, self.capacity(n), n.zone, self.usd(n)) for n in nodes)
        mine = [life for life in lives if life.node.pool == pool.name]
        return PoolOutcome(
            name=pool.name,
            fixed=pool.elastic is None,
            machines=tuple(
                Machines(*key[:3], count, key[3]) for key, count in sorted(kinds.items(), key=str)
            ),
            resources={key: Amount(offers[key], used[key]) for key in sorted(offers)},
            usd_per_hour=total(self.usd(node) for node in nodes),
            idle_usd_per_hour=total(self._idle(pool, node, now.on(node.name)) for node in nodes),
            launched=len(mine) + len(unjoined),
            in_vain=(*(one.node.name for one in mine if self._bought(pool, one) and not one.used), *unjoined),
        )

    def _bought(self, pool: Pool, life: Life) -> bool:
        """Whether the node was added for pods; a Magnum node group always has its minimum."""
        if isinstance(self.env.cluster, OpenstackCluster):
            always = {f"{pool.name}-{index}" for index in range(pool.least)}
            return pool.elastic is not None and life.node.name not in always
        return pool.elastic is not None

    def _idle(self, pool: Pool, node: Node, pods: Iterable[Pod]) -> float | None:
        share, usd = used_share(self.env, pool, node, pods), self.usd(node)
        return None if share is None or usd is None else usd * (1 - share)

    def held(self, queue: str, now: Now) -> float | None:
        """USD per hour of the part of GPU nodes that pods of this queue hold; None if a price is unknown."""
        own = {(work.namespace, work.name) for work in self.env.workloads if work.queue == queue}
        found = []
        for pool in (one for one in self.pools if one.gpus):
            for node in (one for one in now.nodes if one.pool == pool.name):
                pods = [pod for pod in now.on(node.name) if (pod.namespace, pod.workload) in own]
                idle, usd = self._idle(pool, node, pods), self.usd(node)
                if pods:
                    found.append(None if idle is None or usd is None else usd - idle)
        return total(found)

    def lines(self, lives: Iterable[Life]) -> Iterator[Line]:
        """The timeline, in the order in which the nodes joined."""
        grow = isinstance(self.env.cluster, OpenstackCluster)
        bought = {pool.name for pool in self.pools if self.env.by_karpenter(pool) or (grow and pool.elastic)}
        for life in sorted(lives, key=lambda one: (one.born, one.node.name)):
            node = life.node
            times = life.born, life.ready, life.gone
            yield Line(node.name, node.pool, node.machine, self.usd(node), *times, node.pool not in bought)

    def drawn(self, now: Now) -> Iterator[NodeDrawn]:
        for pool in self.pools:
            for node in now.nodes:
                if node.pool == pool.name:
                    yield self._drawn(pool, node, now.on(node.name))

    def _drawn(self, pool: Pool, node: Node, pods: tuple[Pod, ...]) -> NodeDrawn:
        told = claimable(pool).keys() & node.offers.keys()
        return NodeDrawn(
            name=node.name,
            pool=pool.name,
            machine=node.machine,
            capacity=self.capacity(node),
            zone=node.zone,
            usd_per_hour=self.usd(node),
            gpus=((Cell("by claim"),),) * node.gpus if pool.by_claim and not told else cells(node, pods),
            others=tuple(f"{pod.namespace}/{pod.name}" for pod in pods if pod.workload and not pod.devices),
        )


def cells(node: Node, pods: Iterable[Pod]) -> tuple[tuple[Cell, ...], ...]:
    """A row for each GPU: its slices as placed on it, its shares, or the whole GPU, each with its pod.

    The devices are those that the simulated device manager has allocated.
    """
    holders = {device: pod for pod in pods for device in pod.devices}
    return tuple(_row(node, index, holders) for index in range(node.gpus))


def _row(node: Node, index: int, holders: Mapping[str, Pod]) -> tuple[Cell, ...]:
    placed = node.layout.get(str(index), ())
    if placed:
        found = []
        times, suffix = _shares(node)
        for text in placed:
            profile, _, start = text.partition("@")
            device = mig_id(node.uid, index, profile, int(start))
            ids = [f"{device}::{n}" for n in range(times)] if times > 1 else [device]
            found += [_cell(f"mig-{profile}{suffix}", holders.get(one)) for one in ids]
        return tuple(found)
    whole = gpu_id(node.uid, index)
    shared = labels.NVIDIA_GPU_SHARED in node.offers
    shares = node.offers.get(labels.NVIDIA_GPU_SHARED if shared else labels.NVIDIA_GPU, 0)
    each = round(shares) // sum(not node.layout.get(str(one)) for one in range(node.gpus))
    if each <= 1 and not shared:
        there = each or labels.GPU_DEVICE_CLASS in node.offers
        return (_cell("gpu" if there else "", holders.get(whole)),)
    name = "gpu.shared" if shared else "gpu"
    return tuple(_cell(name, holders.get(f"{whole}::{n}")) for n in range(each))


def _shares(node: Node) -> tuple[int, str]:
    """The replicas of each slice of the node, and the suffix of its resource name."""
    offers = {key: count for key, count in node.offers.items() if key.startswith(labels.NVIDIA_MIG_PREFIX)}
    if not offers:  # under the strategy single slices have the whole GPU's name
        offers = {key: node.offers.get(key, 0) for key in (labels.NVIDIA_GPU, labels.NVIDIA_GPU_SHARED)}
    shared = any(count for key, count in offers.items() if key.endswith(labels.SHARED))
    slices = sum(len(placed) for placed in node.layout.values())
    return round(sum(offers.values())) // slices, labels.SHARED if shared else ""


def _cell(resource: str, pod: Pod | None) -> Cell:
    return Cell(resource, pod.namespace, pod.name, pod.workload) if pod else Cell(resource)

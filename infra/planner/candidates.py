"""Kinds of nodes to choose from: a stack's pools on each of their machines, and machines by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from infra.model.base.errors import InputError
from infra.model.base.fields import listing
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.gpu.machines import BUILT_IN, Catalogue, Machine
from infra.model.gpu.models import Gpu
from infra.model.placement import node_resources
from infra.model.pool.pool import Pool
from infra.plan import cost


@dataclass(frozen=True)
class Candidate:
    """A kind of node: ``price`` in USD per hour, and what is ``free`` for workloads, if they are known.

    ``found``: names of a running cluster's nodes, in the order in which the pool keeps them.
    ``efa``: adapters; None if only the owner of the nodes knows.
    """

    name: str
    gpu: Gpu
    gpus: int
    machine: str = ""
    pool: Pool | None = None
    price: float | None = None
    free: node_resources.NodeResources | None = None
    found: tuple[str, ...] = ()
    efa: int | None = 0

    @property
    def room(self) -> dict[str, int]:
        """Millicores, MiB, pods, adapters and MiB in huge pages by name; what is not known is left out."""
        free = asdict(self.free) if self.free else {"pods": node_resources.PODS_PER_NODE}
        huge = node_resources.huge_pages_mib(self.pool) if self.pool else 0
        return free | ({} if self.efa is None else {"efa": self.efa}) | {"hugepages": huge}

    @property
    def limit(self) -> int | None:
        """Hosts of the pool, or nodes found; None for nodes that a cloud creates, or of an unknown number."""
        return (len(self.pool.hosts or self.found) or None) if self.pool else None

    @property
    def now(self) -> int | None:
        """Nodes that the pool has, by declaration or found."""
        return self.pool.declared_nodes or self.limit if self.pool else None


def candidates_of(
    env: Environment | None,
    machines: Sequence[str],
    prices: PriceList,
    found: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Candidate]:
    """The stack's pools with GPUs, one for each machine that they may have, and the named machines.

    ``found``: names of a running cluster's nodes by pool.
    """
    candidates = []
    for pool in env.pools if env else ():
        if env and pool.gpus and not pool.by_claim:
            names = tuple(found.get(pool.name, ()))
            candidates += [replace(one, found=names) for one in _of_pool(env, pool, prices)]
    catalogue = env.catalogue if env else BUILT_IN
    for index, name in enumerate(machines):
        candidates.append(_named(f"machines[{index}]", name, catalogue, prices))
    return candidates


def _of_pool(env: Environment, pool: Pool, prices: PriceList) -> Iterator[Candidate]:
    machines = node_resources.node_machines(env, pool)
    efa = None if pool.selector else pool.adapters
    for machine in machines:
        assert machine.model is not None
        free = node_resources.free_resources(env, pool, machine)
        price = cost.node_price(env, pool, machine, prices)
        name = pool.name if len(machines) == 1 else f"{pool.name} on {machine.name}"
        yield Candidate(name, machine.model, machine.gpus, machine.name, pool, price, free, efa)
    if not machines:
        smallest = min(pool.gpus, key=lambda gpu: gpu.memory_mib)
        for count in pool.gpu_counts:
            price = (env.cost.prices if env.cost else {}).get(pool.name)
            name = pool.name if len(pool.gpu_counts) == 1 else f"{pool.name} with {count} GPUs"
            yield Candidate(name, smallest, count, pool=pool, price=price, efa=efa)


def _named(path: str, name: str, catalogue: Catalogue, prices: PriceList) -> Candidate:
    machine, gpu = catalogue.machines.get(name), catalogue.gpu(name)
    if machine and machine.model:
        price = machine.usd_per_hour or prices.usd_per_hour.get(name)
        return Candidate(name, machine.model, machine.gpus, name, None, price, _free(machine), machine.efa)
    if gpu:
        return Candidate(gpu.name, gpu, 1)
    known = [*(one.name for one in catalogue.machines.values() if one.gpus), *catalogue.gpu_names]
    fact = f"{name} has no GPU" if machine else f"unknown machine or GPU {name!r}"
    raise InputError(path, fact, listing(known, name, "[a-z]*[0-9]*"))


def _free(machine: Machine) -> node_resources.NodeResources:
    if machine.seller == "ec2":
        return node_resources.allocatable(machine, machine.pods)
    return node_resources.NodeResources(machine.vcpu * 1000, machine.memory * 1024, machine.pods)

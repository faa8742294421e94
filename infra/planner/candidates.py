"""Kinds of nodes to choose from: a stack's pools on each of their machines, and machines by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from pydantic import model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import Model, Strict, listing, option, required
from infra.model.base.prices import PriceList, Usd
from infra.model.environment import Environment
from infra.model.gpu.machines import BUILT_IN, Machine
from infra.model.gpu.models import Gpu
from infra.model.placement import node_resources
from infra.model.pool.elastic import Capacity
from infra.model.pool.pool import Pool
from infra.plan import cost
from infra.planner.need import Need

_NAMES = {"cpu": "millicores", "memory": "MiB", "efa": "adapters (EFA)", "hugepages": "MiB in huge pages"}
_OTHERS = {"pods": node_resources.PODS_PER_NODE, "efa": 0, "hugepages": 0}


class Offer(Model):
    """A machine to choose from, or a GPU model."""

    machine: Strict = required("Name of the machine or GPU model.")
    capacity: Literal["on_demand", "spot"] = option("Capacity type (AWS).", "on_demand")
    usd_per_hour: Usd | None = option("USD per hour of a node; if left out, as in the bill of the stack.")

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"machine": value} if isinstance(value, str) else value

    def __str__(self) -> str:
        return self.machine if self.capacity == "on_demand" else f"{self.machine} {self.capacity}"


@dataclass(frozen=True)
class Candidate:
    """A kind of node: ``price`` in USD per hour, if it is known.

    ``room``: millicores (cpu), MiB (memory, hugepages), and numbers of pods and adapters (efa) that a node
    has for workloads; a key is missing if its amount is not known.
    ``found``: names of a running cluster's nodes, in the order in which the pool keeps them.
    ``fixed``: its pool stays, shared as it is.
    """

    name: str
    gpu: Gpu
    gpus: int
    room: Mapping[str, int]
    machine: str = ""
    pool: Pool | None = None
    price: float | None = None
    capacity: Capacity = "on_demand"
    found: tuple[str, ...] = ()
    fixed: bool = False

    @property
    def limit(self) -> int | None:
        """Hosts of the pool, or nodes found; None for nodes that a cloud creates, or of an unknown number."""
        return (len(self.pool.hosts or self.found) or None) if self.pool else None

    @property
    def now(self) -> int | None:
        """Nodes that the pool has, by declaration or found."""
        declared = self.pool.declared_nodes if self.pool else None
        return self.limit if declared is None else declared


def lacks(need: Need, one: Candidate) -> dict[str, str]:
    """What keeps a pod from a node beside its GPU's model and sharing: a clause for each thing."""
    rooms, asked = {**one.room, "GPUs": one.gpus}, {**need.room, "GPUs": need.count}
    facts = {
        name: f"a pod needs {asked[name]:.10g} {_NAMES.get(name, name)}, and it has {room:.10g}"
        for name, room in rooms.items()
        if asked[name] > room
    }
    if need.pools is not None and (one.pool is None or one.pool.name not in need.pools):
        facts["pools"] = f"its pods run in {' or '.join(need.pools)}"
    if one.capacity == "spot" and not need.interruptible:
        facts["spot"] = "its nodes are spot, and the demand is not interruptible"
    return facts


def candidates_of(
    env: Environment | None,
    offers: Sequence[Offer],
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
    return [*candidates, *(_named(env, f"machines[{at}]", one, prices) for at, one in enumerate(offers))]


def _of_pool(env: Environment, pool: Pool, prices: PriceList) -> Iterator[Candidate]:
    machines = node_resources.node_machines(env, pool)
    room = _OTHERS | {"hugepages": node_resources.huge_pages_mib(pool), "efa": pool.adapters}
    if pool.selector:  # only the owner of the nodes knows
        del room["efa"]
    for machine in machines:
        assert machine.model is not None
        free = room | asdict(node_resources.free_resources(env, pool, machine))
        price = cost.first_price(env, pool, machine, prices)
        name = pool.name if len(machines) == 1 else f"{pool.name} on {machine.name}"
        chosen = machine.name, pool, price, pool.capacity[0]
        yield Candidate(name, machine.model, machine.gpus, free, *chosen)
    if not machines:
        smallest = min(pool.gpus, key=lambda gpu: gpu.memory_mib)
        for count in pool.gpu_counts:
            price = (env.cost.prices if env.cost else {}).get(pool.name)
            name = pool.name if len(pool.gpu_counts) == 1 else f"{pool.name} with {count} GPUs"
            yield Candidate(name, smallest, count, room, pool=pool, price=price)


def _named(env: Environment | None, path: str, one: Offer, prices: PriceList) -> Candidate:
    catalogue, name, price = env.catalogue if env else BUILT_IN, one.machine, one.usd_per_hour
    machine, gpu = catalogue.machines.get(name), catalogue.gpu(name)
    if machine and machine.model:
        if price is None and env:
            pool = Pool.model_construct(name=name, capacity=(one.capacity,))
            price = cost.first_price(env, pool, machine, prices)
        elif price is None:
            price = machine.usd_per_hour or prices.usd_per_hour.get(name)
        room = _OTHERS | asdict(_free(machine)) | {"efa": machine.efa}
        return Candidate(str(one), machine.model, machine.gpus, room, name, None, price, one.capacity)
    if gpu:
        return Candidate(str(one), gpu, 1, _OTHERS, price=price, capacity=one.capacity)
    known = [*(one.name for one in catalogue.machines.values() if one.gpus), *catalogue.gpu_names]
    fact = f"{name} has no GPU" if machine else f"unknown machine or GPU {name!r}"
    raise InputError(path, fact, listing(known, name, "[a-z]*[0-9]*"))


def _free(machine: Machine) -> node_resources.NodeResources:
    if machine.seller == "ec2":
        return node_resources.allocatable(machine, machine.pods)
    return node_resources.NodeResources(machine.vcpu * 1000, machine.memory * 1024, machine.pods)

"""What the simulated AWS sells, its prices, and its shortages."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gpuform.usage.rehearsal import Refusal
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.pool import addresses
from infra.model.pool.pool import Pool
from infra.plan import node_groups

CapacityType = Literal["on-demand", "spot", "reserved"]
ANY = "*"


@dataclass(frozen=True)
class Shortage:
    """Capacity that the simulated AWS does not have; ``*`` is any."""

    machine: str = ANY
    zone: str = ANY
    capacity: str = ANY

    def __str__(self) -> str:
        zone = "" if self.zone == ANY else f" in {self.zone}"
        machine = "any machine" if self.machine == ANY else self.machine
        return f"no capacity for {machine}{zone}" + ("" if self.capacity == ANY else f" ({self.capacity})")

    def covers(self, machine: str, zone: str, capacity: CapacityType) -> bool:
        fields = ((self.machine, machine), (self.zone, zone), (self.capacity, capacity))
        return all(short in (ANY, wanted) for short, wanted in fields)


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A capacity reservation of one type in one zone; ``left`` of ``total`` instances are not used."""

    id: str
    machine: str
    zone: str
    total: int
    left: int


@dataclass(frozen=True, kw_only=True)
class LaunchedInstance:
    """One launched instance; times in seconds since 1970, ``usd_per_hour`` None if unknown."""

    id: str
    machine: str
    pool: str
    zone: str
    capacity: CapacityType
    usd_per_hour: float | None
    launched: float
    reservation: str | None = None
    ended: float | None = None
    node: str | None = None


class Market:
    """Prices, shortages, reservations and the record of purchases; safe to use from several threads."""

    def __init__(self, env: Environment, prices: PriceList) -> None:
        """Nothing is short; a pool's reservations have as much left as its limits let it use."""
        self._lock = threading.Lock()
        self.machines = env.catalogue.machines
        self._own_prices = env.cost.prices if env.cost else {}
        # A machine without its own price gets that of a pool that may use it: AWS has a price for each.
        priced = [pool for pool in env.pools if pool.by_karpenter and pool.name in self._own_prices]
        pools = {machine.name: self._own_prices[pool.name] for pool in priced for machine in pool.machines}
        own_machines = env.catalogue.declared_machines
        declared = {
            name: own.usd_per_hour for name, own in own_machines.items() if own.usd_per_hour is not None
        }
        self._usd = {**pools, **prices.usd_per_hour, **declared}
        self._spot = (env.cost.spot_factor if env.cost else None) or 1.0
        self._shortages: tuple[Shortage, ...] = ()
        self._reservations = {
            reservation.id: reservation for pool in env.pools for reservation in reservations_of(env, pool)
        }
        self._instances: dict[str, LaunchedInstance] = {}
        self._refused: Counter[tuple[str, str, CapacityType]] = Counter()

    def set_shortages(self, *shortages: Shortage) -> None:
        self._shortages = shortages

    def set_left(self, reservation: str, left: int = 0) -> None:
        """Set the instances left in a reservation, as if others used the rest. Raises KeyError."""
        with self._lock:
            self._reservations[reservation] = replace(self._reservations[reservation], left=left)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        with self._lock:
            return tuple(self._reservations.values())

    def price(self, machine: str, capacity: CapacityType, pool: str = "") -> float | None:
        """USD per hour; a reserved instance has the on-demand price, since a reservation costs that."""
        usd = self._own_prices.get(pool, self._own_prices.get(machine, self._usd.get(machine)))
        return usd * self._spot if usd is not None and capacity == "spot" else usd

    @property
    def on_demand_prices(self) -> Mapping[str, float]:
        """On-demand USD per hour of all machines with a price."""
        return {**self._usd, **{name: usd for name, usd in self._own_prices.items() if name in self.machines}}

    def capacity_for(self, machine: str, zone: str, capacity: CapacityType, reservation: str | None) -> int:
        if any(short.covers(machine, zone, capacity) for short in self._shortages):
            return 0
        if reservation is None:
            return 10**6
        with self._lock:
            known = self._reservations.get(reservation)
        return known.left if known and (known.machine, known.zone) == (machine, zone) else 0

    def record_launches(self, instances: Iterable[LaunchedInstance]) -> None:
        """Record new instances; reserved ones use up their reservation."""
        with self._lock:
            for instance in instances:
                self._instances[instance.id] = instance
                self._use_reservation(instance.reservation, 1)

    def record_refusal(self, machine: str, zone: str, capacity: CapacityType) -> None:
        with self._lock:
            self._refused[machine, zone, capacity] += 1

    def record_end(self, id: str) -> None:
        """Record the end of an instance; reserved capacity becomes available again."""
        with self._lock:
            instance = self._instances[id]
            if instance.ended is None:
                self._instances[id] = replace(instance, ended=time.time())
                self._use_reservation(instance.reservation, -1)

    def record_join(self, id: str, node: str) -> None:
        with self._lock:
            self._instances[id] = replace(self._instances[id], node=node)

    def instances(self) -> tuple[LaunchedInstance, ...]:
        """Every instance that was ever launched, in that order."""
        with self._lock:
            return tuple(self._instances.values())

    def refusals(self) -> tuple[Refusal, ...]:
        """Requests without capacity, the most frequent first."""
        with self._lock:
            rows = self._refused.most_common()
        return tuple(Refusal(*kind, times) for kind, times in rows)

    def _use_reservation(self, reservation: str | None, count: int) -> None:
        if reservation in self._reservations:
            record = self._reservations[reservation]
            self._reservations[reservation] = replace(record, left=max(0, record.left - count))


def reservations_of(env: Environment, pool: Pool) -> Iterator[Reservation]:
    """The pool's reservations; their contents are not declared, so they are assumed.

    Each is for the pool's first machine in its first zone, with as many instances as the pool's limits allow.
    """
    if not pool.by_karpenter or "reserved" not in pool.capacity:
        return
    machine = pool.machines[0]
    total = addresses.max_nodes(pool, machine)
    for id in sorted(pool.aws_settings.reservations):
        yield Reservation(
            id=id, machine=machine.name, zone=node_groups.zones(env, pool)[0], total=total, left=total
        )

"""What the simulated AWS sells, its prices, and its shortages."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gpuform.usage.rehearsal import Refusal
from infra.model import addresses
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.prices import PriceList
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
        asked = ((self.machine, machine), (self.zone, zone), (self.capacity, capacity))
        return all(short in (ANY, wanted) for short, wanted in asked)


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A capacity reservation of one type in one zone; ``left`` of ``total`` instances are not used."""

    id: str
    machine: str
    zone: str
    total: int
    left: int


@dataclass(frozen=True, kw_only=True)
class Bought:
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
        self._own = env.cost.prices if env.cost else {}
        # A machine without its own price gets that of a pool that may use it: AWS has a price for each.
        pools = {one.name: self._own[pool.name] for pool in _priced(env) for one in pool.machines}
        own = env.catalogue.own_machines.values()
        declared = {one.name: one.usd_per_hour for one in own if one.usd_per_hour is not None}
        self._usd = {**pools, **prices.usd_per_hour, **declared}
        self._spot = (env.cost.spot_factor if env.cost else None) or 1.0
        self._shortages: tuple[Shortage, ...] = ()
        self._reservations = {one.id: one for pool in env.pools for one in reserved(env, pool)}
        self._book: dict[str, Bought] = {}
        self._refused: Counter[tuple[str, str, CapacityType]] = Counter()

    def set_short(self, *shortages: Shortage) -> None:
        """Replace all shortages by these."""
        self._shortages = shortages

    def use_up(self, reservation: str, left: int = 0) -> None:
        """Set the instances left in a reservation, as if others used the rest. Raises KeyError."""
        with self._lock:
            self._reservations[reservation] = replace(self._reservations[reservation], left=left)

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        with self._lock:
            return tuple(self._reservations.values())

    def price(self, machine: str, capacity: CapacityType, pool: str = "") -> float | None:
        """USD per hour; a reserved instance has the on-demand price, since a reservation costs that."""
        usd = self._own.get(pool, self._own.get(machine, self._usd.get(machine)))
        return usd * self._spot if usd is not None and capacity == "spot" else usd

    @property
    def listed(self) -> Mapping[str, float]:
        """On-demand USD per hour of all machines with a price."""
        return {**self._usd, **{name: usd for name, usd in self._own.items() if name in self.machines}}

    def capacity_for(self, machine: str, zone: str, capacity: CapacityType, reservation: str | None) -> int:
        if any(short.covers(machine, zone, capacity) for short in self._shortages):
            return 0
        if reservation is None:
            return 10**6
        with self._lock:
            held = self._reservations.get(reservation)
        return held.left if held and (held.machine, held.zone) == (machine, zone) else 0

    def sold(self, instances: Iterable[Bought]) -> None:
        """Record new instances; reserved ones use up their reservation."""
        with self._lock:
            for one in instances:
                self._book[one.id] = one
                self._take(one.reservation, 1)

    def refuse(self, machine: str, zone: str, capacity: CapacityType) -> None:
        with self._lock:
            self._refused[machine, zone, capacity] += 1

    def ended(self, ids: Iterable[str]) -> None:
        """Record the end of instances; reserved capacity becomes available again."""
        with self._lock:
            for id in ids:
                one = self._book.get(id)
                if one and one.ended is None:
                    self._book[id] = replace(one, ended=time.time())
                    self._take(one.reservation, -1)

    def joined(self, id: str, node: str) -> None:
        with self._lock:
            self._book[id] = replace(self._book[id], node=node)

    def bought(self) -> tuple[Bought, ...]:
        """Every instance that was ever launched, in that order."""
        with self._lock:
            return tuple(self._book.values())

    def refusals(self) -> tuple[Refusal, ...]:
        """Requests without capacity, the most frequent first."""
        with self._lock:
            rows = self._refused.most_common()
        return tuple(Refusal(*kind, times) for kind, times in rows)

    def _take(self, reservation: str | None, count: int) -> None:
        if reservation in self._reservations:
            held = self._reservations[reservation]
            self._reservations[reservation] = replace(held, left=max(0, held.left - count))


def _priced(env: Environment) -> Iterator[Pool]:
    own = env.cost.prices if env.cost else {}
    return (pool for pool in env.pools if pool.by_karpenter and pool.name in own)


def reserved(env: Environment, pool: Pool) -> Iterator[Reservation]:
    """The pool's reservations; their contents are not declared, so they are assumed.

    Each is for the pool's first machine in its first zone, with as many instances as the pool's limits allow.
    """
    if not pool.by_karpenter or "reserved" not in pool.capacity:
        return
    machine = pool.machines[0]
    total = addresses.with_surge(env.strategy(pool), pool, machine)
    for id in sorted(pool.on_aws.reservations):
        yield Reservation(
            id=id, machine=machine.name, zone=node_groups.zones(env, pool)[0], total=total, left=total
        )

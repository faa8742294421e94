"""Quotas of teams by pool and resource, and what a team can have with all that its cohort lends.

Kueue's rules (0.19.2): apis/kueue/v1beta2/clusterqueue_types.go, pkg/cache/scheduler/resource_node.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.model import room
from infra.model.errors import InputError
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.queues import Queues, Team


@dataclass(frozen=True)
class Limit:
    """A team's quota of one resource of one pool; ``borrow`` and ``lend`` are None without a limit."""

    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None

    @property
    def lent(self) -> int:
        """Most that others can borrow of it."""
        return self.nominal if self.lend is None else self.lend


Limits = Mapping[str, Mapping[str, Limit]]
"""By pool, in the order of the quota, and by resource; claimed devices under the name of their class."""


def of(strategy: MigStrategy, pools: Sequence[Pool], team: Team) -> Limits:
    """The team's limits of all that its pools offer. Raises InputError, with a path relative to the team."""
    found: dict[str, dict[str, Limit]] = {}
    for name in team.quota:
        nominal, borrow, lend = (
            _numbers(strategy, pools, field, name, amounts)
            for field, amounts in (("quota", team.quota), ("borrow", team.borrow), ("lend", team.lend))
        )
        pool = next(one for one in pools if one.name == name)
        found[name] = {}
        for key in room.keys(strategy, pool):
            what = room.resource(key)
            for field, given in (("borrow", borrow), ("lend", lend)):
                if key in given and key not in nominal:
                    fact = f"quota names no {what} of the pool"
                    raise InputError(f"{field}.{name}", fact, "add it to quota, with 0 to only borrow it")
            if lend.get(key, 0) > nominal.get(key, 0):
                fact = f"lends {lend[key]} {what}, and the quota is {nominal[key]}"
                raise InputError(f"lend.{name}", fact, f"use {nominal[key]} or less")
            unnamed = 0 if team.cohort and key not in nominal else None
            found[name][what] = Limit(nominal.get(key, 0), borrow.get(key, unnamed), lend.get(key))
    for field, entries in (("borrow", team.borrow), ("lend", team.lend)):
        for name in entries:
            if name not in team.quota:
                fact = "quota does not name this pool"
                raise InputError(f"{field}.{name}", fact, "add it to quota, with 0 to only borrow")
    return found


def _numbers(
    strategy: MigStrategy,
    pools: Sequence[Pool],
    field: str,
    name: str,
    amounts: Mapping[str, int | dict[str, int]],
) -> dict[str, int]:
    return dict(room.amounts(strategy, pools, field, name, amounts[name])) if name in amounts else {}


def groups(limits: Limits) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pools and resources that belong together: pools that offer the same resource, directly or by others.

    A resource is in one resource group only, and all flavors of a group have all its resources.
    """
    found: list[tuple[set[str], set[str]]] = []
    for name, offered in limits.items():
        pools, resources = {name}, set(offered)
        for one in [one for one in found if one[1] & resources]:
            found.remove(one)
            pools, resources = pools | one[0], resources | one[1]
        found.append((pools, resources))
    return sorted(
        ((tuple(name for name in limits if name in pools), tuple(sorted(names))) for pools, names in found),
        key=lambda group: list(limits).index(group[0][0]),
    )


def roots(queues: Queues) -> dict[str, str | None]:
    """Root of each team's tree of cohorts, by team; None without a cohort. The tree must have no circle."""
    parents = {cohort.name: cohort.parent for cohort in queues.cohorts}
    found = {}
    for team in queues.teams:
        at = team.cohort
        while at is not None and parents.get(at) is not None:
            at = parents[at]
        found[team.name] = at
    return found


def most(queues: Queues, limits: Mapping[str, Limits], team: str, pool: str, resource: str) -> int:
    """Most of a resource that the team can have if all others of its tree lend all they may.

    Cohorts have no quota and no limits of their own, so only the teams' limits count.
    """
    of_team, root = limits[team][pool].get(resource, Limit()), roots(queues)
    others = [one for one in limits if one != team and root[one] is not None and root[one] == root[team]]
    lent = sum(limits[one].get(pool, {}).get(resource, Limit()).lent for one in others)
    return of_team.nominal + (lent if of_team.borrow is None else min(lent, of_team.borrow))

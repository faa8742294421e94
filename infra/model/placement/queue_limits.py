"""Quotas of teams by pool and resource, and what a team can have with all that its cohort lends.

Kueue's rules (0.19.2): apis/kueue/v1beta2/clusterqueue_types.go, pkg/cache/scheduler/resource_node.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.model.base.errors import InputError
from infra.model.placement import quotas
from infra.model.pool.pool import Pool
from infra.model.workload.queues import Queues, Team


@dataclass(frozen=True)
class Limit:
    """A team's quota of one resource of one pool; ``borrow`` and ``lend`` are None without a limit."""

    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None

    @property
    def lendable(self) -> int:
        """Most that others can borrow of it."""
        return self.nominal if self.lend is None else self.lend


Limits = Mapping[str, Mapping[str, Limit]]
"""By pool, in the order of the quota, and by resource; claimed devices under the name of their class."""


def limits_of(pools: Sequence[Pool], team: Team) -> Limits:
    """The team's limits of all that its pools offer. Raises InputError, with a path relative to the team."""
    limits: dict[str, dict[str, Limit]] = {}
    for name in team.quota:
        nominal, borrow, lend = (
            dict(quotas.quota_amounts(pools, field, name, amounts[name])) if name in amounts else {}
            for field, amounts in (("quota", team.quota), ("borrow", team.borrow), ("lend", team.lend))
        )
        pool = next(candidate for candidate in pools if candidate.name == name)
        limits[name] = {}
        for key in quotas.quota_keys(pool):
            resource = quotas.counted_resource(key)
            for field, amounts_of_field in (("borrow", borrow), ("lend", lend)):
                if key in amounts_of_field and key not in nominal:
                    fact = f"quota names no {resource} of the pool"
                    raise InputError(f"{field}.{name}", fact, "add it to quota, with 0 to only borrow it")
            if lend.get(key, 0) > nominal.get(key, 0):
                fact = f"lends {lend[key]} {resource}, and the quota is {nominal[key]}"
                raise InputError(f"lend.{name}", fact, f"use {nominal[key]} or less")
            default = 0 if team.cohort and key not in nominal else None
            limits[name][resource] = Limit(nominal.get(key, 0), borrow.get(key, default), lend.get(key))
    for field, entries in (("borrow", team.borrow), ("lend", team.lend)):
        for name in entries:
            if name not in team.quota:
                fact = "quota does not name this pool"
                raise InputError(f"{field}.{name}", fact, "add it to quota, with 0 to only borrow")
    return limits


def resource_groups(limits: Limits) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Pools and resources that belong together: pools that offer the same resource, directly or by others.

    A resource is in one resource group only, and all flavors of a group have all its resources.
    """
    merged: list[tuple[set[str], set[str]]] = []
    for name, resources_of_pool in limits.items():
        pools, resources = {name}, set(resources_of_pool)
        for group in [group for group in merged if group[1] & resources]:
            merged.remove(group)
            pools, resources = pools | group[0], resources | group[1]
        merged.append((pools, resources))
    return sorted(
        ((tuple(name for name in limits if name in pools), tuple(sorted(names))) for pools, names in merged),
        key=lambda group: list(limits).index(group[0][0]),
    )


def roots(queues: Queues) -> dict[str, str | None]:
    """Root of each team's tree of cohorts, by team; None without a cohort. The tree must have no circle."""
    parents = {cohort.name: cohort.parent for cohort in queues.cohorts}
    root_of_team = {}
    for team in queues.teams:
        cohort = team.cohort
        while cohort is not None and parents.get(cohort) is not None:
            cohort = parents[cohort]
        root_of_team[team.name] = cohort
    return root_of_team


def max_amount(queues: Queues, limits: Mapping[str, Limits], team: str, pool: str, resource: str) -> int:
    """Most of a resource that the team can have if all others of its tree lend all they may.

    Cohorts have no quota and no limits of their own, so only the teams' limits count.
    """
    own_limit, tree = limits[team][pool].get(resource, Limit()), roots(queues)
    lenders = [
        name for name in limits if name != team and tree[name] is not None and tree[name] == tree[team]
    ]
    lent = sum(limits[name].get(pool, {}).get(resource, Limit()).lendable for name in lenders)
    return own_limit.nominal + (lent if own_limit.borrow is None else min(lent, own_limit.borrow))

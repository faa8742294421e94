"""Queues: who may use how much of which pool, in which order, by Kueue's rules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.model.base import Count, Model, Name, PoolName, each_once
from infra.model.gang import Levels
from infra.model.scheduling import Amounts

KUEUE = "kueue-system"
"""Namespace of Kueue, as in its documentation."""
MOST_TEAMS = 1000
"""Our choice, for a bounded time."""
_PART = "for a pool with several kinds of slice {profile: number}"


class Cohort(Model):
    """Teams that lend each other what they do not use, or cohorts of such teams."""

    name: Name
    parent: Name | None = Field(
        default=None, description="Cohort that this one lends to and borrows from; none if left out."
    )


class Preempt(Model):
    """Which admitted workloads are ended for a waiting one; they then wait again."""

    within: Literal["never", "lower_priority"] = Field(
        default="never", description="In the team itself: those of lower priority, if its quota is used up."
    )
    reclaim: Literal["never", "lower_priority", "any"] = Field(
        default="never",
        description="In teams that have borrowed, if the waiting workload fits into the team's own quota.",
    )


class Team(Model):
    """One queue: the namespaces that use it, their quota of each pool, and what they may borrow and lend."""

    name: Name = Field(description="Name of the queue; workloads name it.")
    namespaces: Annotated[tuple[Name, ...], Field(min_length=1), each_once("name each namespace once")] = (
        Field(description="Namespaces with the queue; created if they do not exist, each in one team only.")
    )
    cohort: Name | None = Field(
        default=None, description="Teams of one cohort lend each other what they do not use."
    )
    quota: dict[PoolName, Amounts] = Field(
        min_length=1,
        description=f"GPUs, shares or slices of each pool that its admitted workloads may request; {_PART}. "
        "None of what is not named; 0 of what it only borrows. Pools are tried in this order.",
    )
    borrow: dict[PoolName, Amounts] = Field(
        default_factory=dict,
        description=f"Most that it borrows of a pool; {_PART}. If left out, all that its cohort lends.",
    )
    lend: dict[PoolName, Amounts] = Field(
        default_factory=dict,
        description=f"Most that it lends of a pool; {_PART}. If left out, all that it does not use.",
    )
    order: Literal["strict", "best_effort"] = Field(
        default="best_effort",
        description="By priority, then by time. strict: a workload that does not fit blocks all after it; "
        "best_effort: those after it that fit are admitted.",
    )
    preempt: Preempt = Field(default_factory=Preempt)
    weight: Count | None = Field(
        default=None, description="Its part of what is borrowed, with fair_sharing; 1 if left out."
    )


class Queues(Model):
    """Workloads wait in queues until their team's quota, or what its cohort lends, has room for them."""

    fair_sharing: bool = Field(
        default=False,
        strict=True,
        description="Divide what is borrowed by the teams' weights; else by priority, then by time.",
    )
    cohorts: tuple[Cohort, ...] = Field(
        default=(),
        max_length=MOST_TEAMS,
        description="A tree of cohorts. If left out, every name that a team gives is a cohort of its own.",
    )
    topology: dict[PoolName, Levels] = Field(
        default_factory=dict,
        description="Pools with gangs, each with labels of its nodes from the widest to the closest, as "
        "topology.kubernetes.io/zone and a rack's; [] if only nodes count. Kueue places nothing on a node "
        "that lacks one of them.",
    )
    teams: tuple[Team, ...] = Field(min_length=1, max_length=MOST_TEAMS)

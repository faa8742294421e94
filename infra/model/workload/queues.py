"""Queues: who may use how much of which pool, in which order, by Kueue's rules (0.19.2), and its gangs.

How close the nodes of a gang's pods are: apis/kueue/v1beta2/topology_types.go, pkg/util/tas/node.go.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.base.fields import Count, Flag, LabelKey, Model, Name, PoolName, each_once, option, required
from infra.model.platform.scheduling import Amounts

_MAX_LEVELS = 15
"""A Topology of Kueue has 16 levels; the last is the node."""


def _check_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    if labels.HOSTNAME in levels:
        fact = "the last level is always the node"
        raise InputError(f"[{levels.index(labels.HOSTNAME)}]", fact, "leave it out")
    return levels


Levels = Annotated[
    tuple[LabelKey, ...],
    Field(max_length=_MAX_LEVELS),
    each_once("name each label once"),
    AfterValidator(_check_levels),
]
"""Labels of a pool's nodes above the node itself, the widest first."""


class Placement(Model):
    """How close to each other a gang's nodes are, by one of the two; anywhere in its pool if left out."""

    required: LabelKey | None = option(
        "All its nodes have one value of this label; until they fit, it waits."
    )
    preferred: LabelKey | None = option(
        "The same if they fit, else within the level above, else anywhere in the pool."
    )

    @model_validator(mode="after")
    def _check_one_given(self) -> Placement:
        if (self.required is None) == (self.preferred is None):
            fact = "neither required nor preferred is given" if self.required is None else "both are given"
            raise InputError("required", fact, "give one of the two")
        return self

    @property
    def level(self) -> str:
        return self.required or self.preferred or ""


MAX_TEAMS = 1000
"""Our choice, for a bounded time."""
_PER_PROFILE = "for a pool with several kinds of slice {profile: number}"


class Cohort(Model):
    """Teams that lend each other what they do not use, or cohorts of such teams."""

    name: Name
    parent: Name | None = option("Cohort that this one lends to and borrows from; none if left out.")


class Preempt(Model):
    """Which admitted workloads are ended for a waiting one; they then wait again."""

    within: Literal["never", "lower_priority"] = option(
        "In the team itself: those of lower priority, if its quota is used up.", "never"
    )
    reclaim: Literal["never", "lower_priority", "any"] = option(
        "In teams that have borrowed, if the waiting workload fits into the team's own quota.", "never"
    )


class Team(Model):
    """One queue: the namespaces that use it, their quota of each pool, and what they may borrow and lend."""

    name: Name = required("Name of the queue; workloads name it.")
    namespaces: Annotated[tuple[Name, ...], Field(min_length=1), each_once("name each namespace once")] = (
        required("Namespaces with the queue; created if they do not exist, each in one team only.")
    )
    cohort: Name | None = option("Teams of one cohort lend each other what they do not use.")
    quota: dict[PoolName, Amounts] = required(
        f"GPUs, shares or slices of each pool that its admitted workloads may request; {_PER_PROFILE}. "
        "None of what is not named; 0 of what it only borrows. Pools are tried in this order.",
        min_length=1,
    )
    borrow: dict[PoolName, Amounts] = option(
        f"Most that it borrows of a pool; {_PER_PROFILE}. If left out, all that its cohort lends.", dict
    )
    lend: dict[PoolName, Amounts] = option(
        f"Most that it lends of a pool; {_PER_PROFILE}. If left out, all that it does not use.", dict
    )
    order: Literal["strict", "best_effort"] = option(
        "By priority, then by time. strict: a workload that does not fit blocks all after it; best_effort: "
        "those after it that fit are admitted.",
        "best_effort",
    )
    preempt: Preempt = Field(default_factory=Preempt)
    weight: Count | None = option("Its part of what is borrowed, with fair_sharing; 1 if left out.")


class Queues(Model):
    """Workloads wait in queues until their team's quota, or what its cohort lends, has room for them."""

    fair_sharing: Flag = option(
        "Divide what is borrowed by the teams' weights; else by priority, then by time.", False
    )
    cohorts: tuple[Cohort, ...] = option(
        "A tree of cohorts. If left out, every name that a team gives is a cohort of its own.",
        (),
        max_length=MAX_TEAMS,
    )
    topology: dict[PoolName, Levels] = option(
        "Pools with gangs, each with labels of its nodes from the widest to the closest, as "
        "topology.kubernetes.io/zone and a rack's; [] if only nodes count. Kueue places nothing on a node "
        "that lacks one of them.",
        dict,
    )
    teams: tuple[Team, ...] = Field(min_length=1, max_length=MAX_TEAMS)

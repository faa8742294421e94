"""Finds everything that an interrupted run of one stack has left; read-only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, backend
from gpuform.engine.pending import (
    CREATING,
    GIVEN_UP,
    RELEASE,
    UPDATING,
    Operation,
    operations,
)
from gpuform.stack.recover import aws, cluster, locks, openstack
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import FOR_YOU, Plan, Release, Step
from gpuform.stack.recover.releases import QUIET_HERE_S, QUIET_S

_HARMLESS = ("gpuform:", "pulumi:")
"""Safe to create again: our own provider's operations are idempotent, and a provider resource creates
nothing."""


@dataclass(frozen=True)
class Cloud:
    """A cloud with its own lookup of interrupted creates, and its check of the account or project.

    A refresh with the credentials of another account or project does not find the resources, and removes them
    from the state.
    """

    name: str
    prefix: str
    require_place: Callable[[str, Mapping[str, Any]], None]
    look: Callable[[Operation, Mapping[str, Any]], Step]


CLOUDS = (  # looked up at call time, so that tests can replace them
    Cloud("AWS", aws.PREFIX, lambda *asked: aws.require_account(*asked), aws.look),
    Cloud("OpenStack", openstack.PREFIX, lambda *asked: openstack.require_project(*asked), openstack.look),
)


@dataclass(frozen=True)
class Told:
    """The user's statements about the interrupted run.

    Locks with a dead owner, resources that were created, resources that were not created, and whether Magnum
    issues a new kubeconfig for the cluster.
    """

    gone: Sequence[str] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    never_made: Sequence[str] = ()
    renew_kubeconfig: bool = False


@dataclass(frozen=True)
class Stack:
    """A stack and its engine. ``at_cloud``: the cloud is queried; offline runs create nothing there."""

    name: str
    paths: Paths
    engine: Engine
    at_cloud: bool = True

    @property
    def env(self) -> dict[str, str]:
        return self.engine.environment(self.name)[0]

    @property
    def quiet_s(self) -> int:
        """Seconds after which a pending release may be changed."""
        return QUIET_S if self.at_cloud else QUIET_HERE_S

    def place(self) -> locks.Store:
        return locks.store(self.env["PULUMI_BACKEND_URL"], backend.project(self.paths.root), self.name)


def find(stack: Stack, told: Told | None = None, now: datetime | None = None) -> Plan:
    """Everything that interrupted runs have left, and how to resolve it.

    Raises Failure while a run lives, or may live, on the stack; if the state cannot be read; and if it is
    ambiguous which of two resources was created. InputError for a statement about a resource that is not
    pending.
    """
    told = told or Told()
    if told.renew_kubeconfig and not stack.at_cloud:
        fact = "needs Magnum, which an offline run does not query"
        raise InputError("--renew-kubeconfig", fact, "run without --offline")
    found = locks.require_removable(stack.name, stack.place().locks(), told.gone)
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    _require_pending(operations(state), told)
    steps, releases = asyncio.run(_look(stack, state, told, now or datetime.now(UTC)))
    return Plan(stack.name, stack.env["PULUMI_BACKEND_URL"], found, steps, releases, state)


async def _look(
    stack: Stack, state: Mapping[str, Any], told: Told, now: datetime
) -> tuple[tuple[Step, ...], tuple[Release, ...]]:
    todo = operations(state)
    making = [one for one in todo if one.kind == CREATING]
    anew = openstack.clusters(state) if told.renew_kubeconfig else []
    types = {*(one.type for one in todo), *(one.type for one in anew)}
    for cloud in CLOUDS if stack.at_cloud else ():
        if any(type.startswith(cloud.prefix) for type in types):
            cloud.require_place(stack.name, state)
    async with cluster.opened(state, stack.env) as clusters:
        releases = await cluster.pending_releases(clusters, making, now, stack.quiet_s)
        steps = [await _step(stack, one, state, told, clusters, releases) for one in todo]
    steps += [openstack.again(one, state, "renew") for one in anew]
    return tuple(steps), releases


async def _step(
    stack: Stack,
    one: Operation,
    state: Mapping[str, Any],
    told: Told,
    clusters: cluster.Clusters,
    releases: Sequence[Release],
) -> Step:
    known = any(have["urn"] == one.urn for have in states.resources(state))
    if one.type == RELEASE and one.kind == UPDATING and known:
        return await cluster.look(clusters, one, releases)
    resized = one.kind == UPDATING and known and one.type.startswith(openstack.PREFIX)
    if stack.at_cloud and (one.kind == GIVEN_UP or resized):
        return openstack.again(one, state)
    if one.kind != CREATING:
        if known:
            return Step.of(one, "refresh", "the live resource is read again")
        return Step.of(one, "clear", "nothing was changed")
    for name in (one.urn, one.name):
        if name in told.made:
            return Step.of(one, "import", "as given on the command line", told.made[name])
        if name in told.never_made:
            return Step.of(one, "clear", "as given on the command line")
    if one.type.startswith(cluster.PREFIX):
        return await cluster.look(clusters, one, releases)
    for cloud in CLOUDS:
        if one.type.startswith(cloud.prefix):
            nothing = Step.of(one, "clear", f"offline runs create nothing at {cloud.name}")
            return cloud.look(one, state) if stack.at_cloud else nothing
    if one.type.startswith(_HARMLESS):
        return Step.of(one, "clear", "it can safely be created again")
    why = f"this type is not supported; look it up, then --import {one.urn}=ID or --clear {one.urn}"
    return Step.of(one, FOR_YOU, why)


def _require_pending(todo: Sequence[Operation], told: Told) -> None:
    """Raise InputError for a given name that is not pending, is ambiguous, or is given twice."""
    making = [one for one in todo if one.kind == CREATING]
    names = Counter(word for one in making for word in {one.urn, one.name})
    for option, words in (("--import", told.made), ("--clear", told.never_made)):
        for word in words:
            if not names[word]:
                there = ", ".join(sorted({one.name for one in making})) or "none"
                raise InputError(option, f"{word} is not a pending create", f"pending creates: {there}")
            if names[word] > 1:
                urns = ", ".join(one.urn for one in making if one.name == word)
                raise InputError(
                    option, f"{word} is the name of several pending creates", f"give one of {urns}"
                )
    for one in making:
        if sum(word in {one.urn, one.name} for word in (*told.made, *told.never_made)) > 1:
            raise InputError("--import, --clear", f"{one.name} is given twice", "give it once")

"""Finds everything that an interrupted run of one stack has left; read-only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, backend
from gpuform.engine.pending import CREATING, GIVEN_UP, RELEASE, UPDATING, Operation, operations
from gpuform.stack.recover import cluster, locks
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import MANUAL, Plan, Recovery, Release, Step, recovery_of
from gpuform.stack.recover.releases import QUIET_HERE_S, QUIET_S

_HARMLESS = ("gpuform:", "pulumi:")
"""Safe to create again: our own provider's operations are idempotent, and a provider resource creates
nothing."""


@dataclass(frozen=True)
class UserDecisions:
    """The user's statements about the interrupted run.

    Locks with a dead owner, resources that were created, resources that were not created, and whether the
    cloud issues a new kubeconfig for the cluster.
    """

    gone: Sequence[str] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    never_made: Sequence[str] = ()
    renew_kubeconfig: bool = False


@dataclass(frozen=True)
class Stack:
    """A stack and its engine. ``at_cloud``: the clouds are queried; offline runs create nothing there."""

    name: str
    paths: Paths
    engine: Engine
    recoveries: Sequence[Recovery]
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


def find(stack: Stack, decisions: UserDecisions | None = None, now: datetime | None = None) -> Plan:
    """Everything that interrupted runs have left, and how to resolve it.

    Raises Failure while a run lives, or may live, on the stack; if the state cannot be read; and if it is
    ambiguous which of two resources was created. InputError for a statement about a resource that is not
    pending.
    """
    decisions = decisions or UserDecisions()
    if decisions.renew_kubeconfig and not stack.at_cloud:
        fact = "needs Magnum, which an offline run does not query"
        raise InputError("--renew-kubeconfig", fact, "run without --offline")
    found = locks.require_removable(stack.name, stack.place().locks(), decisions.gone)
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    _require_pending(operations(state), decisions)
    steps, releases = asyncio.run(_resolve(stack, state, decisions, now or datetime.now(UTC)))
    return Plan(stack.name, stack.env["PULUMI_BACKEND_URL"], found, steps, releases, state)


async def _resolve(
    stack: Stack, state: Mapping[str, Any], decisions: UserDecisions, now: datetime
) -> tuple[tuple[Step, ...], tuple[Release, ...]]:
    todo = operations(state)
    making = [one for one in todo if one.kind == CREATING]
    renewals = _renewals(stack, state) if decisions.renew_kubeconfig else []
    types = [one.type for one in (*todo, *(one for _, one in renewals))]
    for cloud in stack.recoveries if stack.at_cloud else ():
        if any(type.startswith(cloud.prefix) for type in types):
            cloud.require_place(stack.name, state)
    async with cluster.opened(state, stack.env) as clusters:
        releases = await cluster.pending_releases(clusters, making, now, stack.quiet_s)
        steps = [await _step(stack, one, state, decisions, clusters, releases) for one in todo]
    renewed = (cloud.reread(one, state, "renew") for cloud, one in renewals)
    return (*steps, *(step for step in renewed if step)), releases


def _renewals(stack: Stack, state: Mapping[str, Any]) -> list[tuple[Recovery, Operation]]:
    found = [(cloud, one) for cloud in stack.recoveries for one in cloud.renewable(state)]
    if not found:
        raise InputError("--renew-kubeconfig", "the stack has no Magnum cluster", "leave it out")
    return found


async def _step(
    stack: Stack,
    one: Operation,
    state: Mapping[str, Any],
    decisions: UserDecisions,
    clusters: cluster.Clusters,
    releases: Sequence[Release],
) -> Step:
    known = any(have["urn"] == one.urn for have in states.resources(state))
    if one.type == RELEASE and one.kind == UPDATING and known:
        return await cluster.lookup(clusters, one, releases)
    cloud = recovery_of(stack.recoveries, one.type)
    changing = one.kind == GIVEN_UP or (one.kind == UPDATING and known)
    if cloud and stack.at_cloud and changing and (step := cloud.reread(one, state)):
        return step
    if one.kind != CREATING:
        if known:
            return Step.of(one, "refresh", "the live resource is read again")
        return Step.of(one, "clear", "nothing was changed")
    for name in (one.urn, one.name):
        if name in decisions.made:
            return Step.of(one, "import", "as given on the command line", decisions.made[name])
        if name in decisions.never_made:
            return Step.of(one, "clear", "as given on the command line")
    if one.type.startswith(cluster.PREFIX):
        return await cluster.lookup(clusters, one, releases)
    if cloud and stack.at_cloud:
        return cloud.lookup(one, state)
    if cloud:
        return Step.of(one, "clear", f"offline runs create nothing at {cloud.name}")
    if one.type.startswith(_HARMLESS):
        return Step.of(one, "clear", "it can safely be created again")
    why = f"this type is not supported; look it up, then --import {one.urn}=ID or --clear {one.urn}"
    return Step.of(one, MANUAL, why)


def _require_pending(todo: Sequence[Operation], decisions: UserDecisions) -> None:
    """Raise InputError for a given name that is not pending, is ambiguous, or is given twice."""
    making = [one for one in todo if one.kind == CREATING]
    names = Counter(word for one in making for word in {one.urn, one.name})
    for option, words in (("--import", decisions.made), ("--clear", decisions.never_made)):
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
        if sum(word in {one.urn, one.name} for word in (*decisions.made, *decisions.never_made)) > 1:
            raise InputError("--import, --clear", f"{one.name} is given twice", "give it once")

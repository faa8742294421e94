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

_REPEATABLE = ("gpuform:", "pulumi:")
"""Safe to create again: our own provider's operations are idempotent, and a provider resource creates
nothing."""


@dataclass(frozen=True)
class UserDecisions:
    """The user's statements about the interrupted run.

    Locks with a dead owner, resources that were created, resources that were not created, and whether the
    cloud issues a new kubeconfig for the cluster.
    """

    ended_owners: Sequence[str] = ()
    imports: Mapping[str, str] = field(default_factory=dict)
    not_created: Sequence[str] = ()
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

    def lock_store(self) -> locks.Store:
        return locks.open_store(
            self.env["PULUMI_BACKEND_URL"], backend.project_name(self.paths.root), self.name
        )


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
    removable = locks.require_removable(stack.name, stack.lock_store().list_locks(), decisions.ended_owners)
    state = stack.engine.deployment(stack.env, stack.name, show_secrets=True)
    _require_pending(operations(state), decisions)
    steps, releases = asyncio.run(_resolve(stack, state, decisions, now or datetime.now(UTC)))
    return Plan(stack.name, stack.env["PULUMI_BACKEND_URL"], removable, steps, releases, state)


async def _resolve(
    stack: Stack, state: Mapping[str, Any], decisions: UserDecisions, now: datetime
) -> tuple[tuple[Step, ...], tuple[Release, ...]]:
    pending = operations(state)
    creating = [operation for operation in pending if operation.kind == CREATING]
    renewals = _list_renewals(stack, state) if decisions.renew_kubeconfig else []
    types = [operation.type for operation in (*pending, *(operation for _, operation in renewals))]
    for cloud in stack.recoveries if stack.at_cloud else ():
        if any(type.startswith(cloud.prefix) for type in types):
            cloud.require_account(stack.name, state)
    async with cluster.open_clusters(state, stack.env) as clusters:
        releases = await cluster.pending_releases(clusters, creating, now, stack.quiet_s)
        steps = [await _resolve_step(stack, item, state, decisions, clusters, releases) for item in pending]
    renewed = (cloud.reread(operation, state, "renew") for cloud, operation in renewals)
    return (*steps, *(step for step in renewed if step)), releases


def _list_renewals(stack: Stack, state: Mapping[str, Any]) -> list[tuple[Recovery, Operation]]:
    renewals = [(cloud, operation) for cloud in stack.recoveries for operation in cloud.renewable(state)]
    if not renewals:
        raise InputError("--renew-kubeconfig", "the stack has no Magnum cluster", "leave it out")
    return renewals


async def _resolve_step(
    stack: Stack,
    operation: Operation,
    state: Mapping[str, Any],
    decisions: UserDecisions,
    clusters: cluster.Clusters,
    releases: Sequence[Release],
) -> Step:
    known = any(resource["urn"] == operation.urn for resource in states.resources(state))
    if operation.type == RELEASE and operation.kind == UPDATING and known:
        return await cluster.resolve_object(clusters, operation, releases)
    cloud = recovery_of(stack.recoveries, operation.type)
    may_change = operation.kind == GIVEN_UP or (operation.kind == UPDATING and known)
    if cloud and stack.at_cloud and may_change and (step := cloud.reread(operation, state)):
        return step
    if operation.kind != CREATING:
        if known:
            return Step.of(operation, "refresh", "the live resource is read again")
        return Step.of(operation, "clear", "nothing was changed")
    for name in (operation.urn, operation.name):
        if name in decisions.imports:
            return Step.of(operation, "import", "as given on the command line", decisions.imports[name])
        if name in decisions.not_created:
            return Step.of(operation, "clear", "as given on the command line")
    if operation.type.startswith(cluster.PREFIX):
        return await cluster.resolve_object(clusters, operation, releases)
    if cloud and stack.at_cloud:
        return cloud.lookup(operation, state)
    if cloud:
        return Step.of(operation, "clear", f"offline runs create nothing at {cloud.name}")
    if operation.type.startswith(_REPEATABLE):
        return Step.of(operation, "clear", "it can safely be created again")
    urn = operation.urn
    why = f"this type is not supported; look it up, then --import {urn}=ID or --clear {urn}"
    return Step.of(operation, MANUAL, why)


def _require_pending(pending: Sequence[Operation], decisions: UserDecisions) -> None:
    """Raise InputError for a given name that is not pending, is ambiguous, or is given twice."""
    creating = [operation for operation in pending if operation.kind == CREATING]
    names = Counter(name for operation in creating for name in {operation.urn, operation.name})
    for option, given in (("--import", decisions.imports), ("--clear", decisions.not_created)):
        for name in given:
            if not names[name]:
                creatable = ", ".join(sorted({operation.name for operation in creating})) or "none"
                raise InputError(option, f"{name} is not a pending create", f"pending creates: {creatable}")
            if names[name] > 1:
                urns = ", ".join(operation.urn for operation in creating if operation.name == name)
                raise InputError(
                    option, f"{name} is the name of several pending creates", f"give one of {urns}"
                )
    for operation in creating:
        given = (*decisions.imports, *decisions.not_created)
        if sum(name in {operation.urn, operation.name} for name in given) > 1:
            raise InputError("--import, --clear", f"{operation.name} is given twice", "give it once")

"""Checks in the stack's clusters whether an object that a killed run was creating exists; read-only."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.engine.pending import CREATING, RELEASE, Operation
from gpuform.kubernetes.client import Client
from gpuform.kubernetes.kubeconfig import Access, resolve
from gpuform.stack.recover import releases
from gpuform.stack.recover import state as states
from gpuform.stack.recover.plan import MANUAL, Release, Step
from infra.model import labels

PREFIX = "kubernetes:"
_MANAGER = "pulumi-kubernetes-"  # followed by a random suffix, which no pending operation has
_OF_A_LOGIN = ("GPUFORM_OFFLINE", "GPUFORM_OFFLINE_KUBECONFIG", "GPUFORM_STATE", "KUBECONFIG")


@dataclass
class Clusters:
    """The clusters that the providers in a state reach, one client each.

    ``env`` is that of the engine's runs: commands that get tokens are looked up on its PATH.
    """

    state: Mapping[str, Any]
    env: Mapping[str, str]
    _open: dict[str, Client] = field(default_factory=dict)

    def of(self, resource: Mapping[str, Any]) -> Client:
        key = str(resource.get("provider"))
        if key not in self._open:
            config = states.provider(self.state, resource)
            self._open[key] = Client(_with_logins(resolve(config, self.env), self.env))
        return self._open[key]

    async def close(self) -> None:
        for client in self._open.values():
            await client.close()


@asynccontextmanager
async def opened(state: Mapping[str, Any], env: Mapping[str, str]) -> AsyncIterator[Clusters]:
    """Clusters of a state that was exported with its secrets; closes the connections at the end."""
    clusters = Clusters(state, env)
    try:
        yield clusters
    finally:
        await clusters.close()


def _with_logins(access: Access, env: Mapping[str, str]) -> Access:
    login = access.user.get("exec")
    if not login:
        return access
    command = shutil.which(login["command"], path=env["PATH"]) or login["command"]
    more = [{"name": name, "value": env[name]} for name in _OF_A_LOGIN if name in env]
    found = {**login, "command": command, "env": [*(login.get("env") or ()), *more]}
    return replace(access, user={**access.user, "exec": found})


async def pending_releases(
    clusters: Clusters, making: Sequence[Operation], now: datetime, quiet_s: int
) -> tuple[Release, ...]:
    """Every release of the stack that Helm has left pending, including those that were being installed."""
    known = [one for one in states.resources(clusters.state) if one["type"] == RELEASE]
    new = [one.resource for one in making if one.type == RELEASE]
    found = []
    for resource in (*known, *new):
        inputs = states.plain(resource.get("inputs") or {})
        id = releases.id_of(resource, inputs)
        try:
            seen = await releases.read(clusters.of(resource), id)
        except OperationError as problem:
            found.append(Release(resource["urn"], id, "unknown", MANUAL, str(problem)))
            continue
        ours = resource not in new or seen.made_by(inputs)
        if one := releases.settled(resource["urn"], seen, ours, now, quiet_s):
            found.append(one)
    return tuple(found)


async def lookup(clusters: Clusters, operation: Operation, settled: Sequence[Release]) -> Step:
    """How to resolve an interrupted create of an object, or a create or update of a release."""
    try:
        if operation.type == RELEASE:
            return await _release(clusters, operation, settled)
        assert operation.kind == CREATING
        return await _object(clusters, operation)
    except OperationError as problem:
        return Step.of(operation, MANUAL, f"{problem}; run the same command again when the cluster answers")


async def _release(clusters: Clusters, operation: Operation, settled: Sequence[Release]) -> Step:
    mine = next((one for one in settled if one.urn == operation.urn), None)
    inputs = states.plain(operation.resource.get("inputs") or {})
    id = releases.id_of(operation.resource, inputs)
    if mine and mine.does == MANUAL:
        return Step.of(operation, MANUAL, mine.why)
    found = await releases.read(clusters.of(operation.resource), id)
    if operation.kind != CREATING:
        if found.status in ("deployed", "") or mine:  # it is rolled back first
            return Step.of(operation, "refresh", "the live resource is read again")
        return Step.of(operation, "finish", f"revision {found.number} is {found.status}", id)
    if not found.number:
        return Step.of(operation, "clear", "the cluster has no such release")
    if not found.made_by(inputs):
        return Step.of(operation, MANUAL, f"release {id} exists, but was not created by this resource")
    if found.status == "deployed":
        return Step.of(operation, "import", "it exists, with the same chart and values", id)
    return Step.of(operation, "finish", "its installation has begun, with the same chart and values", id)


async def _object(clusters: Clusters, operation: Operation) -> Step:
    inputs: dict[str, Any] = states.plain(operation.resource.get("inputs") or {})
    metadata = inputs.get("metadata") or {}
    if operation.type.endswith("Patch"):
        return Step.of(operation, "clear", "a patch can safely be applied again")
    if not metadata.get("name"):
        return Step.of(operation, MANUAL, "the server generates its name, so it cannot be identified")
    client = clusters.of(operation.resource)
    live = await _find(client, inputs)
    if live is None:
        return Step.of(operation, "clear", "the cluster does not have it")
    id = "/".join(word for word in (live["metadata"].get("namespace"), metadata["name"]) if word)
    declared, has = (
        (one.get("labels") or {}).get(labels.ENVIRONMENT) for one in (metadata, live["metadata"])
    )
    if declared and declared == has:
        why = f"it exists, with the label {labels.ENVIRONMENT}={has}"
        managers = (one.get("manager", "") for one in live["metadata"].get("managedFields") or ())
        manager = next((name for name in managers if name.startswith(_MANAGER)), "")
        return Step.of(operation, "import", why, id, manager)
    return Step.of(operation, MANUAL, f"{id} exists, but was not created by this resource")


async def _find(client: Client, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The live object of a manifest; None also if the cluster does not have its kind."""
    version, metadata = str(manifest["apiVersion"]), manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    served = await client.find(root)
    for kind in (served or {}).get("resources", ()):
        if kind["kind"] == manifest["kind"] and "/" not in kind["name"]:
            namespace = metadata.get("namespace") or client.access.namespace
            place = f"/namespaces/{namespace}" if kind["namespaced"] else ""
            return await client.find(f"{root}{place}/{kind['name']}/{metadata['name']}")
    return None

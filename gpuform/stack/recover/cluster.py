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
from infra.model.base import labels

PREFIX = "kubernetes:"
_MANAGER = "pulumi-kubernetes-"  # followed by a random suffix, which no pending operation has
_LOGIN_VARIABLES = ("GPUFORM_OFFLINE", "GPUFORM_OFFLINE_KUBECONFIG", "GPUFORM_STATE", "KUBECONFIG")


@dataclass
class Clusters:
    """The clusters that the providers in a state reach, one client each.

    ``env`` is that of the engine's runs: commands that get tokens are looked up on its PATH.
    """

    state: Mapping[str, Any]
    env: Mapping[str, str]
    _open: dict[str, Client] = field(default_factory=dict)

    def client_for(self, resource: Mapping[str, Any]) -> Client:
        key = str(resource.get("provider"))
        if key not in self._open:
            config = states.provider_inputs(self.state, resource)
            self._open[key] = Client(_with_login_command(resolve(config, self.env), self.env))
        return self._open[key]

    async def close(self) -> None:
        for client in self._open.values():
            await client.close()


@asynccontextmanager
async def open_clusters(state: Mapping[str, Any], env: Mapping[str, str]) -> AsyncIterator[Clusters]:
    """Clusters of a state that was exported with its secrets; closes the connections at the end."""
    clusters = Clusters(state, env)
    try:
        yield clusters
    finally:
        await clusters.close()


def _with_login_command(access: Access, env: Mapping[str, str]) -> Access:
    exec_config = access.user.get("exec")
    if not exec_config:
        return access
    command = shutil.which(exec_config["command"], path=env["PATH"]) or exec_config["command"]
    variables = [{"name": name, "value": env[name]} for name in _LOGIN_VARIABLES if name in env]
    new_config = {**exec_config, "command": command, "env": [*(exec_config.get("env") or ()), *variables]}
    return replace(access, user={**access.user, "exec": new_config})


async def pending_releases(
    clusters: Clusters, making: Sequence[Operation], now: datetime, quiet_s: int
) -> tuple[Release, ...]:
    """Every release of the stack that Helm has left pending, including those that were being installed."""
    installed = [resource for resource in states.resources(clusters.state) if resource["type"] == RELEASE]
    created = [operation.resource for operation in making if operation.type == RELEASE]
    pending = []
    for resource in (*installed, *created):
        inputs = states.reveal_secrets(resource.get("inputs") or {})
        id = releases.release_id(resource, inputs)
        try:
            stored = await releases.read_release(clusters.client_for(resource), id)
        except OperationError as problem:
            pending.append(Release(resource["urn"], id, "unknown", MANUAL, str(problem)))
            continue
        is_own = resource not in created or stored.is_made_by(inputs)
        if release := releases.plan_release(resource["urn"], stored, is_own, now, quiet_s):
            pending.append(release)
    return tuple(pending)


async def resolve_object(clusters: Clusters, operation: Operation, settled: Sequence[Release]) -> Step:
    """How to resolve an interrupted create of an object, or a create or update of a release."""
    try:
        if operation.type == RELEASE:
            return await _resolve_release(clusters, operation, settled)
        assert operation.kind == CREATING
        return await _resolve_object(clusters, operation)
    except OperationError as problem:
        return Step.of(operation, MANUAL, f"{problem}; run the same command again when the cluster answers")


async def _resolve_release(clusters: Clusters, operation: Operation, settled: Sequence[Release]) -> Step:
    release = next((candidate for candidate in settled if candidate.urn == operation.urn), None)
    inputs = states.reveal_secrets(operation.resource.get("inputs") or {})
    id = releases.release_id(operation.resource, inputs)
    if release and release.does == MANUAL:
        return Step.of(operation, MANUAL, release.why)
    stored = await releases.read_release(clusters.client_for(operation.resource), id)
    if operation.kind != CREATING:
        if stored.status in ("deployed", "") or release:  # it is rolled back first
            return Step.of(operation, "refresh", "the live resource is read again")
        return Step.of(operation, "finish", f"revision {stored.number} is {stored.status}", id)
    if not stored.number:
        return Step.of(operation, "clear", "the cluster has no such release")
    if not stored.is_made_by(inputs):
        return Step.of(operation, MANUAL, f"release {id} exists, but was not created by this resource")
    if stored.status == "deployed":
        return Step.of(operation, "import", "it exists, with the same chart and values", id)
    return Step.of(operation, "finish", "its installation has begun, with the same chart and values", id)


async def _resolve_object(clusters: Clusters, operation: Operation) -> Step:
    inputs: dict[str, Any] = states.reveal_secrets(operation.resource.get("inputs") or {})
    metadata = inputs.get("metadata") or {}
    if operation.type.endswith("Patch"):
        return Step.of(operation, "clear", "a patch can safely be applied again")
    if not metadata.get("name"):
        return Step.of(operation, MANUAL, "the server generates its name, so it cannot be identified")
    client = clusters.client_for(operation.resource)
    live = await _find_live(client, inputs)
    if live is None:
        return Step.of(operation, "clear", "the cluster does not have it")
    id = "/".join(word for word in (live["metadata"].get("namespace"), metadata["name"]) if word)
    wanted, actual = (
        (metadata_.get("labels") or {}).get(labels.ENVIRONMENT) for metadata_ in (metadata, live["metadata"])
    )
    if wanted and wanted == actual:
        why = f"it exists, with the label {labels.ENVIRONMENT}={actual}"
        managers = (entry.get("manager", "") for entry in live["metadata"].get("managedFields") or ())
        manager = next((name for name in managers if name.startswith(_MANAGER)), "")
        return Step.of(operation, "import", why, id, manager)
    return Step.of(operation, MANUAL, f"{id} exists, but was not created by this resource")


async def _find_live(client: Client, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The live object of a manifest; None also if the cluster does not have its kind."""
    version, metadata = str(manifest["apiVersion"]), manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    api_resources = await client.find(root)
    for kind in (api_resources or {}).get("resources", ()):
        if kind["kind"] == manifest["kind"] and "/" not in kind["name"]:
            namespace = metadata.get("namespace") or client.access.namespace
            scope = f"/namespaces/{namespace}" if kind["namespaced"] else ""
            return await client.find(f"{root}{scope}/{kind['name']}/{metadata['name']}")
    return None

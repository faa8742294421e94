"""Asks the stack's clusters whether what a killed run was making is there; nothing is changed."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuform.engine.pending import CREATING, Operation
from gpuform.plugins.handler import PluginError
from gpuform.plugins.kubernetes.client import ApiError
from gpuform.plugins.kubernetes.cluster import Cluster, Settings
from gpuform.plugins.kubernetes.kubeconfig import Access, resolve
from gpuform.plugins.kubernetes.naming import field_manager, object_id
from gpuform.plugins.kubernetes.release_helm import Helm
from gpuform.recover import releases
from gpuform.recover import state as states
from gpuform.recover.plan import FOR_YOU, Release, Step
from infra.model import labels

PREFIX = "kubernetes:"
_OF_A_LOGIN = ("GPUFORM_OFFLINE", "GPUFORM_OFFLINE_KUBECONFIG", "GPUFORM_STATE", "KUBECONFIG")


@dataclass
class Clusters:
    """The clusters that the providers in a state reach, each asked over one client.

    ``env`` is that of the engine's runs: commands that get tokens are found on its PATH.
    """

    state: Mapping[str, Any]
    env: Mapping[str, str]
    folder: Path
    _open: dict[str, Cluster] = field(default_factory=dict)

    def of(self, resource: Mapping[str, Any]) -> Cluster:
        """The cluster that a resource is in."""
        key = str(resource.get("provider"))
        if key not in self._open:
            config = states.provider(self.state, resource)
            access = _with_logins(resolve(config, self.env), self.env)
            self._open[key] = Cluster(access, Settings.of(config, self.env))
        return self._open[key]

    def helm(self, resource: Mapping[str, Any]) -> Helm:
        """helm for that cluster, with the locks of this checkout's own runs."""
        return Helm(self.of(resource).access, Path(self.env["GPUFORM_HELM"]), self.folder)

    async def close(self) -> None:
        """Close the connections."""
        for one in self._open.values():
            await one.client.close()


@asynccontextmanager
async def opened(state: Mapping[str, Any], env: Mapping[str, str], folder: Path) -> AsyncIterator[Clusters]:
    """Clusters of a state, exported with its secrets, for as long as this lasts."""
    clusters = Clusters(state, env, folder)
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
    clusters: Clusters, making: Sequence[Operation], now: datetime
) -> tuple[Release, ...]:
    """Every release of the stack that helm has left pending, those that were being made included."""
    known = [one for one in states.resources(clusters.state) if one["type"] == releases.TYPE]
    new = [one.resource for one in making if one.type == releases.TYPE]
    found = []
    for resource in (*known, *new):
        inputs = states.plain(resource.get("inputs") or {})
        id = releases.id_of(resource, inputs)
        try:
            seen = await releases.read(clusters.of(resource).client, id)
        except (PluginError, ApiError) as problem:
            found.append(Release(resource["urn"], id, "unknown", FOR_YOU, str(problem)))
            continue
        helm = clusters.helm(resource)
        ours = resource not in new or seen.made_by(resource["urn"], inputs)
        if one := releases.settled(resource["urn"], seen, ours, helm, now):
            found.append(one)
    return tuple(found)


async def look(clusters: Clusters, operation: Operation, settled: Sequence[Release]) -> Step:
    """What becomes of one object or release that was being made."""
    assert operation.kind == CREATING
    try:
        if operation.type == releases.TYPE:
            return await _release(clusters, operation, settled)
        return await _object(clusters, operation)
    except (PluginError, ApiError) as problem:
        return Step.of(operation, FOR_YOU, f"{problem}; look again when the cluster answers")


async def _release(clusters: Clusters, operation: Operation, settled: Sequence[Release]) -> Step:
    mine = next((one for one in settled if one.urn == operation.urn), None)
    inputs = states.plain(operation.resource.get("inputs") or {})
    id = releases.id_of(operation.resource, inputs)
    if mine and mine.does == "uninstall":
        return Step.of(operation, "clear", "its first installation never ended, and goes")
    if mine and mine.does == FOR_YOU:
        return Step.of(operation, FOR_YOU, mine.why)
    found = await releases.read(clusters.of(operation.resource).client, id)
    if found.newest is None:
        return Step.of(operation, "clear", "the cluster has no such release")
    if not found.made_by(operation.urn, inputs):
        return Step.of(operation, FOR_YOU, f"release {id} is there, and this resource did not make it")
    return Step.of(operation, "import", "it is there, with our label or with the same chart and values", id)


async def _object(clusters: Clusters, operation: Operation) -> Step:
    inputs: dict[str, Any] = states.plain(operation.resource.get("inputs") or {})
    metadata = inputs.get("metadata") or {}
    if operation.type.endswith("Patch"):
        return Step.of(operation, "clear", "a patch is applied again without harm")
    if not metadata.get("name"):
        return Step.of(operation, FOR_YOU, "the server makes up its name, so that it cannot be recognised")
    cluster = clusters.of(operation.resource)
    kind = await cluster.type_of(inputs)
    namespace = metadata.get("namespace") or cluster.access.namespace
    live = await cluster.client.find(kind.path(namespace, metadata["name"])) if kind else None
    if live is None:
        return Step.of(operation, "clear", "the cluster has none of it")
    managers = {one.get("manager") for one in live["metadata"].get("managedFields") or ()}
    if field_manager(operation.urn) in managers:
        return Step.of(operation, "import", "it is there, and its fields are ours", object_id(live))
    declared, has = (
        (one.get("labels") or {}).get(labels.ENVIRONMENT) for one in (metadata, live["metadata"])
    )
    if declared and declared == has:  # the official provider's field manager is random
        return Step.of(
            operation, "import", f"it is there, and labelled {labels.ENVIRONMENT}={has}", object_id(live)
        )
    return Step.of(operation, FOR_YOU, f"{object_id(live)} is there, and this resource did not make it")

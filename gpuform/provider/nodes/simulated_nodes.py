"""``gpuform:nodes:SimulatedNodes``: the Node objects of a pool of the embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.checkout.listing import key_path
from gpuform.provider.handler import Call, Change, CheckResult, DiffResult, InitFailed, Properties, ReadResult
from gpuform.provider.nodes import taints
from gpuform.provider.nodes.cluster import Cluster, Manifest, managed_labels
from gpuform.provider.nodes.inputs import check_inputs
from gpuform.provider.properties import UNKNOWN, reveal
from infra.model.base.labels import GPU_UNHEALTHY, HOSTNAME, NODE_STATE, POOL

_TEMPLATE = ("labels", "annotations", "taints")
_INPUTS = ("kubeconfig", "context", *_TEMPLATE, "nodes")
_MANAGER = "gpuform-simulated-nodes"
_FORMER_MANAGER = "pulumi-kubernetes-"
"""Start of the managers of versions that had a resource of the Kubernetes provider for each node."""


class SimulatedNodes:
    """One resource per pool: the engine writes its whole state at each step.

    ``nodes`` has the names. What differs on a live node is below its name, in the form of its manifest: only
    a refresh writes that, and the program's value is empty. The nodes belong to this resource alone, so
    fields set by other managers are overwritten; only the taint of the health loop stays. A node of the pool
    that this resource has applied and that no state has, since a run was killed, is deleted as well. Requests
    run in parallel: the client limits its connections. Kubeconfig and context are not compared.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs(news, _INPUTS, _failures(reveal(news)))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        """Each label, annotation and node; compared with the outputs, which lack nodes that failed."""
        old, new = _fields(reveal(olds)), _fields(reveal(news))
        changes = {
            path: Change.ADD if path not in old else Change.UPDATE if path in new else Change.DELETE
            for path in sorted({*old, *new})
            if path not in old or path not in new or old[path] != new[path]
        }
        return DiffResult(changes=changes)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", news
        return call.name, await self._apply(call, {}, news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """``nodes`` are those that exist, with what differs on them. Import is an error."""
        if not inputs:
            raise OperationError(
                f"{id}: a SimulatedNodes cannot be imported; declare it; it adopts the existing nodes"
            )
        declared, live = reveal(inputs), await self._live(inputs)
        nodes = {name: _differing(live[name], declared) for name in declared["nodes"] if name in live}
        return ReadResult(id, {**inputs, "nodes": nodes}, {**inputs, "nodes": nodes})

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Apply what has changed, then delete the nodes that left the pool."""
        return news if call.preview else await self._apply(call, reveal(olds), news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Delete every node, those that a killed run has created included."""
        old = reveal(olds)
        await self._delete(call, old_inputs, {*old["nodes"], *_own(await self._live(old_inputs), old)})

    async def _live(self, inputs: Properties) -> dict[str, Manifest]:
        """All nodes of the cluster by name: a label of the pool may be lost."""
        return {str(node["metadata"]["name"]): node for node in await self._clusters(inputs).nodes("")}

    async def _apply(self, call: Call, old: Mapping[str, Any], news: Properties) -> Properties:
        """Raises `InitFailed` if a node fails; the state then has the others, and those not yet deleted."""
        cluster, new, live = self._clusters(news), reveal(news), await self._live(news)
        unchanged = all(old.get(key) == new.get(key) for key in _TEMPLATE)
        before = old.get("nodes") or {}
        changed = [name for name in new["nodes"] if not unchanged or before.get(name) != {}]
        departed = {*before, *_own(live, new)} - {*new["nodes"]}
        failed = await _for_each(
            call, "applied", changed, lambda name: _apply_node(cluster, name, new, live.get(name))
        )
        if failed:
            kept = [name for name in [*new["nodes"], *departed] if name not in failed]
            reasons = [f"node {name}: {error}" for name, error in failed.items()]
            raise InitFailed(call.name, {**news, "nodes": {name: {} for name in kept}}, reasons)
        await self._delete(call, news, departed)
        return news

    async def _delete(self, call: Call, inputs: Properties, names: Collection[str]) -> None:
        client = self._clusters(inputs).client
        failed = await _for_each(call, "deleted", sorted(names), lambda name: client.delete(_path(name)))
        for error in failed.values():
            raise error


async def _for_each(
    call: Call, done: str, names: Collection[str], act: Callable[[str], Awaitable[object]]
) -> dict[str, OperationError]:
    """Do it for all nodes at once; returns the errors by name."""
    ended, failed = 0, dict[str, OperationError]()

    async def one(name: str) -> None:
        nonlocal ended
        try:
            await act(name)
        except OperationError as error:
            failed[name] = error
        ended += 1
        await call.status(f"nodes: {ended} of {len(names)} {done}")

    await asyncio.gather(*map(one, names))
    return failed


async def _apply_node(cluster: Cluster, name: str, inputs: Mapping[str, Any], live: Manifest | None) -> None:
    path = _path(name)
    body = _manifest(name, inputs)
    if out_of_use := [taint for taint in taints.current(live or {}) if taint["key"] == GPU_UNHEALTHY]:
        body["spec"] = {"taints": [*taints.current(body), *out_of_use]}
    await cluster.client.apply(path, body, manager=_MANAGER, force=True)
    for entry in live["metadata"].get("managedFields") or () if live else ():
        if entry["operation"] == "Apply" and entry["manager"].startswith(_FORMER_MANAGER):
            # A label that we give up later would stay as that manager's.
            await cluster.client.apply(path, _bare(name), manager=entry["manager"])


def _path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def _bare(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _manifest(name: str, inputs: Mapping[str, Any]) -> Manifest:
    node = _bare(name)
    node["metadata"] |= {
        "labels": {**inputs["labels"], HOSTNAME: name},
        "annotations": inputs.get("annotations") or {},
    }
    return {**node, "spec": {"taints": inputs["taints"]}} if inputs.get("taints") else node


def _own(live: Mapping[str, Manifest], inputs: Mapping[str, Any]) -> set[str]:
    """Names of the pool's nodes that this resource has applied."""
    pool = inputs["labels"][POOL]
    return {name for name, node in live.items() if managed_labels(node, _MANAGER).get(POOL) == pool}


def _differing(node: Manifest, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The live values of declared fields that differ; empty text for a label that is missing."""
    found: dict[str, Any] = {}
    wanted = _manifest(node["metadata"]["name"], inputs)
    for part in ("labels", "annotations"):
        live, declared = node["metadata"].get(part) or {}, wanted["metadata"][part]
        if values := {key: live.get(key, "") for key in declared if live.get(key) != declared[key]}:
            found.setdefault("metadata", {})[part] = values
    others = (NODE_STATE, GPU_UNHEALTHY)
    ours = [taint for taint in taints.current(node) if not taint["key"].startswith(others)]
    tainted, declared = (
        {taints.key_of(taint): taints.value_of(taint) for taint in listed}
        for listed in (ours, taints.current(wanted))
    )
    return found if tainted == declared else {**found, "spec": {"taints": ours}}


def _fields(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The compared values by their path; the name of a node is one."""
    nodes = inputs.get("nodes") or {}
    fields = dict(_leaves("", {key: inputs.get(key) or {} for key in ("labels", "annotations", "nodes")}))
    return fields | {key_path("nodes", name): "" for name in nodes} | {"taints": inputs.get("taints") or []}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, item in value.items():
        yield from _leaves(key_path(path, key) if path else key, item)


def _failures(news: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not news.get("kubeconfig"):
        yield "kubeconfig", "is missing; give a path, or the contents"
    if news.get("labels") is not UNKNOWN and POOL not in (news.get("labels") or {}):
        yield "labels", f"has no {POOL}, by which nodes of the pool are found"
    if news.get("nodes") is not UNKNOWN and not isinstance(news.get("nodes"), Mapping):
        yield "nodes", "is not a mapping from the nodes' names to {}"

"""A rehearsal's workloads as pods: created, counted, explained if pending, and halved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpuform.usage.nodes import Amounts, Pod
from gpuform.usage.queues import Queued
from gpuform.usage.rehearsal import Pending
from infra.model.environment import Environment
from infra.model.serving import COLOURS
from infra.model.workload import DeploymentWorkload, Workload
from infra.plan import notebooks, played, room, sharing, workloads
from lab.rehearse.cluster import EVENTS, Cluster
from lab.rehearse.reasons import SCHEDULER, TOLD, Event, latest, words

DURATION = "simulator.gpuform.io/duration"
"""Annotation of a pod: how long it runs. Without it a job's pods end in half a second."""
_LONG = "24h"
_COUNT = {"deployment": "replicas", "job": "parallelism"}
_PATHS = {
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "notebook": "/apis/apps/v1/namespaces/{}/statefulsets",
    "pod": "/api/v1/namespaces/{}/pods",
}


def manifests(env: Environment) -> tuple[dict[str, Any], ...]:
    """The workloads' objects and namespaces, as the program would create them; jobs run for a day.

    Every storage class that a notebook names exists: those of the cloud's cluster are not known.
    """
    spaces = [one for one in room.namespaces(env) if one["metadata"]["name"] != sharing.NAMESPACE]
    classes = notebooks.storage_classes(notebooks.named_classes(env))
    return (*spaces, *classes, *(_lasting(one) for one in workloads.manifests(env)))


def _lasting(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["kind"] != "Job":
        return manifest
    spec, template = manifest["spec"], manifest["spec"]["template"]
    annotated = {**template, "metadata": {**template["metadata"], "annotations": {DURATION: _LONG}}}
    return {**manifest, "spec": {**spec, "template": annotated}}


def wanted(env: Environment) -> int:
    """Pods of all workloads together."""
    return sum(work.pods for work in env.workloads)


def halve(cluster: Cluster, env: Environment, pods: Iterable[Pod]) -> None:
    left = {(work.namespace, work.name): work.pods for work in halved(env).workloads}
    for work in env.workloads:
        key = work.namespace, work.name
        path = f"{_PATHS[work.kind].format(work.namespace)}/{_owner(work)}"
        if work.kind in _COUNT:
            cluster.patch(path, {"spec": {_COUNT[work.kind]: left[key]}})
        elif key not in left and any(_is(pod, work) for pod in pods):
            cluster.delete(path)


def halved(env: Environment) -> Environment:
    """Half of each workload's pods, rounded down; of bare pods every second, in order of name."""
    bare = sorted((work.namespace, work.name) for work in env.workloads if work.kind == "pod")
    work = [
        one.model_copy(update={_COUNT[one.kind]: one.pods // 2} if one.kind in _COUNT else {})
        for one in env.workloads
        if one.kind != "pod" or bare.index((one.namespace, one.name)) % 2
    ]
    return env.model_copy(update={"workloads": tuple(work)})


def _is(pod: Pod, work: Workload) -> bool:
    return (pod.namespace, pod.workload) == (work.namespace, work.name)


def _owner(work: Workload) -> str:
    """Name of the object that creates the pods; with blue-green, the first colour is live."""
    coloured = isinstance(work, DeploymentWorkload) and work.blue_green
    return f"{work.name}-{COLOURS[0]}" if coloured else work.name


def events(cluster: Cluster) -> list[Event]:
    return latest(cluster.items(EVENTS))


def placed(env: Environment, *moments: Iterable[Pod]) -> int:
    """Pods of the workloads that were placed at one of these moments; of a job not those that follow."""
    seen = [Counter((pod.namespace, pod.workload) for pod in one if pod.placed) for one in moments]
    return sum(min(one.pods, max(found[one.namespace, one.name] for found in seen)) for one in env.workloads)


def pending(
    env: Environment,
    pods: Iterable[Pod],
    said: Iterable[Event],
    held: Mapping[tuple[str, str], Queued] = MappingProxyType({}),
) -> tuple[Pending, ...]:
    """Every workload pod that does not run, and one entry per workload for pods that were not created.

    ``held`` is what queues hold back, by namespace and name; Kueue's reason then is the only one.
    """
    said, pods = list(said), list(pods)
    by_pod: dict[tuple[str, str], list[Event]] = {}
    for one in said:
        if one.kind == "Pod":
            by_pod.setdefault((one.namespace, one.name), []).append(one)
    found: list[Pending] = []
    for work in env.workloads:
        mine = [pod for pod in pods if _is(pod, work)]
        empty, full = _empty(env, work, said), _full(env, work)
        queued = held.get((work.namespace, _owner(work)))
        for pod in mine:
            if own := None if pod.node else held.get((pod.namespace, pod.name), queued):
                found.append(_held(work, pod.name, own, pod.asks))
            elif not pod.placed:
                found.append(_waiting(work, pod, by_pod.get((pod.namespace, pod.name), []), empty, full))
        if (missing := work.pods - len(mine)) > 0:
            found += [_held(work, work.name, queued)] if queued else _unmade(work, missing, said)
    return tuple(found)


def _held(work: Workload, name: str, queued: Queued, asks: Amounts = MappingProxyType({})) -> Pending:
    return Pending(work.namespace, name, work.name, work.pool or "", asks, queued.trouble, (), queued.queue)


def _empty(env: Environment, work: Workload, said: Iterable[Event]) -> list[Event]:
    """Karpenter's events about NodePools of the workload's pool without an available instance type."""
    names = env.pool(work.pool).node_pools if work.pool else ()
    reason = "NoCompatibleInstanceTypes"
    return [one for one in said if one.kind == "NodePool" and one.reason == reason and one.name in names]


def _full(env: Environment, work: Workload) -> str:
    """A remark if the node group of the workload's pool is at its maximum; empty otherwise."""
    pool = env.pool(work.pool) if work.pool else None
    if pool is None or not env.by_autoscaler(pool) or played.group_size(env, pool) < pool.most:
        return ""
    return f"; group {pool.name} is at its maximum of {pool.most} nodes"


def _waiting(work: Workload, pod: Pod, said: list[Event], empty: list[Event], full: str) -> Pending:
    told = [_current(one, pod) for one in said if one.reason == TOLD]
    texts = [f"{one.source}: {one.message}" for one in told]
    if pod.node:
        why = pod.trouble or f"it is scheduled to node {pod.node} but does not start"
        texts = [pod.trouble] if pod.trouble else []
    else:
        why = words(told, [one.name for one in empty]) or "no event gives a reason yet"
        why += full
        texts += [f"{one.source}, of NodePool {one.name}: {one.message}" for one in empty if texts]
    return Pending(pod.namespace, pod.name, work.name, work.pool or "", pod.asks, why, tuple(texts))


def _current(event: Event, pod: Pod) -> Event:
    """The scheduler's event with the message of the pod's condition: that of its last attempt.

    An event that repeats within minutes keeps the message of the first one (client-go's tools/events: the key
    of a series has no message).
    """
    now = pod.reason.removeprefix("Unschedulable: ")
    return replace(event, message=now) if event.source == SCHEDULER and now != pod.reason else event


def _unmade(work: Workload, missing: int, said: Iterable[Event]) -> Iterator[Pending]:
    # Events of a ReplicaSet, named after the workload and a hash, or of the Job.
    refused = [
        one.message
        for one in said
        if one.reason == "FailedCreate"
        and one.namespace == work.namespace
        and _owner(work) == (one.name.rpartition("-")[0] if one.kind == "ReplicaSet" else one.name)
    ]
    why = f"{missing} of its pods {'was' if missing == 1 else 'were'} not created"
    why += f": {refused[-1]}" if refused else ""
    yield Pending(work.namespace, work.name, work.name, work.pool or "", {}, why, tuple(refused[-1:]))

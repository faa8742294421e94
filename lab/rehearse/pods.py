"""A rehearsal's workloads as pods: created, counted, explained if pending, and halved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpuform.usage.nodes import Amounts, Pod
from gpuform.usage.queues import QueuedWorkload
from gpuform.usage.rehearsal import PendingPod
from infra.model.base.labels import COLOURS
from infra.model.environment import Environment
from infra.model.workload.workload import DeploymentWorkload, Workload
from infra.plan import nodes, notebooks, quotas, sharing, workloads
from lab.rehearse.cluster import EVENTS, Cluster
from lab.rehearse.reasons import FAILED_SCHEDULING, SCHEDULER, Event, latest_events, pending_reason

DURATION = "simulator.gpuform.io/duration"
"""Annotation of a pod: how long it runs. Without it a job's pods end in half a second."""
LONG = "24h"
_COUNT = {"deployment": "replicas", "statefulset": "replicas", "job": "parallelism"}
_PATHS = {
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "statefulset": "/apis/apps/v1/namespaces/{}/statefulsets",
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "notebook": "/apis/apps/v1/namespaces/{}/statefulsets",
    "pod": "/api/v1/namespaces/{}/pods",
}


def manifests(env: Environment) -> tuple[dict[str, Any], ...]:
    """The workloads' objects and namespaces, as the program would create them; jobs run for a day.

    Every storage class that a notebook names exists: those of the cloud's cluster are not known.
    """
    namespaces = [item for item in quotas.namespaces(env) if item["metadata"]["name"] != sharing.NAMESPACE]
    classes = notebooks.storage_classes(notebooks.home_storage_classes(env))
    return (*namespaces, *classes, *(_long_job(manifest) for manifest in workloads.manifests(env)))


def _long_job(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["kind"] != "Job":
        return manifest
    spec, template = manifest["spec"], manifest["spec"]["template"]
    annotated = {**template, "metadata": {**template["metadata"], "annotations": {DURATION: LONG}}}
    return {**manifest, "spec": {**spec, "template": annotated}}


def count_pods(env: Environment) -> int:
    return sum(work.pods for work in env.workloads)


def halve(cluster: Cluster, env: Environment, pods: Iterable[Pod]) -> None:
    counts = {(work.namespace, work.name): work.pods for work in halved(env).workloads}
    for work in env.workloads:
        key = work.namespace, work.name
        path = f"{_PATHS[work.kind].format(work.namespace)}/{_owner_name(work)}"
        if work.kind in _COUNT:
            cluster.patch(path, {"spec": {_COUNT[work.kind]: counts[key]}})
        elif key not in counts and any(_belongs(pod, work) for pod in pods):
            cluster.delete(path)


def halved(env: Environment) -> Environment:
    """Half of each workload's pods, rounded down; of bare pods every second, in order of name."""
    bare = sorted((work.namespace, work.name) for work in env.workloads if work.kind == "pod")
    half = [
        work.model_copy(update={_COUNT[work.kind]: work.pods // 2} if work.kind in _COUNT else {})
        for work in env.workloads
        if work.kind != "pod" or bare.index((work.namespace, work.name)) % 2
    ]
    return env.model_copy(update={"workloads": tuple(half)})


def _belongs(pod: Pod, work: Workload) -> bool:
    return (pod.namespace, pod.workload) == (work.namespace, work.name)


def _owner_name(work: Workload) -> str:
    """Name of the object that creates the pods; with blue-green, the first colour is live."""
    coloured = isinstance(work, DeploymentWorkload) and work.blue_green
    return f"{work.name}-{COLOURS[0]}" if coloured else work.name


def read_events(cluster: Cluster) -> list[Event]:
    return latest_events(cluster.items(EVENTS))


def count_placed(env: Environment, *moments: Iterable[Pod]) -> int:
    """Pods of the workloads that were placed at one of these moments; of a job not those that follow."""
    counters = [Counter((pod.namespace, pod.workload) for pod in pods if pod.is_placed) for pods in moments]
    return sum(
        min(work.pods, max(counter[work.namespace, work.name] for counter in counters))
        for work in env.workloads
    )


def pending_pods(
    env: Environment,
    pods: Iterable[Pod],
    events: Iterable[Event],
    queued_objects: Mapping[tuple[str, str], QueuedWorkload] = MappingProxyType({}),
) -> tuple[PendingPod, ...]:
    """Every workload pod that does not run, and one entry per work for pods that were not created.

    ``queued_objects`` is what queues hold back, by namespace and name; Kueue's reason then is the only one.
    """
    events, pods = list(events), list(pods)
    by_pod: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.kind == "Pod":
            by_pod.setdefault((event.namespace, event.name), []).append(event)
    entries: list[PendingPod] = []
    for work in env.workloads:
        own_pods = [pod for pod in pods if _belongs(pod, work)]
        no_machines, remark = _without_machines(env, work, events), _group_remark(env, work)
        queued = queued_objects.get((work.namespace, _owner_name(work)))
        for pod in own_pods:
            key = pod.namespace, pod.name
            if queued_pod := None if pod.node else queued_objects.get(key, queued):
                entries.append(
                    _pending(work, pod.name, queued_pod.trouble, (), pod.requests, queued_pod.queue)
                )
            elif not pod.is_placed:
                why, said = _pending_reason(pod, by_pod.get(key, []), no_machines, remark)
                entries.append(_pending(work, pod.name, why, said, pod.requests))
        if (missing := work.pods - len(own_pods)) > 0:
            why, said = (queued.trouble, ()) if queued else _not_created(work, missing, events)
            entries.append(_pending(work, work.name, why, said, queue=queued.queue if queued else ""))
    return tuple(entries)


def _pending(
    work: Workload,
    name: str,
    why: str,
    said: tuple[str, ...],
    asks: Amounts = MappingProxyType({}),
    queue: str = "",
) -> PendingPod:
    return PendingPod(work.namespace, name, work.name, work.pool or "", asks, why, said, queue)


def _without_machines(env: Environment, work: Workload, events: Iterable[Event]) -> list[Event]:
    """Karpenter's events about NodePools of the workload's pool without an available instance type."""
    names = env.pool(work.pool).node_pools if work.pool else ()
    reason = "NoCompatibleInstanceTypes"
    return [
        event
        for event in events
        if event.kind == "NodePool" and event.reason == reason and event.name in names
    ]


def _group_remark(env: Environment, work: Workload) -> str:
    """A remark if the node group of the workload's pool is at its maximum; empty otherwise."""
    pool = env.pool(work.pool) if work.pool else None
    if pool is None or not pool.by_autoscaler or nodes.group_size(env, pool) < pool.max_nodes:
        return ""
    return f"; group {pool.name} is at its maximum of {pool.max_nodes} nodes"


def _pending_reason(
    pod: Pod, events: list[Event], no_machines: list[Event], remark: str
) -> tuple[str, tuple[str, ...]]:
    """In words, and the events' texts."""
    if pod.node:
        why = pod.trouble or f"it is scheduled to node {pod.node} but does not start"
        return why, tuple(filter(None, [pod.trouble]))
    refusals = [_with_reason(event, pod) for event in events if event.reason == FAILED_SCHEDULING]
    texts = [f"{event.source}: {event.message}" for event in refusals]
    why = pending_reason(refusals, [event.name for event in no_machines]) or "no event gives a reason yet"
    if texts:
        texts += [f"{event.source}, of NodePool {event.name}: {event.message}" for event in no_machines]
    return why + remark, tuple(texts)


def _with_reason(event: Event, pod: Pod) -> Event:
    """The scheduler's event with the message of the pod's condition: that of its last attempt.

    An event that repeats within minutes keeps the message of the first one (client-go's tools/events: the key
    of a series has no message).
    """
    reason = pod.reason.removeprefix("Unschedulable: ")
    return replace(event, message=reason) if event.source == SCHEDULER and reason != pod.reason else event


def _not_created(work: Workload, missing: int, events: Iterable[Event]) -> tuple[str, tuple[str, ...]]:
    # Events of a ReplicaSet, named after the workload and a hash, or of the Job.
    refused = [
        event.message
        for event in events
        if event.reason == "FailedCreate"
        and event.namespace == work.namespace
        and _owner_name(work) == (event.name.rpartition("-")[0] if event.kind == "ReplicaSet" else event.name)
    ]
    why = f"{missing} of its pods {'was' if missing == 1 else 'were'} not created"
    return why + (f": {refused[-1]}" if refused else ""), tuple(refused[-1:])

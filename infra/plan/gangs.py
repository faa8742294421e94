"""What Kueue needs of a workload in a queue: labels, and annotations that say how its pods are placed.

A plain Indexed Job under Kueue starts whole: Kueue reserves a node's room for each pod, and admits the job
only then (keps/2724-topology-aware-scheduling). docs/adr/0013 says why it is no JobSet and no TrainJob.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.workload import DeploymentWorkload, JobWorkload, Workload

Manifest = dict[str, Any]

RETRIES = 6
"""Kubernetes' default for a whole Job; in a gang, all pods fail with the first."""


def queued(metadata: Manifest, work: Workload) -> Manifest:
    """Metadata with the queue's label, and so that an update does not wait for the turn of its pods.

    Not by skipAwait: then the provider does not wait for the deletion either, and a new object of the same
    name could not be created.
    """
    assert work.queue is not None
    found = {**metadata, "labels": {**metadata["labels"], labels.QUEUE: work.queue}}
    waits = isinstance(work, JobWorkload) or (isinstance(work, DeploymentWorkload) and work.blue_green)
    return found if waits else {**found, "annotations": {labels.WAIT_FOR: "jsonpath={.metadata.uid}"}}


def of_pods(env: Environment, work: Workload, pools: Sequence[Pool]) -> dict[str, str]:
    """Annotations of the workload's pods in the pools that it selects; empty if these have no topology.

    In a queue of pools with and without topologies, Kueue admits only annotated pods to the former
    (pkg/scheduler/flavorassigner/tas_flavorassigner.go), so every workload there is annotated.
    """
    team = next((team for team in env.queues.teams if team.name == work.queue), None) if env.queues else None
    if not env.queues or not team:
        return {}
    if not any(pool.name in env.queues.topology and pool.name in team.quota for pool in pools):
        return {}
    topology = work.topology if isinstance(work, JobWorkload) else None
    if topology is None:
        return {labels.TOPOLOGY_ANY: "true"}
    return {labels.TOPOLOGY_REQUIRED if topology.required else labels.TOPOLOGY_PREFERRED: topology.level}


def job(work: JobWorkload) -> dict[str, int]:
    """Fields of the Job's ``spec``: one failure of the gang counts once for each pod."""
    return {"backoffLimit": RETRIES * work.parallelism} if work.gang else {}

"""What training needs, as Kubernetes manifests: adapters, huge pages, /dev/shm, numbered pods that meet.

Sources: AWS's page "Run machine learning training on Amazon EKS with Elastic Fabric Adapter" (resource name);
Kubernetes' pages "Manage HugePages" (requests equal limits, medium of the volume), "Indexed Job for parallel
processing with static work assignment" and "Job with Pod-to-Pod Communication" (subdomain, Service, index).

And what Kueue needs of a workload in a queue: labels, and annotations that say how its pods are placed. A
plain Indexed Job under Kueue starts whole: Kueue reserves a node's room for each pod, and admits the job only
then (keps/2724-topology-aware-scheduling). docs/adr/0013 says why it is no JobSet and no TrainJob.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.model.base import labels
from infra.model.base.fields import INT32
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.model.workload.workload import DeploymentWorkload, JobWorkload, Workload
from infra.plan import rdma
from infra.plan.manifest import Manifest, cluster_ip_service

MASTER_PORT = 29500
"""The default port of torch.distributed."""
RETRIES = 6
"""Kubernetes' default for a whole Job, here for each pod at a time: others often fail with the first."""
DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
"""Evicted and preempted pods are no failures [Kubernetes' page "Pod failure policy"]."""


def resources(work: Workload, pools: Sequence[Pool]) -> dict[str, str]:
    """Requests beside CPU, memory and GPUs; the limits must be the same."""
    requests = {**({labels.EFA: str(work.efa)} if work.efa else {}), **rdma.requests(pools, work)}
    return {**requests, labels.HUGE_PAGES: work.hugepages} if work.hugepages else requests


def _volumes(work: Workload) -> dict[str, tuple[str, Manifest]]:
    """Mount path and emptyDir by name."""
    volumes: dict[str, tuple[str, Manifest]] = {}
    if work.shm:
        volumes["shm"] = "/dev/shm", {"medium": "Memory", "sizeLimit": work.shm}  # noqa: S108  (in the pod)
    if work.hugepages:
        volumes["hugepages"] = "/dev/hugepages", {"medium": "HugePages-2Mi"}
    return volumes


def container(work: Workload) -> Manifest:
    """Mounts of the container."""
    mounts = [{"name": name, "mountPath": path} for name, (path, _) in _volumes(work).items()]
    return {"volumeMounts": mounts} if mounts else {}


def pod(work: Workload) -> Manifest:
    """Volumes of the pod, and its subdomain if the job's other pods find it by name."""
    volumes = [{"name": name, "emptyDir": volume} for name, (_, volume) in _volumes(work).items()]
    fields: Manifest = {"volumes": volumes} if volumes else {}
    return (
        {**fields, "subdomain": work.name}
        if isinstance(work, JobWorkload) and work.has_rendezvous
        else fields
    )


def rank_variables(work: Workload) -> list[Manifest]:
    """Variables of an indexed job's pod: its number, the number of pods, and where the first pod is."""
    if not isinstance(work, JobWorkload) or not work.indexed:
        return []
    index = f"metadata.annotations['{labels.COMPLETION_INDEX}']"
    entries: list[Manifest] = [
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "WORLD_SIZE", "value": str(work.total)},
    ]
    if work.has_rendezvous:
        master = f"{work.name}-0.{work.name}"  # hostname of the pod with index 0, and subdomain
        entries += [
            {"name": "MASTER_ADDR", "value": master},
            {"name": "MASTER_PORT", "value": str(MASTER_PORT)},
        ]
    return entries


def service(job: JobWorkload, metadata: Manifest) -> Manifest | None:
    """The headless Service that gives the pods their DNS names; None if they do not meet.

    A name exists before its pod is ready, because the pods need each other for that. The update does not
    wait for endpoints: they exist only once a node does.
    """
    if not job.has_rendezvous:
        return None
    port = {"name": "rendezvous", "port": MASTER_PORT, "targetPort": MASTER_PORT}
    spec: Manifest = {"clusterIP": "None", "publishNotReadyAddresses": True}
    return cluster_ip_service(metadata, job.name, port, awaited=False, **spec)


def job_fields(job: JobWorkload) -> Manifest:
    """The ``spec`` without its template; by ``backoffLimitPerIndex`` a gang would go on without a pod."""
    fields: Manifest = {"parallelism": job.parallelism, "completions": job.total}
    fields |= {"completionMode": "Indexed"} if job.indexed else {}
    # Pods that failed before must not make a paused job fail.
    retries = {"backoffLimit": RETRIES * job.parallelism or INT32, "podFailurePolicy": {"rules": [DISRUPTED]}}
    return {**fields, **retries}


def unawaited_annotations() -> dict[str, str]:
    """Annotations of a Job for which an update does not wait.

    With skipAwait Pulumi's provider does not wait for the deletion either (pulumi-kubernetes, provider/pkg/
    metadata/overrides.go, ``allowsSkipAwaitWithDelete``), and a Job that replaces it needs its name: deleted
    in the background, the Job is gone before its pods, by default after them.
    """
    return {labels.SKIP_AWAIT: "true", labels.DELETION_PROPAGATION: "background"}


def queue_metadata(metadata: Manifest, work: Workload) -> Manifest:
    """Metadata with the queue's label, and so that an update does not wait for the turn of its pods.

    Not by skipAwait: then the provider does not wait for the deletion either, and a new object of the same
    name could not be created.
    """
    assert work.queue is not None
    queued = {**metadata, "labels": {**metadata["labels"], labels.QUEUE: work.queue}}
    is_awaited = isinstance(work, JobWorkload) or (isinstance(work, DeploymentWorkload) and work.blue_green)
    return queued if is_awaited else {**queued, "annotations": {labels.WAIT_FOR: "jsonpath={.metadata.uid}"}}


def pod_annotations(env: Environment, work: Workload, pools: Sequence[Pool]) -> dict[str, str]:
    """Annotations of the workload's pods in the pools that it selects; only replicas may be moved."""
    is_moved = isinstance(work, DeploymentWorkload) or env.cluster.kind in ("embedded", "hosts")
    return {**({} if is_moved else labels.KEPT), **_topology_annotations(env, work, pools)}


def _topology_annotations(env: Environment, work: Workload, pools: Sequence[Pool]) -> dict[str, str]:
    """Empty if these pools have no topology.

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

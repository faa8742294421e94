"""What training needs, as Kubernetes manifests: adapters, huge pages, /dev/shm, numbered pods that meet.

Sources: AWS's page "Run machine learning training on Amazon EKS with Elastic Fabric Adapter" (resource name);
Kubernetes' pages "Manage HugePages" (requests equal limits, medium of the volume), "Indexed Job for parallel
processing with static work assignment" and "Job with Pod-to-Pod Communication" (subdomain, Service, index).
"""

from __future__ import annotations

from typing import Any

from infra.model import labels
from infra.model.workload import JobWorkload, Workload

Manifest = dict[str, Any]
MASTER_PORT = 29500
"""The default port of torch.distributed."""


def resources(work: Workload) -> dict[str, str]:
    """Requests beside CPU, memory and GPUs; the limits must be the same."""
    found = {labels.EFA: str(work.efa)} if work.efa else {}
    return {**found, labels.HUGE_PAGES: work.hugepages} if work.hugepages else found


def _volumes(work: Workload) -> dict[str, tuple[str, Manifest]]:
    """Mount path and emptyDir by name."""
    found: dict[str, tuple[str, Manifest]] = {}
    if work.shm:
        found["shm"] = "/dev/shm", {"medium": "Memory", "sizeLimit": work.shm}  # noqa: S108  (in the pod)
    if work.hugepages:
        found["hugepages"] = "/dev/hugepages", {"medium": "HugePages-2Mi"}
    return found


def container(work: Workload) -> Manifest:
    """Mounts of the container."""
    mounts = [{"name": name, "mountPath": path} for name, (path, _) in _volumes(work).items()]
    return {"volumeMounts": mounts} if mounts else {}


def pod(work: Workload) -> Manifest:
    """Volumes of the pod, and its subdomain if the job's other pods find it by name."""
    volumes = [{"name": name, "emptyDir": volume} for name, (_, volume) in _volumes(work).items()]
    found: Manifest = {"volumes": volumes} if volumes else {}
    return {**found, "subdomain": work.name} if isinstance(work, JobWorkload) and work.meets else found


def environment(work: Workload) -> list[Manifest]:
    """Variables of an indexed job's pod: its number, the number of pods, and where the first pod is."""
    if not isinstance(work, JobWorkload) or not work.indexed:
        return []
    index = f"metadata.annotations['{labels.COMPLETION_INDEX}']"
    found: list[Manifest] = [
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "WORLD_SIZE", "value": str(work.total)},
    ]
    if work.meets:
        first = f"{work.name}-0.{work.name}"  # hostname of the pod with index 0, and subdomain
        found += [
            {"name": "MASTER_ADDR", "value": first},
            {"name": "MASTER_PORT", "value": str(MASTER_PORT)},
        ]
    return found


def service(work: JobWorkload, metadata: Manifest) -> Manifest | None:
    """The headless Service that gives the pods their DNS names; None if they do not meet.

    A name exists before its pod is ready, because the pods need each other for that. The update does not
    wait for endpoints: they exist only once a node does.
    """
    if not work.meets:
        return None
    port = {"name": "rendezvous", "port": MASTER_PORT, "protocol": "TCP", "targetPort": MASTER_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**metadata, "annotations": {labels.SKIP_AWAIT: "true"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {labels.APP_NAME: work.name},
            "ports": [port],
        },
    }


def job(work: JobWorkload) -> Manifest:
    """The ``spec`` of the Job without its template."""
    found: Manifest = {"parallelism": work.parallelism, "completions": work.total}
    return {**found, "completionMode": "Indexed"} if work.indexed else found


def unawaited() -> dict[str, str]:
    """Annotations of a Job for which an update does not wait.

    With skipAwait Pulumi's provider does not wait for the deletion either (pulumi-kubernetes, provider/pkg/
    metadata/overrides.go, ``allowsSkipAwaitWithDelete``), and a Job that replaces it needs its name: deleted
    in the background, the Job is gone before its pods, by default after them.
    """
    return {labels.SKIP_AWAIT: "true", labels.DELETION_PROPAGATION: "background"}

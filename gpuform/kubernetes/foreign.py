"""What would be lost with a namespace, a queue, or the nodes of a pool, read from the live cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuform.kubernetes.client import ApiError, Client
from gpuform.kubernetes.pods import condition, queued_object
from infra.model.base import labels, namespaces
from infra.model.base.guard_names import CERTIFICATES, KUEUE_API

Manifest = Mapping[str, Any]

VOLUME_CLAIM = "PersistentVolumeClaim"
_MANAGER = "gpuform"
_CONTROLLER_KINDS = ("events", "endpoints", "endpointslices", "leases", "controllerrevisions")
"""Kinds that controllers write about other objects."""
_DEFAULT_OBJECTS = (
    ("ConfigMap", "kube-root-ca.crt"),  # Kubernetes' root CA publisher
    ("ServiceAccount", "default"),
)
_NFD_GROUP = "nfd.k8s-sigs.io/"
"""Node feature discovery writes one object for each node into the operator's namespace."""
_OPERATOR_KINDS = ("ClusterPolicy", "NVIDIADriver")
"""NVIDIA's cluster-scoped kinds: they own the operator's operands."""
_DATALESS_NAMESPACES = (namespaces.PLACEHOLDER, namespaces.TRIAL)
"""Namespaces of pods that hold nothing: they keep room free, or try a GPU."""
_CUSTOM_KINDS: Mapping[str, tuple[str, ...]] = {
    namespaces.KEDA: ("keda.sh/v1alpha1/scaledobjects", "keda.sh/v1alpha1/scaledjobs"),
    namespaces.KSERVE: (
        "serving.kserve.io/v1beta1/inferenceservices",
        "serving.kserve.io/v1alpha1/inferencegraphs",
    ),
    namespaces.KUEUE: (f"{KUEUE_API}/clusterqueues",),
}
"""By namespace: kinds that its release deletes everywhere, because its chart's templates have their CRDs."""
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


async def running_pods(client: Client, pools: Collection[str]) -> dict[str, list[str]]:
    """Pods on the nodes of each pool, as ``namespace/name``, without those that every node has."""
    selector = {"labelSelector": f"{labels.POOL} in ({','.join(sorted(pools))})"}
    nodes = (await client.get("/api/v1/nodes", selector)).get("items") or ()
    pool_of = {str(node["metadata"]["name"]): str(node["metadata"]["labels"][labels.POOL]) for node in nodes}
    pods_of: dict[str, list[str]] = {pool: [] for pool in pools}
    if pool_of:
        for pod in (await client.get("/api/v1/pods", {"fieldSelector": _NOT_ENDED})).get("items") or ():
            pool = pool_of.get(str((pod.get("spec") or {}).get("nodeName")))
            if pool and not _is_node_pod(pod):
                pods_of[pool].append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return {pool: sorted(pods) for pool, pods in pods_of.items()}


def _is_node_pod(pod: Manifest) -> bool:
    """A DaemonSet's pod, a static pod, one that is being deleted, or one of ours that holds nothing."""
    metadata = pod["metadata"]
    owners = {str(owner.get("kind")) for owner in metadata.get("ownerReferences") or ()}
    return bool(
        owners & {"DaemonSet", "Node"}
        or metadata.get("deletionTimestamp")
        or metadata["namespace"] in _DATALESS_NAMESPACES
    )


async def queued_workloads(client: Client, environment: str) -> dict[str, list[str]]:
    """Workloads that have not ended and that the environment did not create, by Kueue's ClusterQueue.

    Each is named by what was queued, as ``Kind namespace/name (waits)``. Empty without Kueue.
    """
    selector = {"labelSelector": f"{labels.MANAGED_BY}={_MANAGER},{labels.ENVIRONMENT}={environment}"}
    workloads = await _list_custom(client, f"{KUEUE_API}/workloads")
    local_queues = await _list_custom(client, f"{KUEUE_API}/localqueues")
    cluster_queue_of = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): str(item["spec"]["clusterQueue"])
        for item in local_queues
    }
    own_uids: set[str] = set()
    for path in ("/api/v1/pods", "/apis/batch/v1/jobs"):
        items = (await client.get(path, selector)).get("items") or ()
        own_uids |= {str(item["metadata"]["uid"]) for item in items}
    names_of: dict[str, list[str]] = {}
    for item in workloads:
        metadata = item["metadata"]
        if own_uids & set(_owner_uids(item)) or condition(item, "Finished").get("status") == "True":
            continue
        admitted_by = str(((item.get("status") or {}).get("admission") or {}).get("clusterQueue") or "")
        local_queue = metadata["namespace"], item["spec"].get("queueName")
        queue = admitted_by or cluster_queue_of.get(local_queue, "")
        owner = queued_object(item)
        name = f"{owner['kind']} {metadata['namespace']}/{owner['name']}"
        names_of.setdefault(queue, []).append(name if admitted_by else f"{name} (waits)")
    return {queue: sorted(names) for queue, names in names_of.items()}


async def _list_custom(client: Client, path: str) -> Sequence[Manifest]:
    """Objects in all namespaces; none without their CRD."""
    try:
        return (await client.get(f"/apis/{path}", {})).get("items") or ()
    except ApiError as error:
        if error.code == 404:
            return ()
        raise


async def foreign_objects(
    client: Client, namespace: str, environment: str, releases: Collection[str]
) -> list[str]:
    """Objects in a namespace that the environment did not create, and volume claims, as ``Kind name``.

    Ours are the objects with the environment's labels, those of these Helm releases, and all that they own.
    Claims count in any case: their volumes hold data. Raises the client's errors; a kind that the credentials
    may not list is one of the entries.
    """
    if await client.find(f"/api/v1/namespaces/{namespace}") is None:
        return []
    listed = await asyncio.gather(
        *(_list_objects(client, path, kind, namespace) for path, kind in await _list_kinds(client))
    )
    objects = [item for items, _ in listed for item in items]
    own = _own_uids(objects, environment, releases)
    foreign_uids = {str(item["metadata"].get("uid")) for _, item in objects} - own
    names = [
        f"{kind} {item['metadata']['name']}"
        for kind, item in objects
        if kind == VOLUME_CLAIM
        or (str(item["metadata"].get("uid")) in foreign_uids and not foreign_uids & set(_owner_uids(item)))
    ]
    errors = [error for _, error in listed if error]
    return [*sorted(names, key=lambda item: (not item.startswith(VOLUME_CLAIM), item)), *errors]


async def lost_with_namespace(
    client: Client, namespace: str, environment: str, releases: Collection[str]
) -> list[str]:
    """``foreign_objects``, and those in other namespaces that go with the CRDs of the release in this one."""
    names = []
    for path in _CUSTOM_KINDS.get(namespace, ()):
        for item in await _list_custom(client, path):
            if not _is_own(item, environment, ()):
                kind, metadata = item.get("kind") or path.rpartition("/")[2], item["metadata"]
                names.append(f"{kind} {metadata.get('namespace', '')}/{metadata['name']}")
    return [*await foreign_objects(client, namespace, environment, releases), *sorted(names)]


async def _list_kinds(client: Client) -> list[tuple[str, str]]:
    """Path of the API version and plural, and kind, of every namespaced kind that holds something."""
    groups = (await client.get("/apis", {})).get("groups") or ()
    versions = [str(item["preferredVersion"]["groupVersion"]) for item in groups]
    paths = ["/api/v1", *(f"/apis/{item}" for item in versions if not item.startswith(_NFD_GROUP))]

    async def read(path: str) -> Iterator[tuple[str, str]]:
        try:
            resources = (await client.get(path, {})).get("resources") or ()
        except ApiError as error:
            if error.code in (404, 503):  # an aggregated API without its server, such as metrics
                return iter(())
            raise
        return iter(
            [
                (f"{path}/namespaces/{{}}/{item['name']}", str(item["kind"]))
                for item in resources
                if item.get("namespaced")
                and item["name"] not in _CONTROLLER_KINDS
                and {"list", "create"} <= set(item.get("verbs") or ())
            ]
        )

    return [kind for kinds in await asyncio.gather(*map(read, paths)) for kind in kinds]


async def _list_objects(
    client: Client, path: str, kind: str, namespace: str
) -> tuple[list[tuple[str, Manifest]], str]:
    try:
        items = (await client.get(path.format(namespace), {})).get("items") or ()
    except ApiError as error:
        if error.code in (404, 405):
            return [], ""
        return [], f"{kind}s, which cannot be listed ({error.message})"
    return [(kind, item) for item in items if not _is_default_object(kind, item)], ""


def _is_default_object(kind: str, item: Manifest) -> bool:
    is_token = "kubernetes.io/service-account.name" in (item["metadata"].get("annotations") or {})
    return (kind, item["metadata"]["name"]) in _DEFAULT_OBJECTS or (kind == "Secret" and is_token)


def _own_uids(
    objects: Iterable[tuple[str, Manifest]], environment: str, releases: Collection[str]
) -> frozenset[str]:
    """UIDs of our objects and of all that they own, however far."""
    items = [item for _, item in objects]
    own = {str(item["metadata"].get("uid")) for item in items if _is_own(item, environment, releases)}
    while True:
        owned = {str(item["metadata"].get("uid")) for item in items if own & set(_owner_uids(item))}
        if owned <= own:
            return frozenset(own)
        own |= owned


def _is_own(item: Manifest, environment: str, releases: Collection[str]) -> bool:
    metadata = item["metadata"]
    own_labels = metadata.get("labels") or {}
    if own_labels.get(labels.MANAGED_BY) == _MANAGER:
        return bool(own_labels.get(labels.ENVIRONMENT) == environment)
    release = (metadata.get("annotations") or {}).get("meta.helm.sh/release-name")
    release = release or (own_labels.get("name") if own_labels.get("owner") == "helm" else None)
    name = str(metadata["name"])  # of a webhook's certificate, which a job of kube-prometheus-stack makes
    is_certificate = name.endswith("-admission") and name.startswith(tuple(f"{item}-" for item in releases))
    is_operand = any(owner.get("kind") in _OPERATOR_KINDS for owner in metadata.get("ownerReferences") or ())
    return bool(release in releases or is_certificate or is_operand or name in CERTIFICATES)


def _owner_uids(item: Manifest) -> Iterator[str]:
    return (str(owner.get("uid")) for owner in item["metadata"].get("ownerReferences") or ())

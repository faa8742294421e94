"""What would be lost with a namespace, a queue, or the nodes of a pool, read from the live cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gpuform.kubernetes.client import ApiError, Client
from gpuform.kubernetes.pods import condition, queued_object
from infra.model import checks, labels, scheduling
from infra.model.losses import CERTIFICATES
from infra.plan.queues import QUEUES_API

Manifest = Mapping[str, Any]

VOLUME_CLAIM = "PersistentVolumeClaim"
_OURS = "gpuform"
_PASSING = ("events", "endpoints", "endpointslices", "leases", "controllerrevisions")
"""Kinds that controllers write about other objects."""
_OF_EVERY_NAMESPACE = (
    ("ConfigMap", "kube-root-ca.crt"),  # Kubernetes' root CA publisher
    ("ServiceAccount", "default"),
)
_FEATURES = "nfd.k8s-sigs.io/"
"""Node feature discovery writes one object for each node into the operator's namespace."""
_OPERATORS = ("ClusterPolicy", "NVIDIADriver")
"""NVIDIA's cluster-scoped kinds: they own the operator's operands."""
_WITHOUT_DATA = (scheduling.PLACEHOLDER, checks.TRIAL)
"""Namespaces of pods that hold nothing: they keep room free, or try a GPU."""
_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


async def running(client: Client, pools: Collection[str]) -> dict[str, list[str]]:
    """Pods on the nodes of each pool, as ``namespace/name``, without those that every node has."""
    asked = {"labelSelector": f"{labels.POOL} in ({','.join(sorted(pools))})"}
    nodes = (await client.get("/api/v1/nodes", asked)).get("items") or ()
    pool_of = {str(one["metadata"]["name"]): str(one["metadata"]["labels"][labels.POOL]) for one in nodes}
    found: dict[str, list[str]] = {pool: [] for pool in pools}
    if pool_of:
        for pod in (await client.get("/api/v1/pods", {"fieldSelector": _ENDED})).get("items") or ():
            pool = pool_of.get(str((pod.get("spec") or {}).get("nodeName")))
            if pool and not _of_the_node(pod):
                found[pool].append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return {pool: sorted(pods) for pool, pods in found.items()}


def _of_the_node(pod: Manifest) -> bool:
    """A DaemonSet's pod, a static pod, one that is being deleted, or one of ours that holds nothing."""
    metadata = pod["metadata"]
    owners = {str(one.get("kind")) for one in metadata.get("ownerReferences") or ()}
    return bool(
        owners & {"DaemonSet", "Node"}
        or metadata.get("deletionTimestamp")
        or metadata["namespace"] in _WITHOUT_DATA
    )


async def queued(client: Client, environment: str) -> dict[str, list[str]]:
    """Workloads that have not ended and that the environment did not create, by Kueue's ClusterQueue.

    Each is named by what was queued, as ``Kind namespace/name (waits)``. Empty without Kueue.
    """
    selector = {"labelSelector": f"{labels.MANAGED_BY}={_OURS},{labels.ENVIRONMENT}={environment}"}
    try:
        works = (await client.get(f"{QUEUES_API}/workloads", {})).get("items") or ()
        local = (await client.get(f"{QUEUES_API}/localqueues", {})).get("items") or ()
    except ApiError as error:
        if error.code == 404:
            return {}
        raise
    leads = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): str(one["spec"]["clusterQueue"])
        for one in local
    }
    ours: set[str] = set()
    for path in ("/api/v1/pods", "/apis/batch/v1/jobs"):
        ours |= {str(one["metadata"]["uid"]) for one in (await client.get(path, selector)).get("items") or ()}
    found: dict[str, list[str]] = {}
    for one in works:
        metadata = one["metadata"]
        if ours & set(_owners(one)) or condition(one, "Finished").get("status") == "True":
            continue
        held = str(((one.get("status") or {}).get("admission") or {}).get("clusterQueue") or "")
        queue = held or leads.get((metadata["namespace"], one["spec"].get("queueName")), "")
        owner = queued_object(one)
        name = f"{owner['kind']} {metadata['namespace']}/{owner['name']}"
        found.setdefault(queue, []).append(name if held else f"{name} (waits)")
    return {queue: sorted(names) for queue, names in found.items()}


async def foreign(client: Client, namespace: str, environment: str, releases: Collection[str]) -> list[str]:
    """Objects in a namespace that the environment did not create, and volume claims, as ``Kind name``.

    Ours are the objects with the environment's labels, those of these Helm releases, and all that they own.
    Claims count in any case: their volumes hold data. Raises the client's errors; a kind that the credentials
    may not list is one of the entries.
    """
    if await client.find(f"/api/v1/namespaces/{namespace}") is None:
        return []
    listed = await asyncio.gather(
        *(_objects(client, path, kind, namespace) for path, kind in await _kinds(client))
    )
    objects = [one for some, _ in listed for one in some]
    ours = _ours(objects, environment, releases)
    theirs = {str(one["metadata"].get("uid")) for _, one in objects} - ours
    roots = [
        f"{kind} {one['metadata']['name']}"
        for kind, one in objects
        if kind == VOLUME_CLAIM
        or (str(one["metadata"].get("uid")) in theirs and not theirs & set(_owners(one)))
    ]
    unknown = [why for _, why in listed if why]
    return [*sorted(roots, key=lambda one: (not one.startswith(VOLUME_CLAIM), one)), *unknown]


async def _kinds(client: Client) -> list[tuple[str, str]]:
    """Path of the API version and plural, and kind, of every namespaced kind that holds something."""
    groups = (await client.get("/apis", {})).get("groups") or ()
    versions = [str(one["preferredVersion"]["groupVersion"]) for one in groups]
    paths = ["/api/v1", *(f"/apis/{one}" for one in versions if not one.startswith(_FEATURES))]

    async def read(path: str) -> Iterator[tuple[str, str]]:
        try:
            resources = (await client.get(path, {})).get("resources") or ()
        except ApiError as error:
            if error.code in (404, 503):  # an aggregated API without its server, such as metrics
                return iter(())
            raise
        return iter(
            [
                (f"{path}/namespaces/{{}}/{one['name']}", str(one["kind"]))
                for one in resources
                if one.get("namespaced")
                and one["name"] not in _PASSING
                and {"list", "create"} <= set(one.get("verbs") or ())
            ]
        )

    return [kind for kinds in await asyncio.gather(*map(read, paths)) for kind in kinds]


async def _objects(
    client: Client, path: str, kind: str, namespace: str
) -> tuple[list[tuple[str, Manifest]], str]:
    try:
        items = (await client.get(path.format(namespace), {})).get("items") or ()
    except ApiError as error:
        if error.code in (404, 405):
            return [], ""
        return [], f"{kind}s, which cannot be listed ({error.message})"
    return [(kind, one) for one in items if not _of_every_namespace(kind, one)], ""


def _of_every_namespace(kind: str, one: Manifest) -> bool:
    token = "kubernetes.io/service-account.name" in (one["metadata"].get("annotations") or {})
    return (kind, one["metadata"]["name"]) in _OF_EVERY_NAMESPACE or (kind == "Secret" and token)


def _ours(
    objects: Iterable[tuple[str, Manifest]], environment: str, releases: Collection[str]
) -> frozenset[str]:
    """UIDs of our objects and of all that they own, however far."""
    every = [one for _, one in objects]
    ours = {str(one["metadata"].get("uid")) for one in every if _made_by_us(one, environment, releases)}
    while True:
        owned = {str(one["metadata"].get("uid")) for one in every if ours & set(_owners(one))}
        if owned <= ours:
            return frozenset(ours)
        ours |= owned


def _made_by_us(one: Manifest, environment: str, releases: Collection[str]) -> bool:
    metadata = one["metadata"]
    has = metadata.get("labels") or {}
    if has.get(labels.MANAGED_BY) == _OURS:
        return bool(has.get(labels.ENVIRONMENT) == environment)
    release = (metadata.get("annotations") or {}).get("meta.helm.sh/release-name")
    release = release or (has.get("name") if has.get("owner") == "helm" else None)
    name = str(metadata["name"])  # of a webhook's certificate, which a job of kube-prometheus-stack makes
    certificate = name.endswith("-admission") and name.startswith(tuple(f"{one}-" for one in releases))
    operand = any(owner.get("kind") in _OPERATORS for owner in metadata.get("ownerReferences") or ())
    return bool(release in releases or certificate or operand or name in CERTIFICATES)


def _owners(one: Manifest) -> Iterator[str]:
    return (str(owner.get("uid")) for owner in one["metadata"].get("ownerReferences") or ())

"""A cluster's nodes, pods and claims (Dynamic Resource Allocation), fetched once for all reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuform.kubernetes.kinds import (
    CLUSTER_QUEUE,
    NODE,
    NODE_POOL,
    POD,
    QUEUED,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Kind,
)
from gpuform.usage import queues
from gpuform.usage.queues import QueueStatus
from infra.model.base import labels
from infra.model.environment import Environment

Json = Mapping[str, Any]

_CLASSES: Mapping[str, str] = {"gpu": labels.GPU_DEVICE_CLASS, "mig": labels.MIG_DEVICE_CLASS}
"""Device class by type of NVIDIA device; the DRA driver has the name of the first class."""


@dataclass(frozen=True)
class Claims:
    """``devices`` counts what a node has, ``requested`` what a claim requests, both by device class.

    Nodes are keyed by name, claims by (namespace, name). Not counted: devices of other drivers than NVIDIA's,
    and devices with a taint that prevents allocation.
    """

    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    requested: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    allocated: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the devices allocated to a claim."""

    def allocated_to(self, pod: Json) -> tuple[str, ...]:
        """UUIDs of the devices allocated to a pod's claims."""
        return tuple(uuid for key in _claims_of(pod) for uuid in self.allocated.get(key, ()))

    def requested_by(self, pod: Json) -> dict[str, int]:
        """Devices that a pod's claims request; empty until the claims have been created."""
        counts: Counter[str] = Counter()
        for key in _claims_of(pod):
            counts.update(self.requested.get(key, {}))
        return dict(counts)


@dataclass(frozen=True)
class LiveObjects:
    """Live objects, as the API server returns them."""

    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    claims: Claims = Claims()
    node_pools: tuple[Json, ...] = ()
    """Karpenter's NodePools, with their status and limits."""
    queues: tuple[QueueStatus, ...] = ()


def fetch_objects(env: Environment, kubeconfig: Path, context: str | None = None) -> LiveObjects:
    """Fetch nodes, pods and `kinds_to_fetch`; OSError if the cluster does not answer, or refuses."""
    from gpuform.kubernetes.cluster import Reader

    with Reader(kubeconfig, context) as cluster:
        nodes, pods = cluster.list_objects(NODE), cluster.list_objects(POD)
        others = {kind: cluster.list_objects(kind) for kind in kinds_to_fetch(env)}
    claims = parse_claims(others.get(RESOURCE_SLICE, ()), others.get(RESOURCE_CLAIM, ()))
    queued = queues.summarise(env, others.get(CLUSTER_QUEUE, ()), others.get(QUEUED, ()))
    return LiveObjects(tuple(nodes), tuple(pods), claims, tuple(others.get(NODE_POOL, ())), queued)


def kinds_to_fetch(env: Environment) -> tuple[Kind, ...]:
    """Kinds beside nodes and pods: of DRA, of Karpenter if it scales a pool, of Kueue."""
    found: tuple[Kind, ...] = ()
    if any(pool.by_claim for pool in env.pools):
        found += (RESOURCE_SLICE, RESOURCE_CLAIM)
    if any(pool.elastic and pool.by_karpenter for pool in env.pools):
        found += (NODE_POOL,)
    return found + ((CLUSTER_QUEUE, QUEUED) if env.queues else ())


def _claims_of(pod: Json) -> Iterable[tuple[str, str]]:
    for status in pod.get("status", {}).get("resourceClaimStatuses") or ():
        yield pod["metadata"]["namespace"], status.get("resourceClaimName", "")


def parse_claims(slices: Iterable[Json], claims: Iterable[Json]) -> Claims:
    specs = _newest_slices([item["spec"] for item in slices])
    uuids = {
        (spec["pool"]["name"], item["name"]): _attribute(item, "uuid")
        for spec in specs
        for item in _devices_of(spec)
    }
    requested: dict[tuple[str, str], dict[str, int]] = {}
    allocated: dict[tuple[str, str], tuple[str, ...]] = {}
    for claim in claims:
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        requested[key] = _count_requested(claim["spec"])
        results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get(
            "results"
        ) or ()
        allocated[key] = tuple(uuids.get((item["pool"], item["device"]), item["device"]) for item in results)
    return Claims(devices=_count_devices(specs), requested=requested, allocated=allocated)


def _newest_slices(specs: list[Json]) -> list[Json]:
    """NVIDIA's slices of the newest generation; older ones are only waiting to be removed."""
    specs = [spec for spec in specs if spec["driver"] == labels.GPU_DEVICE_CLASS]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]


def _count_devices(specs: list[Json]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for spec in specs:
        if node := spec.get("nodeName"):
            on_node = counts.setdefault(node, {})
            for device in _devices_of(spec):
                name = _CLASSES.get(_attribute(device, "type"))
                if name and not _is_tainted(device):
                    on_node[name] = on_node.get(name, 0) + 1
    return counts


def _devices_of(spec: Json) -> Iterable[Json]:
    devices: Iterable[Json] = spec.get("devices") or ()
    return devices


def _attribute(device: Json, name: str) -> str:
    return str(device.get("attributes", {}).get(name, {}).get("string", ""))


def _is_tainted(device: Json) -> bool:
    return any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())


def _count_requested(spec: Json) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for request in spec.get("devices", {}).get("requests") or ():
        exactly = request.get("exactly") or {}
        if "deviceClassName" in exactly:
            counts[exactly["deviceClassName"]] += exactly.get("count", 1)
    return dict(counts)

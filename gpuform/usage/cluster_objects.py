"""A cluster's nodes, pods and claims (Dynamic Resource Allocation), fetched once for all reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuform.kubernetes.kubeconfigs import answered
from gpuform.usage import queues
from gpuform.usage.queues import QueueStatus
from infra.model import labels
from infra.model.environment import Environment

Json = Mapping[str, Any]

SLICES = "resourceslices.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
SLICES_PATH = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS_PATH = "/apis/resource.k8s.io/v1/resourceclaims"

_CLASSES: Mapping[str, str] = {"gpu": labels.GPU_DEVICE_CLASS, "mig": labels.MIG_DEVICE_CLASS}
"""Device class by type of NVIDIA device; the DRA driver has the name of the first class."""
NODE_POOLS = "nodepools.karpenter.sh"


@dataclass(frozen=True)
class Claims:
    """``devices`` counts what a node has, ``asked`` what a claim requests, both by device class.

    Nodes are keyed by name, claims by (namespace, name). Not counted: devices of other drivers than NVIDIA's,
    and devices with a taint that prevents allocation.
    """

    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    asked: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    given: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the devices allocated to a claim."""

    def given_to(self, pod: Json) -> tuple[str, ...]:
        """UUIDs of the devices allocated to a pod's claims."""
        return tuple(one for key in _claims_of(pod) for one in self.given.get(key, ()))

    def of_pod(self, pod: Json) -> dict[str, int]:
        """Devices that a pod's claims request; empty until the claims have been created."""
        found: Counter[str] = Counter()
        for key in _claims_of(pod):
            found.update(self.asked.get(key, {}))
        return dict(found)


@dataclass(frozen=True)
class Objects:
    """Live objects, as the API server returns them."""

    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    claims: Claims = Claims()
    node_pools: tuple[Json, ...] = ()
    """Karpenter's NodePools, with their status and limits."""
    queues: tuple[QueueStatus, ...] = ()


def fetch(env: Environment, kubeconfig: Path, context: str | None = None) -> Objects:
    """Fetch nodes, pods and `kinds`.

    Raises what httpx raises if the cluster cannot be reached, or an OSError if it refuses.
    """
    with answered():
        return _fetch(env, kubeconfig, context)


def _fetch(env: Environment, kubeconfig: Path, context: str | None) -> Objects:
    from kr8s.objects import Node, Pod

    from gpuform.kubernetes import session

    api = session.api(kubeconfig, context)
    nodes, pods = every(api, Node), every(api, Pod)
    wanted = kinds(env)
    claims = Claims()
    if CLAIMS in wanted:
        claims = gather(*(every(api, kind) for kind in (SLICES, CLAIMS)))
    node_pools = _known(api, NODE_POOLS) if NODE_POOLS in wanted else ()
    lined_up = [_known(api, kind) for kind in queues.KINDS] if env.queues else [(), ()]
    return Objects(nodes, pods, claims, node_pools, queues.summarise(env, *lined_up))


def kinds(env: Environment) -> tuple[str, ...]:
    """Kinds to fetch beside nodes and pods: DRA slices and claims; NodePools if Karpenter scales a pool."""
    found: tuple[str, ...] = ()
    if any(pool.by_claim for pool in env.pools):
        found += (SLICES, CLAIMS)
    if any(pool.elastic and env.by_karpenter(pool) for pool in env.pools):
        found += (NODE_POOLS,)
    return found


def _known(api: Any, kind: str) -> tuple[Json, ...]:
    """Empty if the CRD is not installed."""
    try:
        return every(api, kind)
    except ValueError:  # what kr8s raises for a kind that the server does not have
        return ()


def every(api: Any, kind: str | type) -> tuple[Json, ...]:
    """The objects of a kind in all namespaces. ValueError if the server does not have the kind."""
    import kr8s

    return tuple(dict(one.raw) for one in api.get(kind, namespace=kr8s.ALL))


def _claims_of(pod: Json) -> Iterable[tuple[str, str]]:
    for status in pod.get("status", {}).get("resourceClaimStatuses") or ():
        yield pod["metadata"]["namespace"], status.get("resourceClaimName", "")


def gather(slices: Iterable[Json], claims: Iterable[Json]) -> Claims:
    specs = _newest([one["spec"] for one in slices])
    uuids = {
        (spec["pool"]["name"], one["name"]): _text(one, "uuid") for spec in specs for one in _listed(spec)
    }
    asked: dict[tuple[str, str], dict[str, int]] = {}
    given: dict[tuple[str, str], tuple[str, ...]] = {}
    for claim in claims:
        key = (claim["metadata"]["namespace"], claim["metadata"]["name"])
        asked[key] = _asked(claim["spec"])
        results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get(
            "results"
        ) or ()
        given[key] = tuple(uuids.get((one["pool"], one["device"]), one["device"]) for one in results)
    return Claims(devices=_devices(specs), asked=asked, given=given)


def _newest(specs: list[Json]) -> list[Json]:
    """NVIDIA's slices of the newest generation; older ones are only waiting to be removed."""
    specs = [spec for spec in specs if spec["driver"] == labels.GPU_DEVICE_CLASS]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]


def _devices(specs: list[Json]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for spec in specs:
        if node := spec.get("nodeName"):
            here = found.setdefault(node, {})
            for device in _listed(spec):
                name = _CLASSES.get(_text(device, "type"))
                if name and not _kept_back(device):
                    here[name] = here.get(name, 0) + 1
    return found


def _listed(spec: Json) -> Iterable[Json]:
    devices: Iterable[Json] = spec.get("devices") or ()
    return devices


def _text(device: Json, name: str) -> str:
    return str(device.get("attributes", {}).get(name, {}).get("string", ""))


def _kept_back(device: Json) -> bool:
    return any(taint.get("effect") in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())


def _asked(spec: Json) -> dict[str, int]:
    found: Counter[str] = Counter()
    for request in spec.get("devices", {}).get("requests") or ():
        exactly = request.get("exactly") or {}
        if "deviceClassName" in exactly:
            found[exactly["deviceClassName"]] += exactly.get("count", 1)
    return dict(found)

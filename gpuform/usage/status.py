"""Pools' GPU resources and their users, read from the live cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuform.usage.broken import broken
from gpuform.usage.claims import Claims
from gpuform.usage.cluster_objects import fetch, labelled, ours, pool_of
from gpuform.usage.pod_status import PodStatus, gpu_resources, pod_status
from gpuform.usage.queues import QueueStatus
from infra.model import labels, offer
from infra.model.checks import SYSTEM_NAMESPACES
from infra.model.environment import Environment
from infra.model.monitoring import NAMESPACE as MONITORING
from infra.model.offer import claimable, gpus_of
from infra.model.pool import Pool
from infra.model.sharing import Mig, Mps, TimeSlicing
from infra.plan.sharing import offered

FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class NodeStatus:
    """One node; ``allocatable`` and ``used`` count only GPU resources (``nvidia.com/...``).

    GPUs by claim are not resources: their devices are counted, as ``gpu.nvidia.com``. ``waits_for`` is why
    the node does not accept pods yet, in the readiness gate's words; empty once it does.
    """

    name: str
    ready: bool
    allocatable: dict[str, int]
    used: dict[str, int]
    waits_for: str = ""


@dataclass(frozen=True)
class PoolStatus:
    """One pool; ``sharing`` is the kind of sharing, ``detail`` its parameters.

    ``planned`` is what each node should offer, or the largest if nodes differ in their number of GPUs.
    ``settled``: at least as many nodes as declared, as the lower bound, and as one; every node is ready, has
    passed the readiness gate, and offers exactly what was planned.
    ``lacking``: names of the nodes that are not or do not.
    ``declared``: number of nodes, None if not declared (elastic, or found by a selector).
    ``bounds``: minimum and maximum number of nodes of an elastic pool that is bounded by nodes.
    """

    name: str
    sharing: str
    detail: str
    machine: str
    planned: dict[str, int]
    nodes: tuple[NodeStatus, ...]
    settled: bool
    declared: int | None = None
    bounds: tuple[int, int] | None = None
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterStatus:
    """Pools in the order of the environment file, pods by namespace and name.

    ``system``: namespaces of the cluster and of the platform itself. ``broken``: faults set on simulated
    nodes and the commands that clear them, by node. ``strays``: nodes that offer GPUs but belong to no
    declared pool, with the value of their pool label.
    """

    pools: tuple[PoolStatus, ...]
    pods: tuple[PodStatus, ...]
    system: tuple[str, ...] = SYSTEM_NAMESPACES
    broken: Mapping[str, str] = field(default_factory=dict)
    strays: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[QueueStatus, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform status --json``: only the keys that it promises."""
        return {
            "pools": [
                {
                    "name": pool.name,
                    "sharing": pool.sharing,
                    "declared": pool.declared,
                    "bounds": pool.bounds and dict(zip(("min", "max"), pool.bounds, strict=True)),
                    "nodes": [asdict(node) for node in pool.nodes],
                }
                for pool in self.pools
            ],
            "pods": [
                {key: getattr(pod, key) for key in ("namespace", "name", "node", "phase", "reason")}
                for pod in self.pods
            ],
            "queues": [asdict(queue) for queue in self.queues],
        }


def read(env: Environment, kubeconfig: Path, context: str | None = None) -> ClusterStatus:
    """Read nodes and pods. Raises what httpx raises if the cluster cannot be reached."""
    found = fetch(env, kubeconfig, context)
    return summarise(env, found.nodes, found.pods, found.claims, found.queues)


def summarise(
    env: Environment,
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    claims: Claims = Claims(),  # noqa: B008  (frozen)
    queues: tuple[QueueStatus, ...] = (),
) -> ClusterStatus:
    """Match live nodes, pods and claims with the declared pools."""
    by_pool: dict[str, list[Mapping[str, Any]]] = {}
    nodes = list(nodes)
    for node in nodes:
        by_pool.setdefault(pool_of(env, node), []).append(node)
    statuses = sorted((pod_status(pod, claims) for pod in pods), key=lambda pod: (pod.namespace, pod.name))
    used: dict[str, Counter[str]] = {}
    for pod in statuses:
        if pod.node and pod.phase not in FINISHED:
            used.setdefault(pod.node, Counter()).update(pod.requests)
    return ClusterStatus(
        pools=tuple(_pool(env, pool, by_pool.get(pool.name, []), used, claims) for pool in env.pools),
        pods=tuple(statuses),
        system=(*SYSTEM_NAMESPACES, *((MONITORING,) if env.monitoring else ())),
        broken=broken(nodes),
        strays=_strays(env, nodes),
        queues=queues,
    )


def _strays(env: Environment, nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """GPU nodes with a label changed by hand or a pool that left the file; not those of another stack."""
    pools, found = {pool.name for pool in env.pools}, {}
    for node in nodes:
        offers = any(gpu_resources(node.get("status", {}).get("allocatable", {})).values())
        if offers and ours(env, node) and labelled(node) not in pools:
            found[str(node["metadata"]["name"])] = labelled(node)
    return dict(sorted(found.items()))


def _detail(pool: Pool) -> str:
    sharing = pool.sharing
    if isinstance(sharing, Mps):
        return f"{sharing.replicas} per GPU, {offer.mps_memory_mib(pool)} MiB each"
    if isinstance(sharing, TimeSlicing):
        return f"{sharing.replicas} per GPU"
    found = ", ".join(f"{count}x {profile}" for profile, count in sorted((pool.layout or {}).items()))
    if pool.by_claim:
        return f"{found or 'whole GPUs'} by claim"
    if isinstance(sharing, Mig):
        if sharing.devices is not None:
            found += f" on GPU {', '.join(map(str, sorted(sharing.devices)))}"
        return f"{found}; {sharing.share.replicas} per slice" if sharing.share else found
    return ""


def _pool(
    env: Environment,
    pool: Pool,
    nodes: Iterable[Mapping[str, Any]],
    used: Mapping[str, Mapping[str, int]],
    claims: Claims,
) -> PoolStatus:
    found = sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    statuses = tuple(_node(node, used.get(node["metadata"]["name"], {}), claims) for node in found)
    planned = [_planned(env, pool, gpus_of(pool, node["metadata"].get("labels", {}))) for node in found]
    declared, within = len(pool.hosts) if pool.hosts else pool.nodes, bounds(env, pool)
    lacking = tuple(
        node.name
        for node, wanted in zip(statuses, planned, strict=True)
        if not node.ready
        or node.waits_for
        or {key: count for key, count in node.allocatable.items() if count} != wanted
    )
    return PoolStatus(
        name=pool.name,
        sharing=pool.sharing.kind if pool.gpus else "none",
        detail=_detail(pool),
        machine=pool.machine or " or ".join(gpu.name for gpu in pool.gpus) or "own hosts",
        planned=_planned(env, pool, None),
        nodes=statuses,
        settled=len(found) >= max(1, declared or 0, within[0] if within else 0) and not lacking,
        declared=declared,
        bounds=within,
        lacking=lacking,
    )


def bounds(env: Environment, pool: Pool) -> tuple[int, int] | None:
    """Minimum and maximum of an elastic node group; None elsewhere: Karpenter does not count nodes."""
    return (pool.least, pool.most) if env.by_autoscaler(pool) else None


def _planned(env: Environment, pool: Pool, gpus: int | None) -> dict[str, int]:
    """What a node with this many GPUs should offer; the largest if the number is unknown."""
    return offered(env, pool, pool.gpu_counts[-1] if gpus is None else gpus) | claimable(pool)


def _node(node: Mapping[str, Any], used: Mapping[str, int], claims: Claims) -> NodeStatus:
    status = node.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
    return NodeStatus(
        name=node["metadata"]["name"],
        ready=conditions.get("Ready") == "True",
        allocatable={
            **gpu_resources(status.get("allocatable", {})),
            **claims.devices.get(node["metadata"]["name"], {}),
        },
        used={key: used[key] for key in sorted(used)},
        waits_for=_waits_for(node),
    )


def _waits_for(node: Mapping[str, Any]) -> str:
    taints = node.get("spec", {}).get("taints") or ()
    if not any(taint["key"] == labels.GPU_NOT_READY for taint in taints):
        return ""
    noted: Mapping[str, str] = node["metadata"].get("annotations") or {}
    return noted.get(labels.GPU_WAITS_FOR, "the readiness gate has not reported yet")

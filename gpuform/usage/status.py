"""Pools' GPU resources and their users, read from the live cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpuform.usage import cluster_objects
from gpuform.usage.broken import broken
from gpuform.usage.cluster_objects import Claims
from gpuform.usage.nodes import Node, Pod, node, pod, with_used
from gpuform.usage.queues import QueueStatus
from infra.model import labels, offer
from infra.model.checks import SYSTEM_NAMESPACES
from infra.model.environment import Environment
from infra.model.monitoring import NAMESPACE as MONITORING
from infra.model.offer import claimable, gpus_of
from infra.model.pool import Pool
from infra.model.sharing import Mig, Mps, TimeSlicing
from infra.plan.sharing import offered

_OF_NODES = ("name", "ready", "allocatable", "used", "waits_for")
_OF_PODS = ("namespace", "name", "node", "phase", "reason")


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
    nodes: tuple[Node, ...]
    settled: bool
    declared: int | None = None
    bounds: tuple[int, int] | None = None
    lacking: tuple[str, ...] = ()

    @property
    def between(self) -> dict[str, int]:
        """The bounds by name; empty without bounds."""
        return dict(zip(("min", "max"), self.bounds or (), strict=False))


@dataclass(frozen=True)
class ClusterStatus:
    """Pools in the order of the environment file, all nodes by name, pods by namespace and name.

    ``system``: namespaces of the cluster and of the platform itself. ``broken``: faults set on simulated
    nodes and the commands that clear them, by node. ``strays``: nodes that offer GPUs but belong to no
    declared pool, with the value of their pool label.
    """

    pools: tuple[PoolStatus, ...]
    pods: tuple[Pod, ...]
    system: tuple[str, ...] = SYSTEM_NAMESPACES
    broken: Mapping[str, str] = field(default_factory=dict)
    strays: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[QueueStatus, ...] = ()
    nodes: tuple[Node, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The documented form of ``gpuform status --json``: only the keys that it promises."""
        return {
            "pools": [
                {
                    "name": pool.name,
                    "sharing": pool.sharing,
                    "declared": pool.declared,
                    "bounds": pool.between or None,
                    "nodes": [{key: getattr(node, key) for key in _OF_NODES} for node in pool.nodes],
                }
                for pool in self.pools
            ],
            "pods": [
                {key: getattr(pod, key) for key in _OF_PODS} | {"node": pod.node or None} for pod in self.pods
            ],
            "queues": [asdict(queue) for queue in self.queues],
        }


def read(env: Environment, kubeconfig: Path, context: str | None = None) -> ClusterStatus:
    """Read nodes and pods. Raises what httpx raises if the cluster cannot be reached."""
    found = cluster_objects.fetch(env, kubeconfig, context)
    return summarise(env, found.nodes, found.pods, found.claims, found.queues)


def summarise(
    env: Environment,
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    claims: Claims = Claims(),  # noqa: B008  (frozen)
    queues: tuple[QueueStatus, ...] = (),
) -> ClusterStatus:
    """Match live nodes, pods and claims with the declared pools."""
    raw = tuple(nodes)
    every = sorted((pod(one, env.name, claims) for one in pods), key=lambda one: (one.namespace, one.name))
    found = with_used((node(one, claims) for one in raw), every)
    by_pool: dict[str, list[Node]] = {}
    for one in found:
        by_pool.setdefault(pool_of(env, one), []).append(one)
    return ClusterStatus(
        pools=tuple(_pool(env, pool, by_pool.get(pool.name, [])) for pool in env.pools),
        pods=tuple(every),
        system=(*SYSTEM_NAMESPACES, *((MONITORING,) if env.monitoring else ())),
        broken=broken(raw),
        strays=dict(_strays(env, found)),
        queues=queues,
        nodes=found,
    )


def pool_of(env: Environment, node: Node) -> str:
    """The node's pool; empty if the node has no pool of this environment.

    Several stacks may be simulated on one embedded cluster, and their pools have the same names.
    """
    return node.tags.get(labels.POOL, "") if _ours(env, node) else ""


def _ours(env: Environment, node: Node) -> bool:
    """Whether the node's environment label names this environment or is missing."""
    return node.tags.get(labels.ENVIRONMENT, env.name) == env.name


def _strays(env: Environment, nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """GPU nodes with a label changed by hand or a pool that left the file; not those of another stack."""
    pools = {pool.name for pool in env.pools}
    for one in nodes:
        has = any(count for key, count in one.allocatable.items() if key.startswith(labels.NVIDIA_PREFIX))
        if has and _ours(env, one) and (label := one.tags.get(labels.POOL, "")) not in pools:
            yield one.name, label


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


def _pool(env: Environment, pool: Pool, nodes: Sequence[Node]) -> PoolStatus:
    planned = [_planned(env, pool, gpus_of(pool, node.tags)) for node in nodes]
    declared = len(pool.hosts) if pool.hosts else pool.nodes
    within = (pool.least, pool.most) if env.by_autoscaler(pool) else None  # Karpenter does not count nodes
    lacking = tuple(
        node.name
        for node, wanted in zip(nodes, planned, strict=True)
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
        nodes=tuple(nodes),
        settled=len(nodes) >= max(1, declared or 0, within[0] if within else 0) and not lacking,
        declared=declared,
        bounds=within,
        lacking=lacking,
    )


def _planned(env: Environment, pool: Pool, gpus: int | None) -> dict[str, int]:
    """What a node with this many GPUs should offer; the largest if the number is unknown."""
    return offered(env, pool, pool.gpu_counts[-1] if gpus is None else gpus) | claimable(pool)

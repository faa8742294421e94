"""Pools' GPU resources and their users, read from the live cluster."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuform.usage import cluster_objects
from gpuform.usage.cluster_objects import Claims
from gpuform.usage.nodes import Node, Pod, parse_node, parse_pod, with_usage
from gpuform.usage.queues import QueueStatus
from infra.model.base import labels, namespaces
from infra.model.environment import Environment
from infra.model.gpu.xid import DEVICE_PLUGIN_SKIPS
from infra.model.platform.monitoring import NAMESPACE as MONITORING
from infra.model.pool import allocatable
from infra.model.pool.allocatable import claimable, node_gpus, resources
from infra.model.pool.layouts import Cut
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps, TimeSlicing

_OF_NODES = ("name", "ready", "allocatable", "used", "waits_for")
_OF_PODS = ("namespace", "name", "node", "phase", "reason")


@dataclass(frozen=True)
class PoolStatus:
    """One pool; ``sharing`` is the kind of sharing, ``detail`` its parameters.

    ``planned`` is what each node should offer, or the largest if nodes differ in their number of GPUs.
    ``settled``: at least as many nodes as declared, as the lower bound, and as one; every node is ready, has
    passed the readiness gate, and offers exactly what was planned.
    ``unsettled_nodes``: names of the nodes for which this is not true.
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
    unsettled_nodes: tuple[str, ...] = ()

    @property
    def min_max(self) -> dict[str, int]:
        """The bounds by name; empty without bounds."""
        return dict(zip(("min", "max"), self.bounds or (), strict=False))


@dataclass(frozen=True)
class ClusterStatus:
    """Pools in the order of the environment file, all nodes by name, pods by namespace and name.

    ``system``: namespaces of the cluster and of the platform itself. ``injected_faults``: faults set on
    simulated nodes and the commands that clear them, by node. ``unassigned_nodes``: nodes that offer GPUs but
    belong to no declared pool, with the value of their pool label.
    """

    pools: tuple[PoolStatus, ...]
    pods: tuple[Pod, ...]
    system: tuple[str, ...] = namespaces.SYSTEM
    injected_faults: Mapping[str, str] = field(default_factory=dict)
    unassigned_nodes: Mapping[str, str] = field(default_factory=dict)
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
                    "bounds": pool.min_max or None,
                    "nodes": [{key: getattr(node, key) for key in _OF_NODES} for node in pool.nodes],
                }
                for pool in self.pools
            ],
            "pods": [
                {key: getattr(pod, key) for key in _OF_PODS} | {"node": pod.node or None} for pod in self.pods
            ],
            "queues": [asdict(queue) for queue in self.queues],
        }


def read_status(env: Environment, kubeconfig: Path, context: str | None = None) -> ClusterStatus:
    """Read nodes and pods; OSError if the cluster does not answer, or refuses."""
    objects = cluster_objects.fetch_objects(env, kubeconfig, context)
    return summarise_status(env, objects.nodes, objects.pods, objects.claims, objects.queues)


def summarise_status(
    env: Environment,
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    claims: Claims = Claims(),  # noqa: B008  (frozen)
    queues: tuple[QueueStatus, ...] = (),
) -> ClusterStatus:
    """Match live nodes, pods and claims with the declared pools."""
    raw = tuple(nodes)
    parsed = [parse_node(item, claims) for item in raw]
    ours = {node.name for node in parsed if _in_environment(env, node)}
    all_pods = sorted(
        (parse_pod(item, env.name, claims) for item in pods if _concerns(env, item, ours)),
        key=lambda item: (item.namespace, item.name),
    )
    all_nodes = with_usage(parsed, all_pods)
    by_pool: dict[str, list[Node]] = {}
    for node in all_nodes:
        by_pool.setdefault(pool_of(env, node), []).append(node)
    return ClusterStatus(
        pools=tuple(_pool_status(env, pool, by_pool.get(pool.name, [])) for pool in env.pools),
        pods=tuple(all_pods),
        system=(
            *namespaces.SYSTEM,
            *((MONITORING,) if env.installs_prometheus else ()),
        ),
        injected_faults=injected_faults(raw),
        unassigned_nodes=dict(_unassigned_nodes(env, all_nodes)),
        queues=queues,
        nodes=all_nodes,
    )


def pool_of(env: Environment, node: Node) -> str:
    """The node's pool; empty if the node has no pool of this environment.

    Several stacks may share an existing cluster, and their pools may have the same names.
    """
    return node.labels.get(labels.POOL, "") if _in_environment(env, node) else ""


def _in_environment(env: Environment, node: Node) -> bool:
    """Whether the node's environment label names this environment or is missing."""
    return node.labels.get(labels.ENVIRONMENT, env.name) == env.name


def _concerns(env: Environment, pod: Mapping[str, Any], nodes: Container[str]) -> bool:
    """Whether no other stack declares the pod, or it is on one of these nodes."""
    owner = (pod["metadata"].get("labels") or {}).get(labels.ENVIRONMENT, env.name)
    return bool(owner == env.name or pod["spec"].get("nodeName") in nodes)


def _unassigned_nodes(env: Environment, nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    """GPU nodes with a label changed by hand or a pool that left the file; not those of another stack."""
    pool_names = {pool.name for pool in env.pools}
    for node in nodes:
        has_gpus = any(n for key, n in node.allocatable.items() if key.startswith(labels.NVIDIA_PREFIX))
        label = node.labels.get(labels.POOL, "")
        if has_gpus and _in_environment(env, node) and label not in pool_names:
            yield node.name, label


def sharing_detail(pool: Pool) -> str:
    sharing = pool.sharing
    if isinstance(sharing, Mps):
        return f"{sharing.replicas} per GPU, {allocatable.mps_memory_mib(pool)} MiB each"
    if isinstance(sharing, TimeSlicing):
        return f"{sharing.replicas} per GPU"
    layout = "; ".join(map(_cut_detail, pool.cuts))
    if pool.by_claim:
        return f"{layout or 'whole GPUs'} by claim"
    if isinstance(sharing, Mig):
        return f"{layout}; {sharing.share.replicas} per slice" if sharing.share else layout
    return ""


def _cut_detail(cut: Cut) -> str:
    slices = ", ".join(f"{count}x {profile}" for profile, count in sorted(cut.layout.items()))
    return slices if cut.devices is None else f"{slices} on GPU {', '.join(map(str, cut.devices))}"


def _pool_status(env: Environment, pool: Pool, nodes: Sequence[Node]) -> PoolStatus:
    gpus = [node_gpus(pool, node.labels) for node in nodes]
    planned = [_planned(env, pool, count) for count in gpus]
    declared = None if pool.bounds else pool.declared_nodes
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
        detail=sharing_detail(pool),
        machine=pool.machine or " or ".join(gpu.name for gpu in pool.gpus) or "own hosts",
        planned=_planned(env, pool, None),
        nodes=tuple(
            replace(node, planned={} if count is None else wanted)
            for node, count, wanted in zip(nodes, gpus, planned, strict=True)
        ),
        settled=len(nodes) >= max(1, declared or 0, pool.bounds[0] if pool.bounds else 0) and not lacking,
        declared=declared,
        bounds=pool.bounds,
        unsettled_nodes=lacking,
    )


def _planned(env: Environment, pool: Pool, gpus: int | None) -> dict[str, int]:
    """What a node with this many GPUs should offer; the largest if the number is unknown."""
    return resources(pool, pool.gpu_counts[-1] if gpus is None else gpus) | claimable(pool)


def faulty_nodes(current: ClusterStatus) -> dict[str, str]:
    """Nodes that do not offer what was planned because a person broke them."""
    lacking = [name for pool in current.pools for name in pool.unsettled_nodes]
    return {name: current.injected_faults[name] for name in lacking if name in current.injected_faults}


def unsettled_pools(current: ClusterStatus) -> tuple[PoolStatus, ...]:
    """Pools that do not offer what was planned, unless a fault set by a person is the only reason."""
    faulty = faulty_nodes(current).keys()
    return tuple(
        pool
        for pool in current.pools
        if not pool.settled and not (pool.nodes and faulty >= set(pool.unsettled_nodes))
    )


def injected_faults(nodes: Iterable[Mapping[str, Any]], every: bool = False) -> dict[str, str]:
    """Faults that a person set on simulated nodes and the commands that clear them, by node name.

    By default only those that take GPUs from what the node offers: not heat, links or an exporter that is
    down. A real node has none of these annotations, so nothing is ever reported for it.
    """
    lines_by_node = {str(node["metadata"]["name"]): list(_describe_faults(node, every)) for node in nodes}
    return {name: "; ".join(lines) for name, lines in lines_by_node.items() if lines}


def _describe_faults(node: Mapping[str, Any], every: bool) -> Iterator[str]:
    name, notes = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    faults = ", ".join(dict.fromkeys(_parse_faults(notes.get(labels.SIM_FAULTS, "[]"), every)))
    if faults:
        yield f"{faults}: `gpuform simulate fault {name} --clear` clears it"
    unhealthy = [ident for ident in notes.get(labels.SIM_UNHEALTHY, "").replace(" ", "").split(",") if ident]
    if numbers := [ident for ident in unhealthy if ident.isdecimal()]:
        commands = ", ".join(f"`gpuform simulate health {name} --gpu {number} --ok`" for number in numbers)
        yield f"GPU {', '.join(numbers)} is unhealthy: {commands} clears it"
    if others := [ident for ident in unhealthy if not ident.isdecimal()]:
        command = f"`kubectl annotate node {name} {labels.SIM_UNHEALTHY}-` clears it"
        yield f"{', '.join(others)} is unhealthy: {command}"


def _parse_faults(annotation: str, every: bool) -> Iterator[str]:
    """``every`` fault, or those that take a GPU away; none if the simulator did not write the annotation."""
    try:
        entries = [(str(item["kind"]), item.get("gpu"), item.get("xid")) for item in json.loads(annotation)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    for kind, gpu, xid in entries:
        takes = kind in ("fabric-manager", "ecc", "gpu-lost") or (
            kind == "xid" and xid not in DEVICE_PLUGIN_SKIPS
        )
        if every or takes:
            yield kind if gpu is None else f"GPU {gpu} has {f'XID {xid}' if kind == 'xid' else kind}"

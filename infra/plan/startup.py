"""The startup taint, which keeps pods off a GPU node until it is proven, and what the node must show.

A node is Ready long before its GPUs are proven. So it gets a taint that only the readiness gate removes:
Karpenter's nodes and those of managed groups join with it, and other nodes get it from us until the gate has
recorded its proof on them. What a node must offer is an annotation on Karpenter's nodes, which may be older
than the last change of their pool; else it is what the pool declares now.

Simulated nodes of the embedded cluster have no such taint: the program that creates them owns their list of
taints, and would set it again with every update of the nodes.

A node that never offers what it must stays tainted, and Karpenter still counts on it: a person has to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from infra.model.base import labels
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool


def is_gated(env: Environment, pool: Pool) -> bool:
    """Whether the pool's nodes wait for the gate: all with GPUs, except simulated ones.

    Nodes of a cluster with its own operator do not wait: its operands do not tolerate the startup taint.
    """
    is_clusters_operator = env.ownership.device_plugin == "cluster"
    return bool(pool.gpus) and not isinstance(env.cluster, EmbeddedCluster) and not is_clusters_operator


def any_gated(env: Environment) -> bool:
    """Whether the nodes of any pool wait for the gate."""
    return any(is_gated(env, pool) for pool in env.pools)


def has_trial(env: Environment, pool: Pool) -> bool:
    """Whether a pod must have opened a GPU of each node before the gate lets others in.

    Not where GPUs are claimed: a claim's devices are always CDI devices. Nor on Karpenter's nodes: Karpenter
    counts the pod's request, and buys another node for the pod that waits for this one
    (sigs.k8s.io/karpenter, state.StateNode.Available).
    """
    return is_gated(env, pool) and not pool.by_claim and not pool.by_karpenter


def startup_taints(env: Environment, pool: Pool) -> list[dict[str, str]]:
    """Taints that are removed once the node is proven; no workload tolerates them, every operand must."""
    return [{"key": labels.GPU_NOT_READY, "effect": "NoSchedule"}] if is_gated(env, pool) else []


def tolerations(env: Environment, pools: Iterable[Pool]) -> list[dict[str, str]]:
    """Tolerations of the startup taints of these pools, for the operands that make a node ready."""
    if not any(is_gated(env, pool) for pool in pools):
        return []
    return [{"key": labels.GPU_NOT_READY, "operator": "Exists", "effect": "NoSchedule"}]


def expected_resources(env: Environment, pool: Pool, gpus: int | None = None) -> dict[str, Any]:
    """What one node of the pool must show: its extended resources, and its devices by device class.

    Without ``gpus`` by the number of GPUs, if nodes of the pool differ in it.
    """
    offered = allocatable.summary(pool) if gpus is None else allocatable.resources(pool, gpus)
    return offered | allocatable.claimable(pool)


def offer_annotations(env: Environment, pool: Pool) -> dict[str, str]:
    """Annotations of a new Karpenter node that waits for the gate: what one node of the pool offers.

    All nodes of a NodePool get the same ones. So if they differ in their number of GPUs, the amounts are per
    GPU, and the gate multiplies; another number of GPUs in the pool then changes no existing node.
    """
    if not is_gated(env, pool) or not pool.by_karpenter:
        return {}
    differs = len(pool.gpu_counts) > 1
    key = labels.OFFERS_PER_GPU if differs else labels.OFFERS
    return {key: json.dumps(expected_resources(env, pool, 1 if differs else None), sort_keys=True)}


def startup_change(env: Environment, pool: Pool) -> dict[str, Any] | None:
    """Taints of nodes that others create, until the gate has recorded its proof; None if none are needed.

    ``proof`` is the annotation of a proven node, ``reason`` the one with what a node still waits for.
    """
    taints = startup_taints(env, pool)
    return {"taints": taints, "proof": labels.GPU_READY, "reason": labels.GPU_WAITS_FOR} if taints else None

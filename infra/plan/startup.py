"""What holds pods back from a GPU node that has proven nothing, and what it has to show before.

A node is Ready long before its GPUs are proven. So it gets a taint that only the readiness gate lifts:
Karpenter's nodes and those of managed groups are born with it, and nodes that others make get it from us as
long as no gate has noted its proof on them. What a node shall offer is an annotation of Karpenter's nodes,
which outlive a change of their pool, and else what the pool promises now.

Simulated nodes of the embedded cluster have no such taint: the program that makes them owns their list of
taints, and would put it back with every change of theirs.

A node that never keeps its promise stays tainted, and Karpenter goes on counting on it: somebody has to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from infra.model import labels, offer
from infra.model.environment import EmbeddedCluster, Environment
from infra.model.pool import Pool
from infra.plan import sharing


def gated(env: Environment, pool: Pool) -> bool:
    """Whether the pool's nodes wait for the gate: all with GPUs, but for simulated ones."""
    return bool(pool.gpus) and not isinstance(env.cluster, EmbeddedCluster)


def any_gated(env: Environment) -> bool:
    """Whether there is anything for the gate to do."""
    return any(gated(env, pool) for pool in env.pools)


def startup_taints(env: Environment, pool: Pool) -> list[dict[str, str]]:
    """Taints that go once the node has proven itself; no workload tolerates them, every operand must."""
    return [{"key": labels.GPU_NOT_READY, "effect": "NoSchedule"}] if gated(env, pool) else []


def tolerations(env: Environment, pools: Iterable[Pool]) -> list[dict[str, str]]:
    """Tolerations of the startup taints of these pools, for what makes a node ready."""
    if not any(gated(env, pool) for pool in pools):
        return []
    return [{"key": labels.GPU_NOT_READY, "operator": "Exists", "effect": "NoSchedule"}]


def offers(env: Environment, pool: Pool, gpus: int | None = None) -> dict[str, int]:
    """What one node of the pool has to show: its extended resources, and its devices by device class."""
    return sharing.offered(env, pool, gpus) | offer.claimable(pool)


def promise(env: Environment, pool: Pool) -> dict[str, str]:
    """Annotations that a waiting node of Karpenter's is born with: what one node of the pool offers.

    All nodes of a NodePool are born with the same ones. So where they differ in how many GPUs they have, the
    promise is of each GPU, and the gate multiplies; a number more then changes no node that is there.
    """
    if not gated(env, pool) or not env.by_karpenter(pool):
        return {}
    several = len(pool.gpu_counts) > 1
    key = labels.OFFERS_PER_GPU if several else labels.OFFERS
    return {key: json.dumps(offers(env, pool, 1 if several else None), sort_keys=True)}


def until_proven(env: Environment, pool: Pool) -> dict[str, Any] | None:
    """What nodes that others make are to carry until the gate has noted its proof; None where none waits.

    ``proof`` is the annotation of a node that needs it no more, ``reason`` what the gate notes before.
    """
    found = startup_taints(env, pool)
    return {"taints": found, "proof": labels.GPU_READY, "reason": labels.GPU_WAITS_FOR} if found else None

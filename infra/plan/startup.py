"""What holds pods back from a new GPU node, and what the node has to show before it lets them in.

A node that Karpenter starts is Ready long before its GPUs are proven. It is born with a taint that only the
readiness gate lifts, and with an annotation that says what its pool promises. Nodes of a fixed number have
neither: their taints are those of their group, and stay.

A node that never keeps its promise stays tainted, and Karpenter goes on counting on it: somebody has to look.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import sharing


def gated(pool: Pool) -> bool:
    """Whether the pool's nodes wait for the gate: those with GPUs that come and go."""
    return pool.elastic is not None and bool(pool.gpus)


def any_gated(env: Environment) -> bool:
    """Whether there is anything for the gate to do."""
    return any(gated(pool) for pool in env.pools)


def startup_taints(pool: Pool) -> list[dict[str, str]]:
    """Taints that go once the node has proven itself; no workload tolerates them, every operand must."""
    return [{"key": labels.GPU_NOT_READY, "effect": "NoSchedule"}] if gated(pool) else []


def tolerations(pools: Iterable[Pool]) -> list[dict[str, str]]:
    """Tolerations of the startup taints of these pools, for what makes a node ready."""
    if not any(gated(pool) for pool in pools):
        return []
    return [{"key": labels.GPU_NOT_READY, "operator": "Exists", "effect": "NoSchedule"}]


def promise(env: Environment, pool: Pool) -> dict[str, str]:
    """Annotations that a waiting node is born with: the resources that one node of the pool offers.

    All nodes of a NodePool are born with the same ones. So where they differ in how many GPUs they have, the
    promise is of each GPU, and the gate multiplies; a number more then changes no node that is there.
    """
    if not gated(pool):
        return {}
    several = len(pool.gpu_counts) > 1
    key = labels.OFFERS_PER_GPU if several else labels.OFFERS
    return {key: json.dumps(sharing.offered(env, pool, 1 if several else None), sort_keys=True)}

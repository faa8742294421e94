"""Karpenter's NodeOverlays: what a node will offer once the operands have run.

Karpenter takes a new node's capacity from its instance type, which says one GPU where there will be four
shares: it would start four nodes for four pods (its issue 729). The overlay says the later capacity, per node
and not per GPU, so there is one overlay for each number of GPUs. NodeOverlay is alpha
(``karpenter.sh/v1alpha1``) and off by default: the release enables it if there is an overlay.
"""

from __future__ import annotations

from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.sharing import Exclusive
from infra.plan import karpenter, sharing

Manifest = dict[str, Any]


def node_overlays(env: Environment, pool: Pool) -> tuple[Manifest, ...]:
    """One overlay per number of GPUs of the pool's machines; none if not elastic, or with exclusive GPUs."""
    if pool.elastic is None or not pool.gpus or isinstance(pool.sharing, Exclusive):
        return ()
    counts = sorted({machine.gpus for machine in pool.machines})
    return tuple(_overlay(env, pool, count) for count in counts)


def _overlay(env: Environment, pool: Pool, count: int) -> Manifest:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": f"{pool.name}-{count}-gpu", "labels": karpenter.own_labels(env, pool)},
        "spec": {
            "requirements": [
                {"key": labels.NODE_POOL, "operator": "In", "values": sorted(pool.node_pools)},
                {"key": labels.INSTANCE_GPU_COUNT, "operator": "In", "values": [str(count)]},
            ],
            "capacity": capacity(env, pool, count),
        },
    }


def capacity(env: Environment, pool: Pool, count: int) -> dict[str, str]:
    """Extended resources of a node with ``count`` GPUs.

    If the whole GPU is not offered under its own name, it is set to 0: else Karpenter would buy such a node
    for a pod that requests a whole GPU, and the pod would stay pending.
    """
    found = {name: str(amount) for name, amount in sharing.offered(env, pool, count).items()}
    found.setdefault(labels.NVIDIA_GPU, "0")
    return dict(sorted(found.items()))

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
    """Overlays of an elastic pool: one per number of GPUs of its machines, unless its GPUs are exclusive, and
    one for its nodes' huge pages, which no instance type has by itself.
    """
    if pool.elastic is None:
        return ()
    found = []
    if pool.gpus and not isinstance(pool.sharing, Exclusive):
        for count in sorted({machine.gpus for machine in pool.machines}):
            only = {"key": labels.INSTANCE_GPU_COUNT, "operator": "In", "values": [str(count)]}
            found.append(_overlay(env, pool, f"{count}-gpu", capacity(env, pool, count), only))
    if pool.hugepages:
        found.append(_overlay(env, pool, "hugepages", {labels.HUGE_PAGES: pool.hugepages}))
    return tuple(found)


def _overlay(
    env: Environment, pool: Pool, ending: str, adds: dict[str, str], *only: dict[str, Any]
) -> Manifest:
    own = {"key": labels.NODE_POOL, "operator": "In", "values": sorted(pool.node_pools)}
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": f"{pool.name}-{ending}", "labels": karpenter.own_labels(env, pool)},
        "spec": {"requirements": [own, *only], "capacity": adds},
    }


def capacity(env: Environment, pool: Pool, count: int) -> dict[str, str]:
    """Extended resources of a node with ``count`` GPUs.

    If the whole GPU is not offered under its own name, it is set to 0: else Karpenter would buy such a node
    for a pod that requests a whole GPU, and the pod would stay pending.
    """
    found = {name: str(amount) for name, amount in sharing.offered(env, pool, count).items()}
    found.setdefault(labels.NVIDIA_GPU, "0")
    return dict(sorted(found.items()))

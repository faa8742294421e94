"""What NodePools of others need for pools that select their nodes: labels, and what shared nodes offer.

Karpenter starts a node only for pods that fit its NodePool's template. Without the pool's label there, pods
of the pool start none; without a NodeOverlay, neither do pods that request a share or a slice. The patches
are printed, not applied: Karpenter replaces the nodes of a NodePool with another template (drift).
"""

from __future__ import annotations

from collections import Counter

from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan import sharing
from infra.plan.karpenter import gpu_overlays
from infra.plan.manifest import Manifest


def selected(env: Environment) -> dict[str, Pool]:
    """Pools by the name of a NodePool: each selects all nodes of that NodePool, and no others."""
    names = [(pool.selector or {}).get(labels.NODE_POOL) for pool in env.pools]
    counts = Counter(names)
    return {
        name: pool
        for name, pool in zip(names, env.pools, strict=True)
        if name and counts[name] == 1 and len(pool.selector or {}) == 1
    }


def patches(env: Environment) -> dict[str, Manifest]:
    """Merge patches by NodePool. Server-side apply would replace a template's labels: they are one field."""
    return {
        name: {"spec": {"template": {"metadata": {"labels": sharing.pool_labels(env, pool)}}}}
        for name, pool in selected(env).items()
    }


def overlays(env: Environment) -> tuple[Manifest, ...]:
    """NodeOverlays with the shares and slices that the nodes of NodePools offer."""
    return tuple(
        overlay
        for name, pool in selected(env).items()
        if not pool.by_claim
        for overlay in gpu_overlays(env, pool, [name], pool.gpu_counts)
    )

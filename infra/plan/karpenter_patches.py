"""What NodePools of others need for pools that select their nodes: labels, and what shared nodes offer.

Karpenter starts a node only for pods that fit its NodePool's template. Without the pool's label there, pods
of the pool start none; without a NodeOverlay, neither do pods that request a share or a slice. The patches
are printed, not applied: Karpenter replaces the nodes of a NodePool with another template (drift).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Exclusive
from infra.plan import sharing
from infra.plan.karpenter import overlay_capacity
from infra.plan.manifest import Manifest, label_in, manifest, own_labels


def selected(env: Environment) -> dict[str, Pool]:
    """Pools whose nodes are all those of one NodePool, by its name."""
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
    return tuple(item for name, pool in selected(env).items() for item in _overlays(env, name, pool))


def _overlays(env: Environment, name: str, pool: Pool) -> Iterator[Manifest]:
    if not pool.gpus or pool.by_claim or isinstance(pool.sharing, Exclusive):
        return
    for count in pool.gpu_counts:
        terms = [label_in(labels.NODE_POOL, [name]), label_in(labels.INSTANCE_GPU_COUNT, [str(count)])]
        metadata = {"name": f"{pool.name}-{count}-gpu", "labels": own_labels(env, POOL=pool.name)}
        spec = {"requirements": terms, "capacity": overlay_capacity(env, pool, count)}
        yield manifest("NodeOverlay", metadata, "karpenter.sh/v1alpha1", spec=spec)

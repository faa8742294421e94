"""Karpenter's objects for the pools that it provisions: elastic ones, and those with GPUs by claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.manifest import Manifest, resource


@dataclass(frozen=True, kw_only=True)
class ElasticPool:
    """Manifests of a pool: an EC2NodeClass, its NodeOverlays, and a NodePool for each way of buying nodes."""

    node_class: Manifest
    overlays: Sequence[Manifest]
    node_pools: Sequence[Manifest]


@dataclass(frozen=True, kw_only=True)
class ElasticPoolsArgs:
    """The pools that Karpenter provisions."""

    pools: Sequence[ElasticPool]


class ElasticPools(pulumi.ComponentResource):
    """Karpenter's objects; deleted before Karpenter, which alone can terminate their nodes."""

    def __init__(self, name: str, args: ElasticPoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:ElasticPools", name, None, opts)
        for pool in args.pools:
            child = pulumi.ResourceOptions(parent=self)
            before = [_object(f"{name}-class", pool.node_class, child)]
            # Without overlays, Karpenter would not know which slices a new node will offer.
            before += [_object(f"{name}-overlay", overlay, child) for overlay in pool.overlays]
            after = pulumi.ResourceOptions(parent=self, depends_on=before)
            for node_pool in pool.node_pools:
                _object(f"{name}-pool", node_pool, after)
        self.register_outputs({})


def _object(role: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    return resource(f"{role}-{manifest['metadata']['name']}", manifest, opts)

"""The nodes of pools: labels, taints and MIG layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from components.custom_resources import MigLayout, MigLayoutArgs, PoolNodes, PoolNodesArgs
from components.manifest import Manifest, resource


@dataclass(frozen=True, kw_only=True)
class NodePoolsArgs:
    """What each pool's existing nodes get, by the pool's name, and the Node objects of simulated nodes."""

    pools: Mapping[str, PoolNodesArgs]
    simulated: Sequence[Manifest] = ()


class NodePools(pulumi.ComponentResource):
    """One Node per simulated node, and one PoolNodes per pool of nodes that others create.

    The latter nodes only get our labels and taints, and lose them at the end.
    """

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:NodePools", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for node in args.simulated:
            resource(f"{name}-{node['metadata']['name']}", _take_ownership(node), child)
        for pool, pool_args in args.pools.items():
            PoolNodes(f"{name}-{pool}", pool_args, child)
        self.register_outputs({})


def _take_ownership(node: Manifest) -> Manifest:
    """A simulated node belongs to this program alone: fields set by another manager are overwritten."""
    metadata = node["metadata"]
    annotations = {**metadata.get("annotations", {}), "pulumi.com/patchForce": "true"}
    return {**node, "metadata": {**metadata, "annotations": annotations}}


@dataclass(frozen=True, kw_only=True)
class MigLayoutsArgs:
    """Layouts by the pool's name."""

    layouts: Mapping[str, MigLayoutArgs]


class MigLayouts(pulumi.ComponentResource):
    """One MigLayout per pool: drain within budgets, relabel, wait until the slices are offered.

    It must come after the operator's release: the MIG manager does the work on the node.
    """

    def __init__(self, name: str, args: MigLayoutsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:MigLayouts", name, None, opts)
        for pool, layout in args.layouts.items():
            MigLayout(f"{name}-{pool}", layout, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

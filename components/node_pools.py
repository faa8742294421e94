"""The nodes of pools: labels, taints and MIG layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from components.custom_resources import (
    MigLayout,
    MigLayoutArgs,
    PoolNodes,
    PoolNodesArgs,
    SimulatedNodes,
    SimulatedNodesArgs,
)


@dataclass(frozen=True, kw_only=True)
class NodePoolsArgs:
    """By the pool's name: what its existing nodes get, or its simulated nodes."""

    pools: Mapping[str, PoolNodesArgs]
    simulated: Mapping[str, SimulatedNodesArgs] = field(default_factory=dict)


class NodePools(pulumi.ComponentResource):
    """One SimulatedNodes per pool of simulated nodes, and one PoolNodes per pool of nodes that others create.

    The latter nodes only get our labels and taints, and lose them at the end.
    """

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:NodePools", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for pool, nodes in args.simulated.items():
            SimulatedNodes(f"{name}-{pool}", nodes, child)
        for pool, pool_args in args.pools.items():
            PoolNodes(f"{name}-{pool}", pool_args, child)
        self.register_outputs({})


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

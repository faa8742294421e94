"""The keeper that gives nodes that join later what their pool's nodes have."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.program import register
from infra.model.environment import Environment
from infra.plan.pool_keeper import manifests


@dataclass(frozen=True, kw_only=True)
class PoolKeeperArgs:
    """Whose pools have nodes that others make."""

    environment: Environment


class PoolKeeper(pulumi.ComponentResource):
    """A Deployment with its program and its rights.

    Nodes that join while it is away wait until it is back, or for the next `gpuform up`. It comes after the
    pools, whose nodes have changed before it learns of it, and goes before their labels do.
    """

    def __init__(self, name: str, args: PoolKeeperArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register its objects, each after those before it: it starts with its program and its rights."""
        super().__init__("gpuform:platform:PoolKeeper", name, None, opts)
        register(self, name, manifests(args.environment))
        self.register_outputs({})

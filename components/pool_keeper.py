"""The pool keeper, which gives nodes that join later their pool's labels and taints."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs
from components.program import register
from infra.plan.pool_keeper import manifests


class PoolKeeper(pulumi.ComponentResource):
    """A Deployment with its program and RBAC objects.

    Nodes that join while it is down wait until it is back, or for the next `gpuform up`. It is created after
    the pools, so their nodes change before it learns of it, and deleted before the nodes' labels.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:PoolKeeper", name, None, opts)
        register(self, name, manifests(args.environment))
        self.register_outputs({})

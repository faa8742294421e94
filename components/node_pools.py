"""The nodes of every pool, with their labels and taints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.manifest import resource
from components.node_resources import PoolNodes
from infra.model.environment import Environment
from infra.plan.nodes import simulated_nodes
from infra.plan.pool_keeper import joining, manager
from infra.plan.sharing import device_plugin_change, node_selector, pool_labels, pool_taints
from infra.plan.startup import until_proven


@dataclass(frozen=True, kw_only=True)
class NodePoolsArgs:
    """The environment with the pools, and the cluster that has their nodes."""

    environment: Environment
    kubeconfig: pulumi.Input[str]


class NodePools(pulumi.ComponentResource):
    """One Node per simulated node, and one PoolNodes per pool of nodes that others create.

    The latter nodes only get our labels and taints, and lose them at the end. For Magnum's node groups, it
    waits for the declared number of nodes.
    """

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:NodePools", name, None, opts)
        env, child = args.environment, pulumi.ResourceOptions(parent=self)
        for pool in env.pools:
            for node in simulated_nodes(env, pool):
                resource(f"{name}-{node['metadata']['name']}", _ours(node), child)
            selector = node_selector(env, pool)
            if selector:
                PoolNodes(
                    f"{name}-{pool.name}",
                    kubeconfig=args.kubeconfig,
                    context=env.context,
                    selector=selector,
                    may_be_empty=pool.hosts is not None,
                    joining=joining(env, pool),
                    manager=manager(env, pool),
                    labels=pool_labels(env, pool),
                    taints=pool_taints(env, pool),
                    startup=until_proven(env, pool),
                    sharing=device_plugin_change(env, pool),
                    opts=child,
                )
        self.register_outputs({})


def _ours(node: Mapping[str, Any]) -> dict[str, Any]:
    """A simulated node belongs to this program alone: fields set by another manager are overwritten."""
    metadata = node["metadata"]
    annotations = {**metadata.get("annotations", {}), "pulumi.com/patchForce": "true"}
    return {**node, "metadata": {**metadata, "annotations": annotations}}

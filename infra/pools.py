"""Arguments of the components of pools: nodes, MIG layouts, Karpenter's objects."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from components.custom_resources import MigLayoutArgs, PoolNodesArgs
from components.elastic_pools import ElasticPool, ElasticPoolsArgs
from components.node_pools import MigLayoutsArgs, NodePoolsArgs
from infra.model import labels, reset
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import mig_parted, pool_keeper, sharing
from infra.plan.karpenter import node_pools
from infra.plan.node_class import ec2_node_class, node_role
from infra.plan.nodes import simulated_nodes
from infra.plan.overlays import node_overlays
from infra.plan.startup import until_proven


def nodes(env: Environment, kubeconfig: pulumi.Input[str]) -> NodePoolsArgs:
    """Simulated nodes, and labels and taints of all others; those of Magnum's node groups are waited for."""
    found = {
        pool.name: PoolNodesArgs(
            kubeconfig=kubeconfig,
            context=env.context,
            selector=selector,
            may_be_empty=pool.hosts is not None or None,
            joining=pool_keeper.joining(env, pool),
            manager=pool_keeper.manager(env, pool),
            labels=sharing.pool_labels(env, pool),
            taints=sharing.pool_taints(env, pool),
            startup=until_proven(env, pool),
            sharing=sharing.device_plugin_change(env, pool),
        )
        for pool in env.pools
        if (selector := sharing.node_selector(env, pool))
    }
    simulated = [node for pool in env.pools for node in simulated_nodes(env, pool)]
    return NodePoolsArgs(pools=found, simulated=simulated)


def mig_layouts(env: Environment, kubeconfig: pulumi.Input[str]) -> MigLayoutsArgs:
    """Layouts of the MIG-capable pools, those without slices included.

    Nodes that join with their layout are not: Karpenter's, which are created with its label, and those of an
    image that partitions its GPUs at boot.
    """
    kept = pool_keeper.kept(env)
    found = {
        pool.name: MigLayoutArgs(
            kubeconfig=kubeconfig,
            context=env.context,
            selector=f"{labels.POOL}={pool.name}",
            config=config,
            layout=mig_parted.content(pool),
            # GPUs allocated by claim are not a resource, whatever their layout.
            offers=sharing.offered(env, pool) or {labels.NVIDIA_GPU: 0},
            may_be_empty=pool.hosts is not None or None,
            kept=pool in kept or None,
            in_use=pool.relayout.in_use if pool.relayout else None,
            max_unavailable=pool.relayout.max_unavailable if pool.relayout else None,
            timeout_seconds=_timeout_s(env, pool),
        )
        for pool in env.pools
        if (config := sharing.mig_config_name(pool))
        and pool.laid_out_live(env.cluster.kind)
        and env.has_mig_manager
    }
    return MigLayoutsArgs(layouts=found)


def _timeout_s(env: Environment, pool: Pool) -> int | None:
    """The declared limit of a node's change; without one that of a reboot, or None for the resource's own."""
    declared = pool.relayout.timeout_seconds if pool.relayout else None
    return declared or (reset.TIMEOUT_S if reset.of(env.cluster.kind, pool) == "reboot" else None)


def elastic(env: Environment, subnets: Mapping[str, pulumi.Output[str]]) -> ElasticPoolsArgs:
    """Pools that Karpenter provisions; ``subnets`` are ids by zone, in an existing VPC."""
    found = [
        ElasticPool(
            node_class=ec2_node_class(env, pool, node_role(env), env.name, subnets),
            overlays=node_overlays(env, pool),
            node_pools=node_pools(env, pool),
        )
        for pool in env.pools
        if pool.by_karpenter
    ]
    return ElasticPoolsArgs(pools=found)

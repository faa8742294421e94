"""Magnum's node groups, one per pool."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_openstack import containerinfra

from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import magnum, magnum_guards


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    """The environment with the pools, and the id of the cluster that gets their nodes."""

    environment: Environment
    cluster_id: pulumi.Input[str]


class NodeGroups(pulumi.ComponentResource):
    """One node group per pool. NodePools sets the labels and taints of its nodes.

    The provider uses Magnum's API 1.10, and groups have node labels and taints from 1.14 on.
    """

    def __init__(self, name: str, args: NodeGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:openstack:NodeGroups", name, None, opts)
        for pool in args.environment.pools:
            containerinfra.NodeGroup(
                f"{name}-{pool.name}",
                cluster_id=args.cluster_id,
                **magnum.node_group(args.environment, pool),
                opts=_options(self, args.environment, pool),
            )
        self.register_outputs({})


def _options(parent: pulumi.Resource, env: Environment, pool: Pool) -> pulumi.ResourceOptions:
    """How a group is created, changed and replaced.

    Its name is unique in its cluster, so a replacement deletes the old one first. Labels are ignored as for
    the cluster; cluster-autoscaler sets the node count of an elastic group.
    """
    minutes = f"{magnum.wait_minutes(env)}m"
    return pulumi.ResourceOptions(
        parent=parent,
        delete_before_replace=True,
        ignore_changes=["labels", "nodeCount"] if pool.elastic else ["labels"],
        replacement_trigger=magnum_guards.of_pool(env, pool).trigger,
        custom_timeouts=pulumi.CustomTimeouts(create=minutes, update=minutes, delete=minutes),
    )

"""A Magnum cluster, its node groups, and the guards against their replacement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_openstack import containerinfra

from components.custom_resources import ReplacementGuard, ReplacementGuardArgs
from components.manifest import timeouts

KUBECONFIG = "raw_config"
"""Key in the provider's output ``kubeconfig``, a map (documentation of its cluster resource)."""


@dataclass(frozen=True, kw_only=True)
class ReplacementGuardsArgs:
    """What each guard, by its name, is for."""

    guards: Mapping[str, ReplacementGuardArgs]


class ReplacementGuards(pulumi.ComponentResource):
    """All guards, before the first OpenStack resource: one that fails leaves everything as it is.

    Removing a pool also removes its guard: that is a loss, which LossGuard judges.
    """

    def __init__(
        self, name: str, args: ReplacementGuardsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:openstack:ReplacementGuards", name, None, opts)
        for guard_name, guard_args in args.guards.items():
            ReplacementGuard(f"{name}-{guard_name}", guard_args, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


@dataclass(frozen=True, kw_only=True)
class MagnumClusterArgs:
    """Arguments of the cluster; ``template`` is its template's id.

    ``minutes`` bound each operation; other values of ``trigger`` replace the cluster; another template does,
    unless Magnum ``upgrades`` to it; ``protect``: the engine refuses to delete or replace the cluster.
    """

    cluster: Mapping[str, Any]
    region: str | None
    template: pulumi.Output[str]
    minutes: int
    trigger: Mapping[str, Any]
    upgrades: bool
    protect: bool


class MagnumCluster(pulumi.ComponentResource):
    """A control plane and the default workers; see NodeGroups for its node groups.

    Its kubeconfig holds an administrator's client certificate, signed by Magnum, so it is a secret. Magnum's
    clusters may share a name, and then lookup by name fails: a replacement deletes the old cluster first.
    """

    cluster_id: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(
        self, name: str, args: MagnumClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:openstack:MagnumCluster", name, None, opts)
        cluster = self._cluster(name, args)
        self.cluster_id = cluster.id
        self.kubeconfig = pulumi.Output.secret(cluster.kubeconfig[KUBECONFIG])
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=self.kubeconfig,
            enable_config_map_mutable=True,
            # The same cluster may get a new kubeconfig; only another cluster replaces the objects in it.
            cluster_identifier=self.cluster_id,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"cluster_id": self.cluster_id, "kubeconfig": self.kubeconfig})

    def _cluster(self, name: str, args: MagnumClusterArgs) -> containerinfra.Cluster:
        """The cluster.

        Changes of labels are ignored, because Magnum and its template add theirs to ours, and the provider
        would replace the cluster for each; changes of the timeout, because it applies to creation only.
        Declared changes that need a replacement change the trigger, once the guard allows them; a replacement
        has the labels as declared.
        """
        return containerinfra.Cluster(
            f"{name}-cluster",
            cluster_template_id=args.template,
            # The provider compares it with the cluster's region: declaring its own one is not a change.
            region=args.region,
            **args.cluster,
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=["labels", "createTimeout"],
                replacement_trigger=args.trigger,
                replace_on_changes=[] if args.upgrades else ["clusterTemplateId"],
                delete_before_replace=True,
                protect=args.protect,
                custom_timeouts=timeouts(args.minutes, args.minutes, args.minutes),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Arguments of a group; other values of ``trigger`` replace it; ``elastic``: an autoscaler resizes it."""

    arguments: Mapping[str, Any]
    trigger: Mapping[str, Any]
    elastic: bool


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    """Groups by the pool's name, and the id of their cluster; ``minutes`` bound each operation."""

    groups: Mapping[str, NodeGroup]
    cluster_id: pulumi.Input[str]
    minutes: int


class NodeGroups(pulumi.ComponentResource):
    """One node group per pool. NodePools sets the labels and taints of its nodes.

    The provider uses Magnum's API 1.10, and groups have node labels and taints from 1.14 on. Labels are
    ignored as for the cluster. A group's name is unique in it, so a replacement deletes the old one first.
    """

    def __init__(self, name: str, args: NodeGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:openstack:NodeGroups", name, None, opts)
        for pool, group in args.groups.items():
            containerinfra.NodeGroup(
                f"{name}-{pool}",
                cluster_id=args.cluster_id,
                **group.arguments,
                opts=pulumi.ResourceOptions(
                    parent=self,
                    delete_before_replace=True,
                    ignore_changes=["labels", "nodeCount"] if group.elastic else ["labels"],
                    replacement_trigger=group.trigger,
                    custom_timeouts=timeouts(args.minutes, args.minutes, args.minutes),
                ),
            )
        self.register_outputs({})

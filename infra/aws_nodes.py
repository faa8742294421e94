"""What an EKS cluster gets before the platform: add-ons, nodes and Karpenter."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.add_ons import AddOns, AddOnsArgs
from components.args import ReleaseArgs
from components.efa_device_plugin import EfaDevicePlugin
from components.eks_cluster import EksCluster
from components.existing_vpc import ExistingVpc
from components.karpenter import Karpenter, KarpenterArgs
from components.network import Network
from components.node_groups import NodeGroups, NodeGroupsArgs
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import add_ons, efa, node_groups


@dataclass(frozen=True, kw_only=True)
class Place:
    """Account, network and control plane of the add-ons and nodes."""

    environment: Environment
    provider: aws.Provider
    account: pulumi.Output[str]
    partition: pulumi.Output[str]
    network: Network | ExistingVpc
    eks: EksCluster
    guard: pulumi.Resource

    def after(self, *parts: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options of a component that depends on ``parts``, with the AWS and the Kubernetes provider."""
        return pulumi.ResourceOptions(providers=[self.provider, self.eks.provider], depends_on=parts)

    def add_ons(self, versions: dict[str, str]) -> AddOnsArgs:
        return AddOnsArgs(
            cluster_name=self.eks.cluster_name,
            partition=self.partition,
            versions=versions,
            settings=add_ons.settings(self.environment),
        )

    def node_groups(self, *pools: Pool) -> NodeGroupsArgs:
        return NodeGroupsArgs(
            environment=self.environment,
            pools=pools,
            partition=self.partition,
            cluster_name=self.eks.cluster_name,
            joining=self.eks.joining,
            security_group=self.eks.security_group,
            subnets=self.network.private_subnets,
        )

    def karpenter(self) -> KarpenterArgs:
        return KarpenterArgs(
            environment=self.environment,
            region=node_groups.cluster_of(self.environment).region,
            partition=self.partition,
            account=self.account,
            cluster_name=self.eks.cluster_name,
        )


def nodes(place: Place) -> tuple[pulumi.Resource, ...]:
    """Register add-ons, nodes and Karpenter in order; returns what the platform must wait for.

    Nodes become Ready only with the network add-ons, CoreDNS only with nodes, Karpenter's pods with both.
    Nodes reach the internet through the network's routes, so nothing starts before the routes exist.
    """
    env = place.environment
    early = AddOns("node-add-ons", place.add_ons(add_ons.before_nodes(env)), place.after(place.network))
    pool = node_groups.system_pool(env)
    system = NodeGroups("system", place.node_groups(pool), place.after(early, place.guard))
    made: list[pulumi.Resource] = [
        AddOns("add-ons", place.add_ons(add_ons.after_nodes(env)), place.after(system))
    ]
    pools = node_groups.managed_pools(env)
    if pools:
        made.append(NodeGroups("mng", place.node_groups(*pools), place.after(system)))
    fabric = efa.release(env)
    if fabric:
        made.append(EfaDevicePlugin("efa", ReleaseArgs(release=fabric), place.after(*made)))
    if any(pool.by_karpenter for pool in env.pools):
        made.append(Karpenter("karpenter", place.karpenter(), place.after(*made)))
    return tuple(made)

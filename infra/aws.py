"""The AWS part of the program. Other targets do not import it, so they do not load the AWS SDK."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.add_ons import AddOns, AddOnsArgs
from components.eks_cluster import EksCluster, EksClusterArgs
from components.karpenter import Karpenter, KarpenterArgs
from components.network import ExistingVpc, ExistingVpcArgs, Network, NetworkArgs
from components.node_groups import ManagedPool, NodeGroups, NodeGroupsArgs
from components.releases import EfaDevicePlugin, ReleaseArgs
from infra import guards
from infra.model import labels
from infra.model.aws import AwsCluster
from infra.model.aws_network import ExistingNetwork
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import device_plugin, eks, node_class, node_groups, sharing
from infra.plan.node_groups import cluster_of
from infra.target import Target


def cluster(env: Environment) -> Target:
    """Register network, control plane, nodes and Karpenter, each after the parts it needs."""
    declared, name = cluster_of(env), env.name
    every = aws.ProviderDefaultTagsArgs(tags={labels.ENVIRONMENT: name, **declared.tags})
    guarded = pulumi.ResourceOptions(depends_on=[guards.of_cluster(env)])
    provider = aws.Provider(f"{name}-aws", region=declared.region, default_tags=every, opts=guarded)
    on_aws = pulumi.ResourceOptions(providers=[provider])
    asked = pulumi.InvokeOutputOptions(provider=provider)
    partition = aws.get_partition_output(opts=asked).partition
    network = _network(env, declared, on_aws)
    control_plane = EksClusterArgs(
        cluster=declared,
        cluster_name=name,
        partition=partition,
        subnet_ids=list(network.private_subnets.values()),
        protect=guards.protected(env),
    )
    plane = EksCluster(name, control_plane, on_aws)
    place = _Place(
        environment=env,
        provider=provider,
        account=aws.get_caller_identity_output(opts=asked).account_id,
        partition=partition,
        network=network,
        eks=plane,
        guard=guards.of_contents(env, plane.kubeconfig),
    )
    existing = network.private_subnets if isinstance(network, ExistingVpc) else {}
    ready = (place.guard, *_nodes(place))
    return Target(kubeconfig=plane.kubeconfig, provider=plane.provider, ready=ready, subnets=existing)


def _network(env: Environment, declared: AwsCluster, opts: pulumi.ResourceOptions) -> Network | ExistingVpc:
    if isinstance(declared.network, ExistingNetwork):
        return ExistingVpc("network", ExistingVpcArgs(network=declared.network), opts)
    args = NetworkArgs(
        cluster=declared, network=declared.network, cluster_name=env.name, protect=guards.protected(env)
    )
    return Network("network", args, opts)


@dataclass(frozen=True, kw_only=True)
class _Place:
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

    def managed(self, pool: Pool) -> ManagedPool:
        env, release = self.environment, node_groups.release_parameter(self.environment, pool)
        alone = self.eks.joining.apply(lambda joining: node_groups.boot(env, pool, joining))
        return ManagedPool(
            pool=pool,
            zones=node_groups.zones(env, pool),
            labels=sharing.pool_labels(env, pool),
            taints=node_groups.taints(env, pool),
            tags=node_groups.instance_tags(env, pool),
            repaired=node_groups.repaired(env, pool),
            release=release,
            image_id=None if release else cluster_of(env).images[pool.image.key],
            user_data=node_groups.boot(env, pool) if release else alone,
        )


def _nodes(place: _Place) -> tuple[pulumi.Resource, ...]:
    """Register add-ons, nodes and Karpenter in order; returns what the platform must wait for.

    Nodes become Ready only with the network add-ons, CoreDNS only with nodes, Karpenter's pods with both.
    Nodes reach the internet through the network's routes, so nothing starts before the routes exist.
    """
    env, on = place.environment, place.eks

    def stage(name: str, versions: dict[str, str], *parts: pulumi.Resource) -> AddOns:
        settings = eks.add_on_settings(env)
        args = AddOnsArgs(
            cluster_name=on.cluster_name, partition=place.partition, versions=versions, settings=settings
        )
        return AddOns(name, args, place.after(*parts))

    def groups(name: str, pools: Iterable[Pool], *parts: pulumi.Resource) -> NodeGroups:
        args = NodeGroupsArgs(
            pools=[place.managed(pool) for pool in pools],
            partition=place.partition,
            cluster_name=on.cluster_name,
            security_group=on.security_group,
            subnets=place.network.private_subnets,
        )
        return NodeGroups(name, args, place.after(*parts))

    early = stage("node-add-ons", eks.before_nodes(env), place.network)
    system = groups("system", [node_groups.system_pool(env)], early, place.guard)
    made: list[pulumi.Resource] = [stage("add-ons", eks.after_nodes(env), system)]
    if pools := node_groups.managed_pools(env):
        made.append(groups("mng", pools, system))
    if fabric := device_plugin.efa_release(env):
        made.append(EfaDevicePlugin("efa", ReleaseArgs(release=fabric), place.after(*made)))
    if any(pool.by_karpenter for pool in env.pools):
        karpenter = KarpenterArgs(
            crds=eks.karpenter_crd_release(env),
            controller=eks.karpenter_release(env),
            node_role=node_class.node_role(env),
            queue=eks.interruption_queue(env),
            region=cluster_of(env).region,
            partition=place.partition,
            account=place.account,
            cluster_name=on.cluster_name,
        )
        made.append(Karpenter("karpenter", karpenter, place.after(*made)))
    return tuple(made)

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
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan import device_plugin, eks, node_groups, sharing
from infra.plan.karpenter import node_role
from infra.plan.node_groups import cluster_of
from infra.program import guards
from infra.program.target import Target


def cluster(env: Environment) -> Target:
    """Register network, control plane, nodes and Karpenter, each after the parts it needs."""
    declared, name = cluster_of(env), env.name
    default_tags = aws.ProviderDefaultTagsArgs(tags={labels.ENVIRONMENT: name, **declared.tags})
    guarded = pulumi.ResourceOptions(depends_on=[guards.cluster_guard(env)])
    provider = aws.Provider(f"{name}-aws", region=declared.region, default_tags=default_tags, opts=guarded)
    with_provider = pulumi.ResourceOptions(providers=[provider])
    invoke_options = pulumi.InvokeOutputOptions(provider=provider)
    partition = aws.get_partition_output(opts=invoke_options).partition
    network = _network(env, declared, with_provider)
    eks_args = EksClusterArgs(
        cluster=declared,
        cluster_name=name,
        partition=partition,
        subnet_ids=list(network.private_subnets.values()),
        protect=guards.is_protected(env),
    )
    eks_cluster = EksCluster(name, eks_args, with_provider)
    context = _Context(
        environment=env,
        provider=provider,
        account=aws.get_caller_identity_output(opts=invoke_options).account_id,
        partition=partition,
        network=network,
        eks=eks_cluster,
        guard=guards.contents_guard(env, eks_cluster.kubeconfig),
    )
    existing = network.private_subnets if isinstance(network, ExistingVpc) else {}
    nodes = _nodes(context)
    return Target(
        kubeconfig=eks_cluster.kubeconfig,
        provider=eks_cluster.provider,
        ready=(context.guard, *nodes),
        karpenter=_karpenter(context, nodes) if env.has_karpenter else (),
        subnets=existing,
    )


def _network(env: Environment, declared: AwsCluster, opts: pulumi.ResourceOptions) -> Network | ExistingVpc:
    if isinstance(declared.network, ExistingNetwork):
        return ExistingVpc("network", ExistingVpcArgs(network=declared.network), opts)
    network_args = NetworkArgs(
        cluster=declared, network=declared.network, cluster_name=env.name, protect=guards.is_protected(env)
    )
    return Network("network", network_args, opts)


@dataclass(frozen=True, kw_only=True)
class _Context:
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
        boot_data = self.eks.joining.apply(lambda joining: node_groups.encoded_user_data(env, pool, joining))
        return ManagedPool(
            pool=pool,
            zones=node_groups.zones(env, pool),
            labels=sharing.pool_labels(env, pool),
            taints=node_groups.taints(env, pool),
            tags=node_groups.instance_tags(env, pool),
            repaired=node_groups.is_repaired(env, pool),
            release=release,
            image_id=None if release else cluster_of(env).images[pool.image.key],
            user_data=node_groups.encoded_user_data(env, pool) if release else boot_data,
        )


def _nodes(context: _Context) -> tuple[pulumi.Resource, ...]:
    """Register add-ons and nodes in order; returns what the platform and Karpenter must wait for.

    Nodes become Ready only with the network add-ons, CoreDNS only with nodes, other pods with both.
    Nodes reach the internet through the network's routes, so nothing starts before the routes exist.
    """
    env, cluster = context.environment, context.eks

    def stage(name: str, versions: dict[str, str], *parts: pulumi.Resource) -> AddOns:
        settings = eks.add_on_settings(env)
        args = AddOnsArgs(
            cluster_name=cluster.cluster_name,
            partition=context.partition,
            versions=versions,
            settings=settings,
        )
        return AddOns(name, args, context.after(*parts))

    def groups(name: str, pools: Iterable[Pool], *parts: pulumi.Resource) -> NodeGroups:
        args = NodeGroupsArgs(
            pools=[context.managed(pool) for pool in pools],
            partition=context.partition,
            cluster_name=cluster.cluster_name,
            security_group=cluster.security_group,
            subnets=context.network.private_subnets,
        )
        return NodeGroups(name, args, context.after(*parts))

    node_add_ons = stage("node-add-ons", eks.before_nodes(env), context.network)
    system = groups("system", [node_groups.system_pool(env)], node_add_ons, context.guard)
    created: list[pulumi.Resource] = [stage("add-ons", eks.after_nodes(env), system)]
    if pools := node_groups.managed_pools(env):
        created.append(groups("mng", pools, system))
    if efa_release := device_plugin.efa_release(env):
        created.append(EfaDevicePlugin("efa", ReleaseArgs(release=efa_release), context.after(*created)))
    return tuple(created)


def _karpenter(context: _Context, nodes: tuple[pulumi.Resource, ...]) -> tuple[pulumi.Resource, ...]:
    """Installed while the platform is: only the elastic pools need both."""
    env = context.environment
    args = KarpenterArgs(
        crds=eks.karpenter_crd_release(env),
        controller=eks.karpenter_release(env),
        node_role=node_role(env),
        queue=eks.interruption_queue(env),
        region=cluster_of(env).region,
        partition=context.partition,
        account=context.account,
        cluster_name=context.eks.cluster_name,
    )
    return (Karpenter("karpenter", args, context.after(*nodes)),)

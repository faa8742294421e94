"""The AWS part of the program. Other targets do not import it, so they do not load the AWS SDK."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from components.eks_cluster import EksCluster, EksClusterArgs
from components.existing_vpc import ExistingVpc, ExistingVpcArgs
from components.network import Network, NetworkArgs
from infra import guards
from infra.aws_nodes import Place, nodes
from infra.model import labels
from infra.model.aws import AwsCluster
from infra.model.aws_network import ExistingNetwork
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of
from infra.target import Target


def cluster(env: Environment) -> Target:
    """Register network, control plane, nodes and Karpenter, each after the parts it needs."""
    declared, name = cluster_of(env), env.name
    tags = aws.ProviderDefaultTagsArgs(tags={labels.ENVIRONMENT: name, **declared.tags})
    guarded = pulumi.ResourceOptions(depends_on=[guards.of_cluster(env)])
    provider = aws.Provider(f"{name}-aws", region=declared.region, default_tags=tags, opts=guarded)
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
    eks = EksCluster(name, control_plane, on_aws)
    inside = guards.of_contents(env, eks.kubeconfig)
    place = Place(
        environment=env,
        provider=provider,
        account=aws.get_caller_identity_output(opts=asked).account_id,
        partition=partition,
        network=network,
        eks=eks,
        guard=inside,
    )
    existing = network.private_subnets if isinstance(network, ExistingVpc) else {}
    ready = (inside, *nodes(place))
    return Target(kubeconfig=eks.kubeconfig, provider=eks.provider, ready=ready, subnets=existing)


def _network(env: Environment, declared: AwsCluster, opts: pulumi.ResourceOptions) -> Network | ExistingVpc:
    if isinstance(declared.network, ExistingNetwork):
        return ExistingVpc("network", ExistingVpcArgs(network=declared.network), opts)
    args = NetworkArgs(
        cluster=declared, network=declared.network, cluster_name=env.name, protect=guards.protected(env)
    )
    return Network("network", args, opts)

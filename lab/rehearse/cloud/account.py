"""What an account has when Karpenter starts: network, role, queue and cluster of an environment.

The program creates them with the engine, but the engine's stand-in for AWS creates nothing. So they are
created in the simulated account, with the names and tags that the program gives them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuform.clients.aws.api import create_client, translate_errors
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork, OwnNetwork
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import addresses
from infra.plan import eks, karpenter, node_groups
from lab.offline.aws.functions import assumed_subnet

_EXISTING = "10.0.0.0/16"
"""Network of an existing VPC, which no stack file declares."""
_TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


def create_account(env: Environment) -> None:
    """Create them; the AWS variables of this process must point to the simulated AWS."""
    cluster = node_groups.cluster_of(env)
    with translate_errors("the simulated AWS"):
        _network(create_client("ec2", cluster.region), env, cluster)
        iam = create_client("iam", cluster.region)
        iam.create_role(RoleName=karpenter.node_role(env), AssumeRolePolicyDocument=_TRUST)
        arn = iam.create_role(RoleName=env.name, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
        create_client("eks", cluster.region).create_cluster(
            name=env.name, version=cluster.version, roleArn=arn, resourcesVpcConfig={}
        )
        create_client("sqs", cluster.region).create_queue(QueueName=eks.interruption_queue(env))


def _network(ec2: Any, env: Environment, cluster: AwsCluster) -> None:
    """A VPC with the private subnets and the nodes' security group, which Karpenter discovers by tag.

    An existing VPC and its subnets get the declared ids and no tag, so Karpenter cannot discover them.
    """
    network = cluster.network
    existing = network if isinstance(network, ExistingNetwork) else None
    cidr_network = (
        network if isinstance(network, OwnNetwork) else OwnNetwork(cidr=_EXISTING, zones=network.zones)
    )
    ec2.describe_vpcs()  # with its first request, moto creates a default VPC, which has ids of its own
    with _with_id("vpc", existing.vpc if existing else ""):
        vpc = ec2.create_vpc(CidrBlock=cidr_network.cidr)["Vpc"]["VpcId"]
    for subnet in addresses.subnets(cidr_network):
        arguments: dict[str, Any] = {
            "VpcId": vpc,
            "CidrBlock": subnet.private,
            "AvailabilityZone": subnet.zone,
        }
        if existing is None:
            ec2.create_subnet(**arguments, TagSpecifications=_discovery_tags(env, "subnet"))
            continue
        id = existing.subnet_ids.get(subnet.zone) or assumed_subnet(
            existing.vpc, subnet.zone, existing.subnet_tags
        )
        with _with_id("subnet", id):
            ec2.create_subnet(**arguments)
    ec2.create_security_group(
        GroupName=f"{env.name}-nodes",
        Description="nodes",
        VpcId=vpc,
        TagSpecifications=_discovery_tags(env, "security-group"),
    )


@contextmanager
def _with_id(kind: str, id: str) -> Iterator[None]:
    """What moto creates meanwhile gets this id, or a random one if it is empty."""
    models = importlib.import_module(f"moto.ec2.models.{kind}s")
    name = f"random_{kind}_id"
    before = getattr(models, name)
    if id:
        setattr(models, name, lambda: id)
    try:
        yield
    finally:
        setattr(models, name, before)


def _discovery_tags(env: Environment, kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": labels.KARPENTER_DISCOVERY, "Value": env.name}]}]

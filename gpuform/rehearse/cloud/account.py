"""What an account has when Karpenter starts: network, role, queue and cluster of an environment.

The program creates them with the engine, but the engine's stand-in for AWS creates nothing. So they are
created in the simulated account, with the names and tags that the program gives them.
"""

from __future__ import annotations

import json
from typing import Any

from gpuform.aws.api import answers, client
from infra.model import addresses, labels
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.plan import eks, node_class

_TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


def furnish(env: Environment) -> None:
    """Create them; the AWS variables of this process must point to the simulated AWS."""
    cluster = env.cluster
    assert isinstance(cluster, AwsCluster)
    with answers("the simulated AWS"):
        _network(client("ec2", cluster.region), env, cluster)
        iam = client("iam", cluster.region)
        iam.create_role(RoleName=node_class.node_role(env), AssumeRolePolicyDocument=_TRUST)
        arn = iam.create_role(RoleName=env.name, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
        client("eks", cluster.region).create_cluster(
            name=env.name, version=cluster.version, roleArn=arn, resourcesVpcConfig={}
        )
        client("sqs", cluster.region).create_queue(QueueName=eks.interruption_queue(env))


def _network(ec2: Any, env: Environment, cluster: AwsCluster) -> None:
    """A VPC with the private subnets and the nodes' security group, which Karpenter discovers by tag."""
    vpc = ec2.create_vpc(CidrBlock=cluster.network.cidr)["Vpc"]["VpcId"]
    for one in addresses.subnets(cluster.network):
        tags = _found(env, "subnet")
        ec2.create_subnet(VpcId=vpc, CidrBlock=one.private, AvailabilityZone=one.zone, TagSpecifications=tags)
    ec2.create_security_group(
        GroupName=f"{env.name}-nodes",
        Description="nodes",
        VpcId=vpc,
        TagSpecifications=_found(env, "security-group"),
    )


def _found(env: Environment, kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": labels.KARPENTER_DISCOVERY, "Value": env.name}]}]

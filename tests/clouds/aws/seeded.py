"""What a killed run may have created at AWS: one resource of each type, created in moto as the program would.

Each function creates it and returns the inputs of the state's pending operation, and the id to import.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jmespath  # type: ignore[import-untyped]

from gpuform.clients.aws import api

REGION = "us-west-2"
TAGS = {"gpuform.io/environment": "labs", "Name": "labs"}
ALLOWED = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
TRUST, ALLOW = (json.dumps({"Version": "2012-10-17", "Statement": some}) for some in ([], [ALLOWED]))
ARN = "arn:aws:iam::123456789012:role/r"
Tags = dict[str, str]
Seeded = tuple[dict[str, Any], str]
Seed = Callable[[Tags], Seeded]


def pairs(tags: Tags, key: str = "Key", value: str = "Value") -> list[Tags]:
    return [{key: name, value: text} for name, text in tags.items()]


def tag_specification(kind: str, tags: Tags) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": pairs(tags)}] if tags else []


def aws_client(service: str) -> Any:
    return api.create_client(service, REGION)


def seed(operation: str, kind: str, id: str, ask: Callable[[], dict[str, str]] = dict, **inputs: str) -> Seed:
    """Creates a tagged resource of EC2.

    Args:
        id: JMESPath of the id in the answer.
        ask: makes the request, with what the resource needs.
        inputs: key of the request by input of the pending operation.
    """

    def make(tags: Tags) -> Seeded:
        request, specification = ask(), tag_specification(kind, tags)
        answer = getattr(aws_client("ec2"), operation)(TagSpecifications=specification, **request)
        return {name: request[key] for name, key in inputs.items()}, str(jmespath.search(id, answer))

    return make


vpc = seed("create_vpc", "vpc", "Vpc.VpcId", lambda: {"CidrBlock": "10.20.0.0/16"}, cidrBlock="CidrBlock")


def in_new_vpc(**more: str) -> dict[str, str]:
    """A request for something in a VPC of its own."""
    return {"VpcId": vpc({})[1], **more}


def rule_of_group() -> dict[str, Any]:
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    return {"GroupId": security_group({})[1], "IpPermissions": [https]}


subnet = seed(
    "create_subnet", "subnet", "Subnet.SubnetId", lambda: in_new_vpc(CidrBlock="10.20.1.0/24"), vpcId="VpcId"
)
internet_gateway = seed("create_internet_gateway", "internet-gateway", "InternetGateway.InternetGatewayId")
eip = seed("allocate_address", "elastic-ip", "AllocationId", lambda: {"Domain": "vpc"}, domain="Domain")
nat_gateway = seed(
    "create_nat_gateway", "natgateway", "NatGateway.NatGatewayId",
    lambda: {"SubnetId": subnet({})[1], "AllocationId": eip({})[1]},
)  # fmt: skip
route_table = seed("create_route_table", "route-table", "RouteTable.RouteTableId", in_new_vpc, vpcId="VpcId")
endpoint = seed(
    "create_vpc_endpoint", "vpc-endpoint", "VpcEndpoint.VpcEndpointId",
    lambda: in_new_vpc(ServiceName=f"com.amazonaws.{REGION}.s3"), vpcId="VpcId", serviceName="ServiceName",
)  # fmt: skip
security_group = seed(
    "create_security_group", "security-group", "GroupId",
    lambda: in_new_vpc(GroupName="e-1234567", Description="d"), vpcId="VpcId", name="GroupName",
)  # fmt: skip
rule = seed(
    "authorize_security_group_ingress", "security-group-rule", "SecurityGroupRules[0].SecurityGroupRuleId",
    rule_of_group, securityGroupId="GroupId",
)  # fmt: skip
LAUNCHED: dict[str, Any] = {"LaunchTemplateName": "t-1234567", "LaunchTemplateData": {"ImageId": "ami-1"}}
launch_template = seed(
    "create_launch_template", "launch-template", "LaunchTemplate.LaunchTemplateId",
    lambda: LAUNCHED, name="LaunchTemplateName",
)  # fmt: skip


def route(tags: Tags) -> Seeded:
    inputs, table = route_table({})
    gateway = internet_gateway({})[1]
    aws_client("ec2").attach_internet_gateway(InternetGatewayId=gateway, VpcId=inputs["vpcId"])
    aws_client("ec2").create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    return {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0"}, f"{table}_0.0.0.0/0"


def association(tags: Tags) -> Seeded:
    inputs, inside = subnet({})
    table = aws_client("ec2").create_route_table(VpcId=inputs["vpcId"])["RouteTable"]["RouteTableId"]
    aws_client("ec2").associate_route_table(RouteTableId=table, SubnetId=inside)
    return {"routeTableId": table, "subnetId": inside}, f"{inside}/{table}"


def tag(tags: Tags) -> Seeded:
    group = security_group({})[1]
    aws_client("ec2").create_tags(Resources=[group], Tags=pairs({"karpenter.sh/discovery": "labs"}))
    inputs = {"resourceId": group, "key": "karpenter.sh/discovery", "value": "labs"}
    return inputs, f"{group},karpenter.sh/discovery"


def role(tags: Tags) -> Seeded:
    aws_client("iam").create_role(RoleName="node-1234567", AssumeRolePolicyDocument=TRUST, Tags=pairs(tags))
    return {"name": "node-1234567"}, "node-1234567"


def policy(tags: Tags) -> Seeded:
    made = aws_client("iam").create_policy(PolicyName="p-1234567", PolicyDocument=ALLOW, Tags=pairs(tags))
    return {"name": "p-1234567"}, made["Policy"]["Arn"]


def attachment(tags: Tags) -> Seeded:
    name, arn = role({})[1], policy({})[1]
    aws_client("iam").attach_role_policy(RoleName=name, PolicyArn=arn)
    return {"role": name, "policyArn": arn}, f"{name}/{arn}"


def key(tags: Tags) -> Seeded:
    return {}, aws_client("kms").create_key(Tags=pairs(tags, "TagKey", "TagValue"))["KeyMetadata"]["KeyId"]


def alias(tags: Tags) -> Seeded:
    target = key({})[1]
    aws_client("kms").create_alias(AliasName="alias/eks/labs", TargetKeyId=target)
    return {"name": "alias/eks/labs", "targetKeyId": target}, "alias/eks/labs"


def log_group(tags: Tags) -> Seeded:
    aws_client("logs").create_log_group(logGroupName="/aws/eks/labs/cluster", tags=tags)
    return {"name": "/aws/eks/labs/cluster"}, "/aws/eks/labs/cluster"


def event_rule(tags: Tags) -> Seeded:
    name, pattern = "k-rebalance-1", '{"source": ["aws.ec2"]}'
    aws_client("events").put_rule(Name=name, EventPattern=pattern, Tags=pairs(tags))
    return {"name": name}, name


def event_target(tags: Tags) -> Seeded:
    name, arn = event_rule({})[1], f"arn:aws:sqs:{REGION}:123456789012:labs"
    aws_client("events").put_targets(Rule=name, Targets=[{"Id": "target-1", "Arn": arn}])
    return {"rule": name, "arn": arn}, "k-rebalance-1/target-1"


def queue(tags: Tags) -> Seeded:
    return {"name": "labs"}, aws_client("sqs").create_queue(QueueName="labs", tags=tags)["QueueUrl"]


def queue_policy(tags: Tags) -> Seeded:
    url = queue({})[1]
    aws_client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": ALLOW})
    return {"queueUrl": url}, url


def cluster(tags: Tags) -> Seeded:
    vpc_config = {"subnetIds": [subnet({})[1]]}
    aws_client("eks").create_cluster(name="labs", roleArn=ARN, resourcesVpcConfig=vpc_config, tags=tags)
    return {"name": "labs"}, "labs"


def node_group(tags: Tags) -> Seeded:
    cluster({})
    request = {"nodegroupName": "system-1", "subnets": [subnet({})[1]], "nodeRole": ARN}
    aws_client("eks").create_nodegroup(clusterName="labs", tags=tags, **request)
    return {"clusterName": "labs", "nodeGroupName": "system-1"}, "labs:system-1"


TAGGED: dict[str, Seed] = {
    "aws:ec2/vpc:Vpc": vpc,
    "aws:ec2/subnet:Subnet": subnet,
    "aws:ec2/internetGateway:InternetGateway": internet_gateway,
    "aws:ec2/eip:Eip": eip,
    "aws:ec2/natGateway:NatGateway": nat_gateway,
    "aws:ec2/routeTable:RouteTable": route_table,
    "aws:ec2/vpcEndpoint:VpcEndpoint": endpoint,
    "aws:ec2/securityGroup:SecurityGroup": security_group,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": rule,
    "aws:ec2/launchTemplate:LaunchTemplate": launch_template,
    "aws:kms/key:Key": key,
}
"""Searched by tags: a resource without them is not found."""
NAMED: dict[str, Seed] = {
    "aws:iam/role:Role": role,
    "aws:iam/policy:Policy": policy,
    "aws:cloudwatch/logGroup:LogGroup": log_group,
    "aws:cloudwatch/eventRule:EventRule": event_rule,
    "aws:sqs/queue:Queue": queue,
    "aws:eks/cluster:Cluster": cluster,
    "aws:eks/nodeGroup:NodeGroup": node_group,
}
"""Searched by name: a resource without our tags is foreign."""
PARTS: dict[str, Seed] = {
    "aws:ec2/route:Route": route,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": association,
    "aws:ec2/tag:Tag": tag,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": attachment,
    "aws:kms/alias:Alias": alias,
    "aws:cloudwatch/eventTarget:EventTarget": event_target,
    "aws:sqs/queuePolicy:QueuePolicy": queue_policy,
}
"""Parts of resources that are known to be ours."""

"""What a killed run may have created at AWS: one resource of each type, created in moto as the program would.

Each function creates it and returns the inputs of the state's pending operation, and the id to import.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gpuform.clients.aws import api

REGION = "us-west-2"
TAGS = {"gpuform.io/environment": "labs", "Name": "labs"}
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})
ALLOW = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}
)
Seeded = tuple[dict[str, Any], str]
Seed = Callable[[dict[str, str]], Seeded]


def pairs(tags: dict[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    return [{key: name, value: text} for name, text in tags.items()]


def spec(kind: str, tags: dict[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": pairs(tags)}] if tags else []


def aws(service: str) -> Any:
    return api.client(service, REGION)


def ec2() -> Any:
    return aws("ec2")


def vpc(tags: dict[str, str]) -> Seeded:
    made = ec2().create_vpc(CidrBlock="10.20.0.0/16", TagSpecifications=spec("vpc", tags))
    return {"cidrBlock": "10.20.0.0/16"}, made["Vpc"]["VpcId"]


def subnet(tags: dict[str, str]) -> Seeded:
    around = vpc({})[1]
    made = ec2().create_subnet(VpcId=around, CidrBlock="10.20.1.0/24", TagSpecifications=spec("subnet", tags))
    return {"vpcId": around}, made["Subnet"]["SubnetId"]


def internet_gateway(tags: dict[str, str]) -> Seeded:
    made = ec2().create_internet_gateway(TagSpecifications=spec("internet-gateway", tags))
    return {}, made["InternetGateway"]["InternetGatewayId"]


def eip(tags: dict[str, str]) -> Seeded:
    made = ec2().allocate_address(Domain="vpc", TagSpecifications=spec("elastic-ip", tags))
    return {"domain": "vpc"}, made["AllocationId"]


def nat_gateway(tags: dict[str, str]) -> Seeded:
    made = ec2().create_nat_gateway(
        SubnetId=subnet({})[1], AllocationId=eip({})[1], TagSpecifications=spec("natgateway", tags)
    )
    return {}, made["NatGateway"]["NatGatewayId"]


def route_table(tags: dict[str, str]) -> Seeded:
    around = vpc({})[1]
    made = ec2().create_route_table(VpcId=around, TagSpecifications=spec("route-table", tags))
    return {"vpcId": around}, made["RouteTable"]["RouteTableId"]


def route(tags: dict[str, str]) -> Seeded:
    inputs, table = route_table({})
    gateway = internet_gateway({})[1]
    ec2().attach_internet_gateway(InternetGatewayId=gateway, VpcId=inputs["vpcId"])
    ec2().create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    return {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0"}, f"{table}_0.0.0.0/0"


def association(tags: dict[str, str]) -> Seeded:
    inputs, inside = subnet({})
    table = ec2().create_route_table(VpcId=inputs["vpcId"])["RouteTable"]["RouteTableId"]
    ec2().associate_route_table(RouteTableId=table, SubnetId=inside)
    return {"routeTableId": table, "subnetId": inside}, f"{inside}/{table}"


def endpoint(tags: dict[str, str]) -> Seeded:
    around, service = vpc({})[1], f"com.amazonaws.{REGION}.s3"
    made = ec2().create_vpc_endpoint(
        VpcId=around, ServiceName=service, TagSpecifications=spec("vpc-endpoint", tags)
    )
    return {"vpcId": around, "serviceName": service}, made["VpcEndpoint"]["VpcEndpointId"]


def security_group(tags: dict[str, str]) -> Seeded:
    around = vpc({})[1]
    made = ec2().create_security_group(
        VpcId=around, GroupName="e-1234567", Description="d", TagSpecifications=spec("security-group", tags)
    )
    return {"vpcId": around, "name": "e-1234567"}, made["GroupId"]


def rule(tags: dict[str, str]) -> Seeded:
    group = security_group({})[1]
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    made = ec2().authorize_security_group_ingress(
        GroupId=group, IpPermissions=[https], TagSpecifications=spec("security-group-rule", tags)
    )
    return {"securityGroupId": group}, made["SecurityGroupRules"][0]["SecurityGroupRuleId"]


def tag(tags: dict[str, str]) -> Seeded:
    group = security_group({})[1]
    ec2().create_tags(Resources=[group], Tags=pairs({"karpenter.sh/discovery": "labs"}))
    inputs = {"resourceId": group, "key": "karpenter.sh/discovery", "value": "labs"}
    return inputs, f"{group},karpenter.sh/discovery"


def launch_template(tags: dict[str, str]) -> Seeded:
    made = ec2().create_launch_template(
        LaunchTemplateName="t-1234567",
        LaunchTemplateData={"ImageId": "ami-1"},
        TagSpecifications=spec("launch-template", tags),
    )
    return {"name": "t-1234567"}, made["LaunchTemplate"]["LaunchTemplateId"]


def role(tags: dict[str, str]) -> Seeded:
    aws("iam").create_role(RoleName="node-1234567", AssumeRolePolicyDocument=TRUST, Tags=pairs(tags))
    return {"name": "node-1234567"}, "node-1234567"


def policy(tags: dict[str, str]) -> Seeded:
    made = aws("iam").create_policy(PolicyName="p-1234567", PolicyDocument=ALLOW, Tags=pairs(tags))
    return {"name": "p-1234567"}, made["Policy"]["Arn"]


def attachment(tags: dict[str, str]) -> Seeded:
    name, arn = role({})[1], policy({})[1]
    aws("iam").attach_role_policy(RoleName=name, PolicyArn=arn)
    return {"role": name, "policyArn": arn}, f"{name}/{arn}"


def key(tags: dict[str, str]) -> Seeded:
    made = aws("kms").create_key(Tags=pairs(tags, "TagKey", "TagValue"))
    return {}, made["KeyMetadata"]["KeyId"]


def alias(tags: dict[str, str]) -> Seeded:
    target = key({})[1]
    aws("kms").create_alias(AliasName="alias/eks/labs", TargetKeyId=target)
    return {"name": "alias/eks/labs", "targetKeyId": target}, "alias/eks/labs"


def log_group(tags: dict[str, str]) -> Seeded:
    aws("logs").create_log_group(logGroupName="/aws/eks/labs/cluster", tags=tags)
    return {"name": "/aws/eks/labs/cluster"}, "/aws/eks/labs/cluster"


def event_rule(tags: dict[str, str]) -> Seeded:
    aws("events").put_rule(Name="k-rebalance-1", EventPattern='{"source": ["aws.ec2"]}', Tags=pairs(tags))
    return {"name": "k-rebalance-1"}, "k-rebalance-1"


def event_target(tags: dict[str, str]) -> Seeded:
    name, arn = event_rule({})[1], f"arn:aws:sqs:{REGION}:123456789012:labs"
    aws("events").put_targets(Rule=name, Targets=[{"Id": "target-1", "Arn": arn}])
    return {"rule": name, "arn": arn}, "k-rebalance-1/target-1"


def queue(tags: dict[str, str]) -> Seeded:
    made = aws("sqs").create_queue(QueueName="labs", tags=tags)
    return {"name": "labs"}, made["QueueUrl"]


def queue_policy(tags: dict[str, str]) -> Seeded:
    url = queue({})[1]
    aws("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": ALLOW})
    return {"queueUrl": url}, url


def cluster(tags: dict[str, str]) -> Seeded:
    vpc_config = {"subnetIds": [subnet({})[1]]}
    arn = "arn:aws:iam::123456789012:role/r"
    aws("eks").create_cluster(name="labs", roleArn=arn, resourcesVpcConfig=vpc_config, tags=tags)
    return {"name": "labs"}, "labs"


def node_group(tags: dict[str, str]) -> Seeded:
    cluster({})
    aws("eks").create_nodegroup(
        clusterName="labs",
        nodegroupName="system-1",
        subnets=[subnet({})[1]],
        nodeRole="arn:aws:iam::123456789012:role/r",
        tags=tags,
    )
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

"""For each type of the table: the minimal input that AWS accepts, and one that it refuses, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

ROLE = "arn:aws:iam::123456789012:role/r"
POLICY = '{"Version": "2012-10-17", "Statement": []}'


class Example(NamedTuple):
    good: dict[str, Any]
    bad: dict[str, Any]  # merged over ``good``; None removes a field
    path: str
    reason: str


EXAMPLES = {
    "aws:ec2/vpc:Vpc": Example(
        {"cidrBlock": "10.0.0.0/16"},
        {"instanceTenancy": "shared"},
        "instanceTenancy",
        "'shared' is not known",
    ),
    "aws:ec2/subnet:Subnet": Example(
        {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24"}, {"vpcId": None}, "vpcId", "missing; ec2:CreateSubnet"
    ),
    "aws:ec2/internetGateway:InternetGateway": Example(
        {"vpcId": "vpc-1"}, {"vpcId": 3}, "vpcId", "ec2:AttachInternetGateway: value: 3, type: <class 'int'>"
    ),
    "aws:ec2/eip:Eip": Example({"domain": "vpc"}, {"domain": "cloud"}, "domain", "'cloud' is not known"),
    "aws:ec2/natGateway:NatGateway": Example(
        {"subnetId": "subnet-1"}, {"connectivityType": "open"}, "connectivityType", "'open' is not known"
    ),
    "aws:ec2/routeTable:RouteTable": Example({"vpcId": "vpc-1"}, {"vpcId": None}, "vpcId", "missing"),
    "aws:ec2/route:Route": Example(
        {"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0", "gatewayId": "igw-1"},
        {"destinationCidrBlock": "everywhere"},
        "destinationCidrBlock",
        "is not an IPv4 block",
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Example(
        {"routeTableId": "rtb-1", "subnetId": "subnet-1"}, {"routeTableId": None}, "routeTableId", "missing"
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Example(
        {"vpcId": "vpc-1", "serviceName": "com.amazonaws.eu-central-1.s3", "routeTableIds": ["rtb-1"]},
        {"routeTableIds": "rtb-1"},
        "routeTableIds",
        "valid types: <class 'list'>",
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Example(
        {"securityGroupId": "sg-1", "ipProtocol": "tcp", "cidrIpv4": "10.0.0.0/16", "fromPort": 443},
        {"fromPort": "443"},
        "fromPort",
        "valid types: <class 'int'>",
    ),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": Example(
        {"securityGroupId": "sg-1", "ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0"},
        {"securityGroupId": None},
        "securityGroupId",
        "missing",
    ),
    "aws:ec2/securityGroup:SecurityGroup": Example(
        {"vpcId": "vpc-1", "ingress": [{"protocol": "tcp", "fromPort": 443, "cidrBlocks": ["10.0.0.0/16"]}]},
        {"ingress": [{"protocol": 6}]},
        "ingress[0].protocol",
        "valid types: <class 'str'>",
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": Example(
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp3", "iops": 3000}}]},
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp9"}}]},
        "blockDeviceMappings[0].ebs.volumeType",
        "'gp9' is not known",
    ),
    "aws:ec2/placementGroup:PlacementGroup": Example(
        {"strategy": "cluster"}, {"strategy": "near"}, "strategy", "'near' is not known; cluster, spread"
    ),
    "aws:ec2/tag:Tag": Example(
        {"resourceId": "sg-1", "key": "k", "value": "v"}, {"resourceId": None}, "resourceId", "missing"
    ),
    "aws:eks/cluster:Cluster": Example(
        {"name": "c", "roleArn": ROLE, "vpcConfig": {"subnetIds": ["subnet-1"]}, "tags": {"a": "b"}},
        {"encryptionConfig": {"provider": {"keyARN": "k"}, "resource": ["secrets"]}},
        "encryptionConfig.resource",
        "CreateCluster has no such parameter",
    ),
    "aws:eks/nodeGroup:NodeGroup": Example(
        {"clusterName": "c", "nodeRoleArn": ROLE, "subnetIds": ["subnet-1"], "scalingConfig": {"minSize": 0}},
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "taints[0].effect",
        "'NoSchedule' is not known; NO_SCHEDULE",
    ),
    "aws:eks/addon:Addon": Example(
        {"clusterName": "c", "addonName": "vpc-cni", "configurationValues": "{}"},
        {"configurationValues": "{"},
        "configurationValues",
        "is not JSON",
    ),
    "aws:eks/accessEntry:AccessEntry": Example(
        {"clusterName": "c", "principalArn": ROLE},
        {"principalArn": "me"},
        "principalArn",
        "'me' is not an ARN",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Example(
        {"clusterName": "c", "principalArn": ROLE, "policyArn": ROLE, "accessScope": {"type": "cluster"}},
        {"accessScope": {"type": "all"}},
        "accessScope.type",
        "'all' is not known; cluster, namespace",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Example(
        {"clusterName": "c", "namespace": "n", "serviceAccount": "s", "roleArn": ROLE},
        {"namespace": None},
        "namespace",
        "missing; eks:CreatePodIdentityAssociation requires namespace",
    ),
    "aws:iam/role:Role": Example(
        {"assumeRolePolicy": POLICY}, {"name": "with space"}, "name", "'with space' does not match"
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Example(
        {"role": "r", "policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"},
        {"policyArn": "AmazonEKSClusterPolicy"},
        "policyArn",
        "is not an ARN",
    ),
    "aws:iam/rolePolicy:RolePolicy": Example(
        {"role": "r", "policy": POLICY}, {"policy": "[]"}, "policy", "is not a JSON object"
    ),
    "aws:iam/policy:Policy": Example({"policy": POLICY}, {"policy": None}, "policy", "missing"),
    "aws:kms/key:Key": Example(
        {"deletionWindowInDays": 7, "enableKeyRotation": True},
        {"deletionWindowInDays": 400},
        "deletionWindowInDays",
        "400 is too large; the maximum is 365",
    ),
    "aws:kms/alias:Alias": Example(
        {"targetKeyId": "k", "name": "alias/k"}, {"name": "alias/k k"}, "name", "does not match"
    ),
    "aws:cloudwatch/logGroup:LogGroup": Example(
        {"retentionInDays": 30}, {"logGroupClass": "CHEAP"}, "logGroupClass", "'CHEAP' is not known"
    ),
    "aws:cloudwatch/eventRule:EventRule": Example(
        {"eventPattern": '{"source": ["aws.ec2"]}'}, {"eventPattern": "x"}, "eventPattern", "is not JSON"
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Example(
        {"rule": "r", "arn": "arn:aws:sqs:eu-central-1:123456789012:q"}, {"arn": None}, "arn", "missing"
    ),
    "aws:sqs/queue:Queue": Example(
        {"messageRetentionSeconds": 300, "sqsManagedSseEnabled": True},
        {"redrivePolicy": "x"},
        "redrivePolicy",
        "is not JSON",
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Example(
        {"queueUrl": "https://q", "policy": POLICY}, {"queueUrl": None}, "queueUrl", "missing"
    ),
}

"""``aws:ec2`` and ``aws:vpc``: networks, security groups, launch templates, placement groups, tags."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import TAG_SPECIFICATIONS, ResourceRow, arn_template, split_words

_DESTINATION = split_words("destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId")

ROWS: Mapping[str, ResourceRow] = {
    "aws:ec2/vpc:Vpc": ResourceRow(
        "ec2.CreateVpc",
        id="vpc-{hex}",
        replaces=split_words("cidrBlock instanceTenancy ipv4IpamPoolId ipv4NetmaskLength"),
        outputs={
            "arn": arn_template("ec2", "vpc/{id}"),
            "ownerId": "{account}",
            "defaultNetworkAclId": "acl-{hex}",
            "defaultRouteTableId": "rtb-{hex}",
            "mainRouteTableId": "rtb-{hex}",
            "defaultSecurityGroupId": "sg-{hex}",
            "dhcpOptionsId": "dopt-{hex}",
            "enableDnsHostnames": False,
            "enableNetworkAddressUsageMetrics": False,
        },
        parameters={
            "tags": TAG_SPECIFICATIONS,
            "enableDnsHostnames": "ModifyVpcAttribute:EnableDnsHostnames.Value",
            "enableDnsSupport": "ModifyVpcAttribute:EnableDnsSupport.Value",
        },
        defaults={"enableDnsSupport": True, "instanceTenancy": "default"},
    ),
    "aws:ec2/subnet:Subnet": ResourceRow(
        "ec2.CreateSubnet",
        id="subnet-{hex}",
        replaces=split_words(
            "availabilityZone availabilityZoneId cidrBlock ipv4IpamPoolId ipv4NetmaskLength ipv6IpamPoolId "
            "ipv6Native ipv6NetmaskLength outpostArn vpcId"
        ),
        outputs={
            "arn": arn_template("ec2", "subnet/{id}"),
            "ownerId": "{account}",
            "availabilityZone": "{region}a",
            "privateDnsHostnameTypeOnLaunch": "ip-name",
        },
        parameters={
            "tags": TAG_SPECIFICATIONS,
            "mapPublicIpOnLaunch": "ModifySubnetAttribute:MapPublicIpOnLaunch.Value",
        },
        defaults={"mapPublicIpOnLaunch": False},
    ),
    "aws:ec2/internetGateway:InternetGateway": ResourceRow(
        "ec2.CreateInternetGateway",
        id="igw-{hex}",
        outputs={"arn": arn_template("ec2", "internet-gateway/{id}"), "ownerId": "{account}"},
        parameters={"tags": TAG_SPECIFICATIONS, "vpcId": "AttachInternetGateway:VpcId"},
    ),
    "aws:ec2/eip:Eip": ResourceRow(
        "ec2.AllocateAddress",
        id="eipalloc-{hex}",
        replaces=split_words(
            "address customerOwnedIpv4Pool domain ipamPoolId networkBorderGroup publicIpv4Pool"
        ),
        outputs={
            "allocationId": "{id}",
            "arn": arn_template("ec2", "elastic-ip/{id}"),
            "domain": "vpc",
            "publicIp": "{ip}",
            "publicDns": "ec2-{id}.{region}.compute.amazonaws.com",
            "networkBorderGroup": "{region}",
            "publicIpv4Pool": "amazon",
        },
        parameters={"tags": TAG_SPECIFICATIONS, "instance": "AssociateAddress:InstanceId"},
    ),
    "aws:ec2/natGateway:NatGateway": ResourceRow(
        "ec2.CreateNatGateway",
        id="nat-{hex}",
        replaces=split_words("allocationId availabilityMode connectivityType privateIp subnetId vpcId"),
        outputs={"publicIp": "{ip}", "privateIp": "{ip}", "networkInterfaceId": "eni-{hex}"},
        parameters={"tags": TAG_SPECIFICATIONS},
        defaults={"connectivityType": "public"},
    ),
    "aws:ec2/routeTable:RouteTable": ResourceRow(
        "ec2.CreateRouteTable",
        id="rtb-{hex}",
        replaces=("vpcId",),
        outputs={"arn": arn_template("ec2", "route-table/{id}"), "ownerId": "{account}"},
        parameters={"tags": TAG_SPECIFICATIONS, "routes": None},
    ),
    "aws:ec2/route:Route": ResourceRow(
        "ec2.CreateRoute",
        id="r-{inputs[routeTableId]}{digits}",
        replaces=("routeTableId", *_DESTINATION),
        outputs={"origin": "CreateRoute", "state": "active"},
        tagged=False,
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": ResourceRow(
        "ec2.AssociateRouteTable", id="rtbassoc-{hex}", replaces=("gatewayId", "subnetId"), tagged=False
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ResourceRow(
        "ec2.CreateVpcEndpoint",
        id="vpce-{hex}",
        replaces=split_words(
            "resourceConfigurationArn serviceName serviceNetworkArn serviceRegion vpcEndpointType vpcId"
        ),
        outputs={
            "arn": arn_template("ec2", "vpc-endpoint/{id}"),
            "ownerId": "{account}",
            "state": "available",
            "requesterManaged": False,
            "prefixListId": "pl-{hex}",
        },
        parameters={"tags": TAG_SPECIFICATIONS, "policy": "PolicyDocument"},
        defaults={"vpcEndpointType": "Gateway"},
        documents=("policy",),
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ResourceRow(
        "ec2.AuthorizeSecurityGroupIngress",
        id="sgr-{hex}",
        replaces=("securityGroupId",),
        outputs={"arn": arn_template("ec2", "security-group-rule/{id}"), "securityGroupRuleId": "{id}"},
        parameters={
            "tags": TAG_SPECIFICATIONS,
            "securityGroupId": "GroupId",
            "cidrIpv4": "IpPermissions[0].IpRanges[0].CidrIp",
            "description": "IpPermissions[0].IpRanges[0].Description",
            "fromPort": "IpPermissions[0].FromPort",
            "toPort": "IpPermissions[0].ToPort",
            "ipProtocol": "IpPermissions[0].IpProtocol",
        },
    ),
    "aws:ec2/securityGroup:SecurityGroup": ResourceRow(
        "ec2.CreateSecurityGroup",
        id="sg-{hex}",
        replaces=split_words("description name namePrefix vpcId"),
        outputs={
            "arn": arn_template("ec2", "security-group/{id}"),
            "ownerId": "{account}",
            "ingress": [],
            "egress": [],
        },
        parameters={"tags": TAG_SPECIFICATIONS, "name": "GroupName", "revokeRulesOnDelete": None},
        defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
        name_input="name",
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": ResourceRow(
        "ec2.CreateLaunchTemplate",
        id="lt-{hex}",
        replaces=("name", "namePrefix"),
        outputs={"arn": arn_template("ec2", "launch-template/{id}"), "latestVersion": 1, "defaultVersion": 1},
        parameters={
            "name": "LaunchTemplateName",
            "description": "VersionDescription",
            "tags": TAG_SPECIFICATIONS,
            "updateDefaultVersion": None,
            "networkInterfaces.securityGroups": "Groups",
        },
        parent="LaunchTemplateData",
        name_input="name",
        version_output="latestVersion",
        version_exempt=split_words("tags region defaultVersion updateDefaultVersion"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": ResourceRow(
        "ec2.CreatePlacementGroup",
        id="{name}",
        replaces=split_words("name partitionCount spreadLevel strategy"),
        outputs={"arn": arn_template("ec2", "placement-group/{name}"), "placementGroupId": "pg-{hex}"},
        parameters={"tags": TAG_SPECIFICATIONS, "name": "GroupName"},
        name_input="name",
    ),
    "aws:ec2/tag:Tag": ResourceRow(
        "ec2.CreateTags",
        id="{inputs[resourceId]},{inputs[key]}",
        replaces=("key", "resourceId"),
        parameters={"key": "Tags[0].Key", "value": "Tags[0].Value", "resourceId": "Resources[0]"},
        tagged=False,
    ),
}

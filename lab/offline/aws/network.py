"""Networks: the types of ``aws:ec2`` and ``aws:vpc`` around a VPC."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import TAG_SPECIFICATIONS, Row, arn, words

_RULE = words(
    "cidrIpv4 cidrIpv6 description fromPort ipProtocol prefixListId referencedSecurityGroupId region "
    "securityGroupId tags toPort"
)
_RULE_PLACES = {
    "tags": TAG_SPECIFICATIONS,
    "securityGroupId": "GroupId",
    "cidrIpv4": "IpPermissions[0].IpRanges[0].CidrIp",
    "cidrIpv6": "IpPermissions[0].Ipv6Ranges[0].CidrIpv6",
    "description": "IpPermissions[0].IpRanges[0].Description",
    "fromPort": "IpPermissions[0].FromPort",
    "toPort": "IpPermissions[0].ToPort",
    "ipProtocol": "IpPermissions[0].IpProtocol",
    "prefixListId": "IpPermissions[0].PrefixListIds[0].PrefixListId",
    "referencedSecurityGroupId": "IpPermissions[0].UserIdGroupPairs[0].GroupId",
}
_DESTINATION = words("destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId")


def _rule(direction: str) -> Row:
    return Row(
        f"ec2.AuthorizeSecurityGroup{direction}",
        _RULE,
        id="sgr-{hex}",
        replaces=("securityGroupId",),
        outputs={"arn": arn("ec2", "security-group-rule/{id}"), "securityGroupRuleId": "{id}"},
        places=_RULE_PLACES,
    )


ROWS: Mapping[str, Row] = {
    "aws:ec2/vpc:Vpc": Row(
        "ec2.CreateVpc",
        words(
            "assignGeneratedIpv6CidrBlock cidrBlock enableDnsHostnames enableDnsSupport "
            "enableNetworkAddressUsageMetrics instanceTenancy ipv4IpamPoolId ipv4NetmaskLength ipv6CidrBlock "
            "ipv6CidrBlockNetworkBorderGroup ipv6IpamPoolId ipv6NetmaskLength region tags"
        ),
        id="vpc-{hex}",
        replaces=words("cidrBlock instanceTenancy ipv4IpamPoolId ipv4NetmaskLength"),
        outputs={
            "arn": arn("ec2", "vpc/{id}"),
            "ownerId": "{account}",
            "defaultNetworkAclId": "acl-{hex}",
            "defaultRouteTableId": "rtb-{hex}",
            "mainRouteTableId": "rtb-{hex}",
            "defaultSecurityGroupId": "sg-{hex}",
            "dhcpOptionsId": "dopt-{hex}",
            "enableDnsHostnames": False,
            "enableNetworkAddressUsageMetrics": False,
        },
        places={
            "tags": TAG_SPECIFICATIONS,
            "assignGeneratedIpv6CidrBlock": "AmazonProvidedIpv6CidrBlock",
            "enableDnsHostnames": "ModifyVpcAttribute:EnableDnsHostnames.Value",
            "enableDnsSupport": "ModifyVpcAttribute:EnableDnsSupport.Value",
            "enableNetworkAddressUsageMetrics": "ModifyVpcAttribute:EnableNetworkAddressUsageMetrics.Value",
        },
        defaults={"enableDnsSupport": True, "instanceTenancy": "default"},
    ),
    "aws:ec2/subnet:Subnet": Row(
        "ec2.CreateSubnet",
        words(
            "assignIpv6AddressOnCreation availabilityZone availabilityZoneId cidrBlock customerOwnedIpv4Pool "
            "enableDns64 enableLniAtDeviceIndex enableResourceNameDnsARecordOnLaunch "
            "enableResourceNameDnsAaaaRecordOnLaunch ipv4IpamPoolId ipv4NetmaskLength ipv6CidrBlock "
            "ipv6IpamPoolId ipv6Native ipv6NetmaskLength mapCustomerOwnedIpOnLaunch mapPublicIpOnLaunch "
            "outpostArn privateDnsHostnameTypeOnLaunch region tags vpcId"
        ),
        id="subnet-{hex}",
        replaces=words(
            "availabilityZone availabilityZoneId cidrBlock ipv4IpamPoolId ipv4NetmaskLength ipv6IpamPoolId "
            "ipv6Native ipv6NetmaskLength outpostArn vpcId"
        ),
        outputs={
            "arn": arn("ec2", "subnet/{id}"),
            "ownerId": "{account}",
            "availabilityZone": "{region}a",
            "privateDnsHostnameTypeOnLaunch": "ip-name",
        },
        places={
            "tags": TAG_SPECIFICATIONS,
            "assignIpv6AddressOnCreation": "ModifySubnetAttribute:AssignIpv6AddressOnCreation.Value",
            "customerOwnedIpv4Pool": "ModifySubnetAttribute:CustomerOwnedIpv4Pool",
            "enableDns64": "ModifySubnetAttribute:EnableDns64.Value",
            "enableLniAtDeviceIndex": "ModifySubnetAttribute:EnableLniAtDeviceIndex",
            "enableResourceNameDnsARecordOnLaunch": (
                "ModifySubnetAttribute:EnableResourceNameDnsARecordOnLaunch.Value"
            ),
            "enableResourceNameDnsAaaaRecordOnLaunch": (
                "ModifySubnetAttribute:EnableResourceNameDnsAAAARecordOnLaunch.Value"
            ),
            "mapCustomerOwnedIpOnLaunch": "ModifySubnetAttribute:MapCustomerOwnedIpOnLaunch.Value",
            "mapPublicIpOnLaunch": "ModifySubnetAttribute:MapPublicIpOnLaunch.Value",
            "privateDnsHostnameTypeOnLaunch": "ModifySubnetAttribute:PrivateDnsHostnameTypeOnLaunch",
        },
        defaults={"mapPublicIpOnLaunch": False},
    ),
    "aws:ec2/internetGateway:InternetGateway": Row(
        "ec2.CreateInternetGateway",
        words("region tags vpcId"),
        id="igw-{hex}",
        outputs={"arn": arn("ec2", "internet-gateway/{id}"), "ownerId": "{account}"},
        places={"tags": TAG_SPECIFICATIONS, "vpcId": "AttachInternetGateway:VpcId"},
    ),
    "aws:ec2/eip:Eip": Row(
        "ec2.AllocateAddress",
        words(
            "address associateWithPrivateIp customerOwnedIpv4Pool domain instance ipamPoolId "
            "networkBorderGroup networkInterface publicIpv4Pool region tags"
        ),
        id="eipalloc-{hex}",
        replaces=words("address customerOwnedIpv4Pool domain ipamPoolId networkBorderGroup publicIpv4Pool"),
        outputs={
            "allocationId": "{id}",
            "arn": arn("ec2", "elastic-ip/{id}"),
            "domain": "vpc",
            "publicIp": "{ip}",
            "publicDns": "ec2-{id}.{region}.compute.amazonaws.com",
            "networkBorderGroup": "{region}",
            "publicIpv4Pool": "amazon",
        },
        places={
            "tags": TAG_SPECIFICATIONS,
            "associateWithPrivateIp": "AssociateAddress:PrivateIpAddress",
            "instance": "AssociateAddress:InstanceId",
            "networkInterface": "AssociateAddress:NetworkInterfaceId",
        },
    ),
    "aws:ec2/natGateway:NatGateway": Row(
        "ec2.CreateNatGateway",
        words(
            "allocationId availabilityMode availabilityZoneAddresses connectivityType privateIp region "
            "secondaryAllocationIds secondaryPrivateIpAddressCount secondaryPrivateIpAddresses subnetId tags "
            "vpcId"
        ),
        id="nat-{hex}",
        replaces=words("allocationId availabilityMode connectivityType privateIp subnetId vpcId"),
        outputs={"publicIp": "{ip}", "privateIp": "{ip}", "networkInterfaceId": "eni-{hex}"},
        places={
            "tags": TAG_SPECIFICATIONS,
            "privateIp": "PrivateIpAddress",
            "availabilityZoneAddresses.allocationIds": "AllocationIds",
        },
        defaults={"connectivityType": "public"},
    ),
    "aws:ec2/routeTable:RouteTable": Row(
        "ec2.CreateRouteTable",
        words("propagatingVgws region routes tags vpcId"),
        id="rtb-{hex}",
        replaces=("vpcId",),
        outputs={"arn": arn("ec2", "route-table/{id}"), "ownerId": "{account}"},
        places={"tags": TAG_SPECIFICATIONS, "propagatingVgws": None, "routes": None},
    ),
    "aws:ec2/route:Route": Row(
        "ec2.CreateRoute",
        words(
            "carrierGatewayId coreNetworkArn destinationCidrBlock destinationIpv6CidrBlock "
            "destinationPrefixListId egressOnlyGatewayId gatewayId localGatewayId natGatewayId "
            "networkInterfaceId odbNetworkArn region routeTableId transitGatewayId vpcEndpointId "
            "vpcPeeringConnectionId"
        ),
        id="r-{inputs[routeTableId]}{digits}",
        replaces=("routeTableId", *_DESTINATION),
        outputs={"origin": "CreateRoute", "state": "active"},
        places={"egressOnlyGatewayId": "EgressOnlyInternetGatewayId"},
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Row(
        "ec2.AssociateRouteTable",
        words("gatewayId region routeTableId subnetId"),
        id="rtbassoc-{hex}",
        replaces=("gatewayId", "subnetId"),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Row(
        "ec2.CreateVpcEndpoint",
        words(
            "autoAccept dnsOptions ipAddressType policy privateDnsEnabled region resourceConfigurationArn "
            "routeTableIds securityGroupIds serviceName serviceNetworkArn serviceRegion subnetConfigurations "
            "subnetIds tags vpcEndpointType vpcId"
        ),
        id="vpce-{hex}",
        replaces=words(
            "resourceConfigurationArn serviceName serviceNetworkArn serviceRegion vpcEndpointType vpcId"
        ),
        outputs={
            "arn": arn("ec2", "vpc-endpoint/{id}"),
            "ownerId": "{account}",
            "state": "available",
            "requesterManaged": False,
            "prefixListId": "pl-{hex}",
        },
        places={"tags": TAG_SPECIFICATIONS, "policy": "PolicyDocument", "autoAccept": None},
        defaults={"vpcEndpointType": "Gateway"},
        documents=("policy",),
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _rule("Ingress"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _rule("Egress"),
}

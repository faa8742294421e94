"""``aws:ec2``: security groups, launch templates, placement groups, tags."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import TAG_SPECIFICATIONS, Row, arn, words

_TEMPLATE = words(
    "blockDeviceMappings capacityReservationSpecification cpuOptions creditSpecification defaultVersion "
    "description disableApiStop disableApiTermination ebsOptimized enclaveOptions hibernationOptions "
    "iamInstanceProfile imageId instanceInitiatedShutdownBehavior instanceMarketOptions "
    "instanceRequirements instanceType kernelId keyName licenseSpecifications maintenanceOptions "
    "metadataOptions monitoring name namePrefix networkInterfaces networkPerformanceOptions placement "
    "privateDnsNameOptions ramDiskId region secondaryInterfaces securityGroupNames tagSpecifications tags "
    "updateDefaultVersion userData vpcSecurityGroupIds"
)

ROWS: Mapping[str, Row] = {
    "aws:ec2/securityGroup:SecurityGroup": Row(
        "ec2.CreateSecurityGroup",
        words("description egress ingress name namePrefix region revokeRulesOnDelete tags vpcId"),
        id="sg-{hex}",
        replaces=words("description name namePrefix vpcId"),
        outputs={
            "arn": arn("ec2", "security-group/{id}"),
            "ownerId": "{account}",
            "ingress": [],
            "egress": [],
        },
        places={
            "tags": TAG_SPECIFICATIONS,
            "name": "GroupName",
            "namePrefix": None,
            "revokeRulesOnDelete": None,
            "ingress": "AuthorizeSecurityGroupIngress:IpPermissions",
            "egress": "AuthorizeSecurityGroupEgress:IpPermissions",
            "ingress.protocol": "IpProtocol",
            "egress.protocol": "IpProtocol",
            "ingress.cidrBlocks": "IpRanges*CidrIp",
            "egress.cidrBlocks": "IpRanges*CidrIp",
            "ingress.ipv6CidrBlocks": "Ipv6Ranges*CidrIpv6",
            "egress.ipv6CidrBlocks": "Ipv6Ranges*CidrIpv6",
            "ingress.securityGroups": "UserIdGroupPairs*GroupId",
            "egress.securityGroups": "UserIdGroupPairs*GroupId",
            "ingress.prefixListIds": "PrefixListIds*PrefixListId",
            "egress.prefixListIds": "PrefixListIds*PrefixListId",
            "ingress.self": None,
            "egress.self": None,
            "ingress.description": None,
            "egress.description": None,
        },
        defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
        named="name",
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": Row(
        "ec2.CreateLaunchTemplate",
        _TEMPLATE,
        id="lt-{hex}",
        replaces=("name", "namePrefix"),
        outputs={"arn": arn("ec2", "launch-template/{id}"), "latestVersion": 1, "defaultVersion": 1},
        places={
            "name": "LaunchTemplateName",
            "namePrefix": None,
            "description": "VersionDescription",
            "tags": TAG_SPECIFICATIONS,
            "defaultVersion": None,
            "updateDefaultVersion": None,
            "securityGroupNames": "LaunchTemplateData.SecurityGroups",
            "vpcSecurityGroupIds": "LaunchTemplateData.SecurityGroupIds",
            "networkInterfaces.securityGroups": "Groups",
            "networkInterfaces.ipv4AddressCount": "SecondaryPrivateIpAddressCount",
            "networkInterfaces.ipv4Addresses": "PrivateIpAddresses*PrivateIpAddress",
            "networkInterfaces.ipv4Prefixes": "Ipv4Prefixes*Ipv4Prefix",
            "networkInterfaces.ipv6Addresses": "Ipv6Addresses*Ipv6Address",
            "networkInterfaces.ipv6Prefixes": "Ipv6Prefixes*Ipv6Prefix",
        },
        under="LaunchTemplateData",
        named="name",
        counted="latestVersion",
        uncounted=words("tags region defaultVersion updateDefaultVersion"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": Row(
        "ec2.CreatePlacementGroup",
        words("name partitionCount region spreadLevel strategy tags"),
        id="{name}",
        replaces=words("name partitionCount spreadLevel strategy"),
        outputs={"arn": arn("ec2", "placement-group/{name}"), "placementGroupId": "pg-{hex}"},
        places={"tags": TAG_SPECIFICATIONS, "name": "GroupName"},
        named="name",
    ),
    "aws:ec2/tag:Tag": Row(
        "ec2.CreateTags",
        words("key region resourceId value"),
        id="{inputs[resourceId]},{inputs[key]}",
        replaces=("key", "resourceId"),
        places={"key": "Tags[0].Key", "value": "Tags[0].Value", "resourceId": "Resources[0]"},
    ),
}

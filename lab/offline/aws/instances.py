"""``aws:ec2``: security groups, launch templates, placement groups, tags."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import TAG_SPECIFICATIONS, Row, arn, words

ROWS: Mapping[str, Row] = {
    "aws:ec2/securityGroup:SecurityGroup": Row(
        "ec2.CreateSecurityGroup",
        id="sg-{hex}",
        replaces=words("description name namePrefix vpcId"),
        outputs={
            "arn": arn("ec2", "security-group/{id}"),
            "ownerId": "{account}",
            "ingress": [],
            "egress": [],
        },
        places={"tags": TAG_SPECIFICATIONS, "name": "GroupName", "revokeRulesOnDelete": None},
        defaults={"description": "Managed by Pulumi", "revokeRulesOnDelete": False},
        named="name",
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": Row(
        "ec2.CreateLaunchTemplate",
        id="lt-{hex}",
        replaces=("name", "namePrefix"),
        outputs={"arn": arn("ec2", "launch-template/{id}"), "latestVersion": 1, "defaultVersion": 1},
        places={
            "name": "LaunchTemplateName",
            "description": "VersionDescription",
            "tags": TAG_SPECIFICATIONS,
            "updateDefaultVersion": None,
            "networkInterfaces.securityGroups": "Groups",
        },
        under="LaunchTemplateData",
        named="name",
        counted="latestVersion",
        uncounted=words("tags region defaultVersion updateDefaultVersion"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": Row(
        "ec2.CreatePlacementGroup",
        id="{name}",
        replaces=words("name partitionCount spreadLevel strategy"),
        outputs={"arn": arn("ec2", "placement-group/{name}"), "placementGroupId": "pg-{hex}"},
        places={"tags": TAG_SPECIFICATIONS, "name": "GroupName"},
        named="name",
    ),
    "aws:ec2/tag:Tag": Row(
        "ec2.CreateTags",
        id="{inputs[resourceId]},{inputs[key]}",
        replaces=("key", "resourceId"),
        places={"key": "Tags[0].Key", "value": "Tags[0].Value", "resourceId": "Resources[0]"},
        tagged=False,
    ),
}

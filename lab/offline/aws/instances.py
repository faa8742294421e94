"""``aws:ec2``: security groups, launch templates, placement groups, tags."""

from __future__ import annotations

from collections.abc import Mapping

from lab.offline.aws.row import TAG_SPECIFICATIONS, ResourceRow, arn_template, split_words

ROWS: Mapping[str, ResourceRow] = {
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

"""How a resource of a killed run is found at AWS, one row for each type that the program creates.

Most are found by name, and their tags show the owner. The calls are botocore's; the ids are those of the
"Import" section of each type's page in Pulumi's registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TAGS = "our tags"
"""Placeholder for one filter per tag that the resource would have."""


@dataclass(frozen=True)
class Call:
    """One botocore call, ``service.operation``; texts in ``asked`` may contain {inputs[...]} and {found}."""

    name: str
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """How resources of one type are found.

    ``items`` (JMESPath) are the candidates in the answer of ``call``; ``where`` maps paths in a candidate to
    their required values; ``key`` is the path of what identifies a candidate, ``{found}`` from then on;
    ``id`` is its import id. ``tags`` is the path of a candidate's tags, in itself or in the answer of
    ``asks``: a name alone may belong to another owner. It is empty if no other can exist: a part of a
    resource that is known to be ours. ``alive`` is a path in the answer of ``asks`` that is true unless the
    candidate is being deleted. ``{found}`` is what comes after the last ``after`` in the value of ``key``.
    ``none`` are error codes that mean: does not exist.
    """

    call: Call
    items: str
    key: str
    id: str = "{found}"
    where: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    asks: Call | None = None
    alive: str = ""
    after: str = ""
    none: tuple[str, ...] = ()


def _call(name: str, *inputs: str, **asked: Any) -> Call:
    """``inputs`` are parameters that have the name and the value of an input."""
    return Call(name, {**{one: f"{{inputs[{one}]}}" for one in inputs}, **asked})


def _filters(**values: str | list[str]) -> list[dict[str, Any]]:
    """EC2's filters, with ``-`` for ``_`` in their names."""
    lists = {name: [given] if isinstance(given, str) else given for name, given in values.items()}
    return [{"Name": name.replace("_", "-"), "Values": given} for name, given in lists.items()]


_LIVE = "[?!contains(['deleting', 'Deleting', 'deleted', 'Deleted', 'failed', 'Failed'], State)]"
_VPC = "{inputs[vpcId]}"
_ROUTES = Call("ec2.describe_route_tables", {"RouteTableIds": ["{inputs[routeTableId]}"]})
_NO_TABLE = ("InvalidRouteTableID.NotFound",)


def _ec2(items: str, key: str, live: str = "", under: str = "Filters", **filters: Any) -> Look:
    """A resource with our tags; EC2 names each list in its answers after the call."""
    operation = re.sub("(?<!^)([A-Z])", r"_\1", items).lower()
    call = Call(f"ec2.describe_{operation}", {under: [*_filters(**filters), TAGS]})
    return Look(call, items + live, key, tags="Tags")


def _eks(operation: str, items: str, key: str, given: str) -> Look:
    """A part of a cluster, by the input ``given``."""
    call = _call(f"eks.{operation}", "clusterName", **{key: f"{{inputs[{given}]}}"})
    return Look(call, items, key, "{inputs[clusterName]}:{found}", tags="tags", none=_GONE)


_GONE = ("ResourceNotFoundException",)
_NO_IAM = ("NoSuchEntity",)
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_NAME = "{inputs[name]}"

LOOKS: Mapping[str, Look] = {
    "aws:ec2/vpc:Vpc": _ec2("Vpcs", "VpcId"),
    "aws:ec2/subnet:Subnet": _ec2("Subnets", "SubnetId", vpc_id=_VPC),
    "aws:ec2/internetGateway:InternetGateway": _ec2("InternetGateways", "InternetGatewayId"),
    "aws:ec2/eip:Eip": _ec2("Addresses", "AllocationId"),
    "aws:ec2/natGateway:NatGateway": _ec2(
        "NatGateways", "NatGatewayId", under="Filter", state=["pending", "available"]
    ),
    "aws:ec2/routeTable:RouteTable": _ec2("RouteTables", "RouteTableId", vpc_id=_VPC),
    "aws:ec2/route:Route": Look(
        _ROUTES, "RouteTables[].Routes[]", "DestinationCidrBlock", "{inputs[routeTableId]}_{found}",
        {"DestinationCidrBlock": "{inputs[destinationCidrBlock]}"}, none=_NO_TABLE,
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Look(
        _ROUTES, "RouteTables[].Associations[]", "RouteTableAssociationId",
        "{inputs[subnetId]}/{inputs[routeTableId]}", {"SubnetId": "{inputs[subnetId]}"}, none=_NO_TABLE,
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _ec2(
        "VpcEndpoints", "VpcEndpointId", _LIVE, vpc_id=_VPC, service_name="{inputs[serviceName]}"
    ),
    "aws:ec2/securityGroup:SecurityGroup": _ec2("SecurityGroups", "GroupId", vpc_id=_VPC, group_name=_NAME),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Look(
        Call("ec2.describe_security_group_rules",
             {"Filters": [*_filters(group_id="{inputs[securityGroupId]}"), TAGS]}),
        "SecurityGroupRules[?!IsEgress]", "SecurityGroupRuleId", tags="Tags",
        none=("InvalidGroup.NotFound",),
    ),
    "aws:ec2/tag:Tag": Look(
        Call("ec2.describe_tags",
             {"Filters": _filters(resource_id="{inputs[resourceId]}", key="{inputs[key]}")}),
        "Tags", "ResourceId", "{found},{inputs[key]}", {"Value": "{inputs[value]}"},
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": _ec2(
        "LaunchTemplates", "LaunchTemplateId", launch_template_name=_NAME
    ),
    "aws:ec2/placementGroup:PlacementGroup": _ec2("PlacementGroups", "GroupName", _LIVE, group_name=_NAME),
    "aws:eks/cluster:Cluster": Look(
        _call("eks.describe_cluster", "name"), "cluster", "name", tags="tags", none=_GONE
    ),
    "aws:eks/nodeGroup:NodeGroup": _eks("describe_nodegroup", "nodegroup", "nodegroupName", "nodeGroupName"),
    "aws:eks/addon:Addon": _eks("describe_addon", "addon", "addonName", "addonName"),
    "aws:eks/accessEntry:AccessEntry": _eks(
        "describe_access_entry", "accessEntry", "principalArn", "principalArn"
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Look(
        _call("eks.list_associated_access_policies", "clusterName", "principalArn"),
        "associatedAccessPolicies", "policyArn", "{inputs[clusterName]}#{inputs[principalArn]}#{found}",
        {"policyArn": "{inputs[policyArn]}"}, none=_GONE,
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Look(
        _call("eks.list_pod_identity_associations", "clusterName", "namespace", "serviceAccount"),
        "associations", "associationId", "{inputs[clusterName]},{found}", tags="association.tags",
        asks=_call("eks.describe_pod_identity_association", "clusterName", associationId="{found}"),
        none=_GONE,
    ),
    "aws:iam/role:Role": Look(
        _call("iam.get_role", RoleName=_NAME), "Role", "RoleName", tags="Tags", none=_NO_IAM
    ),
    "aws:iam/policy:Policy": Look(
        _call("iam.list_policies", Scope="Local"), "Policies", "Arn", where={"PolicyName": _NAME},
        tags="Tags", asks=_call("iam.list_policy_tags", PolicyArn="{found}"),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Look(
        _call("iam.list_attached_role_policies", RoleName="{inputs[role]}"), "AttachedPolicies", "PolicyArn",
        "{inputs[role]}/{found}", {"PolicyArn": "{inputs[policyArn]}"}, none=_NO_IAM,
    ),
    "aws:kms/key:Key": Look(
        _call("resourcegroupstaggingapi.get_resources", ResourceTypeFilters=["kms:key"], TagFilters=TAGS),
        "ResourceTagMappingList", "ResourceARN", after="/", asks=_call("kms.describe_key", KeyId="{found}"),
        alive="KeyMetadata.Enabled",
    ),
    "aws:kms/alias:Alias": Look(
        Call("kms.list_aliases"), "Aliases", "AliasName",
        where={"AliasName": _NAME, "TargetKeyId": "{inputs[targetKeyId]}"},
    ),
    "aws:cloudwatch/logGroup:LogGroup": Look(
        _call("logs.describe_log_groups", logGroupNamePrefix=_NAME), "logGroups", "logGroupName",
        where={"logGroupName": _NAME}, tags="tags",
        asks=_call("logs.list_tags_log_group", logGroupName="{found}"),
    ),
    "aws:cloudwatch/eventRule:EventRule": Look(
        _call("events.list_rules", NamePrefix=_NAME), "Rules", "Name", where={"Name": _NAME}, tags="Tags",
        asks=_call("events.list_tags_for_resource", ResourceARN="{item[Arn]}"),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Look(
        _call("events.list_targets_by_rule", Rule="{inputs[rule]}"), "Targets", "Id",
        "{inputs[rule]}/{found}", {"Arn": "{inputs[arn]}"}, none=_GONE,
    ),
    "aws:sqs/queue:Queue": Look(
        _call("sqs.get_queue_url", QueueName=_NAME), "@", "QueueUrl", tags="Tags",
        asks=_call("sqs.list_queue_tags", QueueUrl="{found}"), none=_NO_QUEUE,
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Look(
        _call("sqs.get_queue_attributes", QueueUrl="{inputs[queueUrl]}", AttributeNames=["Policy"]),
        "Attributes", "Policy", "{inputs[queueUrl]}", none=_NO_QUEUE,
    ),
}  # fmt: skip

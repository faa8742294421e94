"""How a resource of a killed run is found at AWS, one row for each type that the program creates.

Most are found by name, and their tags show the owner. The calls are botocore's; the ids are those of the
"Import" section of each type's page in Pulumi's registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OUR_TAGS = "our tags"
"""Placeholder for one filter per tag that the resource would have."""


@dataclass(frozen=True)
class Call:
    """One botocore call, ``service.operation``; ``parameters`` may contain {inputs[...]} and {key}."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lookup:
    """How resources of one type are found.

    ``items`` (JMESPath) are the candidates in the answer of ``call``; ``match`` maps paths in a candidate to
    their required values; ``key`` is the path of what identifies a candidate, ``{key}`` from then on: what
    comes after the last ``separator`` in its value. ``id`` is its import id. ``tags`` is the path of a
    candidate's tags, in itself or in the answer of ``details``: a name alone may belong to another owner. It
    is empty if no other can exist: a part of a resource that is known to be ours. ``alive`` is a path in the
    answer of ``details`` that is true unless the candidate is being deleted. ``missing`` are error codes that
    mean: does not exist.
    """

    call: Call
    items: str
    key: str
    id: str = "{key}"
    match: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    details: Call | None = None
    alive: str = ""
    separator: str = ""
    missing: tuple[str, ...] = ()


def _call(operation: str, *inputs: str, **parameters: Any) -> Call:
    """``inputs`` are parameters that have the name and the value of an input."""
    return Call(operation, {**{name: f"{{inputs[{name}]}}" for name in inputs}, **parameters})


def _ec2_filters(**values: str | list[str]) -> list[dict[str, Any]]:
    """EC2's filters, with ``-`` for ``_`` in their names."""
    lists = {name: [value] if isinstance(value, str) else value for name, value in values.items()}
    return [{"Name": name.replace("_", "-"), "Values": value} for name, value in lists.items()]


_LIVE = "[?!contains(['deleting', 'Deleting', 'deleted', 'Deleted', 'failed', 'Failed'], State)]"
_VPC = "{inputs[vpcId]}"
_ROUTE_TABLES = Call("ec2.describe_route_tables", {"RouteTableIds": ["{inputs[routeTableId]}"]})
_NO_TABLE = ("InvalidRouteTableID.NotFound",)


def _ec2(
    items: str, key: str, condition: str = "", filter_parameter: str = "Filters", **filters: Any
) -> Lookup:
    """A resource with our tags; EC2 names each list in its answers after the call."""
    operation = re.sub("(?<!^)([A-Z])", r"_\1", items).lower()
    call = Call(f"ec2.describe_{operation}", {filter_parameter: [*_ec2_filters(**filters), OUR_TAGS]})
    return Lookup(call, items + condition, key, tags="Tags")


def _eks(operation: str, items: str, key: str, input_name: str) -> Lookup:
    """A part of a cluster, by the input ``input_name``."""
    call = _call(f"eks.{operation}", "clusterName", **{key: f"{{inputs[{input_name}]}}"})
    return Lookup(call, items, key, "{inputs[clusterName]}:{key}", tags="tags", missing=_NOT_FOUND)


_NOT_FOUND = ("ResourceNotFoundException",)
_NO_IAM = ("NoSuchEntity",)
_NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_NAME = "{inputs[name]}"

LOOKUPS: Mapping[str, Lookup] = {
    "aws:ec2/vpc:Vpc": _ec2("Vpcs", "VpcId"),
    "aws:ec2/subnet:Subnet": _ec2("Subnets", "SubnetId", vpc_id=_VPC),
    "aws:ec2/internetGateway:InternetGateway": _ec2("InternetGateways", "InternetGatewayId"),
    "aws:ec2/eip:Eip": _ec2("Addresses", "AllocationId"),
    "aws:ec2/natGateway:NatGateway": _ec2(
        "NatGateways", "NatGatewayId", under="Filter", state=["pending", "available"]
    ),
    "aws:ec2/routeTable:RouteTable": _ec2("RouteTables", "RouteTableId", vpc_id=_VPC),
    "aws:ec2/route:Route": Lookup(
        _ROUTE_TABLES, "RouteTables[].Routes[]", "DestinationCidrBlock", "{inputs[routeTableId]}_{key}",
        {"DestinationCidrBlock": "{inputs[destinationCidrBlock]}"}, missing=_NO_TABLE,
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Lookup(
        _ROUTE_TABLES, "RouteTables[].Associations[]", "RouteTableAssociationId",
        "{inputs[subnetId]}/{inputs[routeTableId]}", {"SubnetId": "{inputs[subnetId]}"}, missing=_NO_TABLE,
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _ec2(
        "VpcEndpoints", "VpcEndpointId", _LIVE, vpc_id=_VPC, service_name="{inputs[serviceName]}"
    ),
    "aws:ec2/securityGroup:SecurityGroup": _ec2("SecurityGroups", "GroupId", vpc_id=_VPC, group_name=_NAME),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Lookup(
        Call("ec2.describe_security_group_rules",
             {"Filters": [*_ec2_filters(group_id="{inputs[securityGroupId]}"), OUR_TAGS]}),
        "SecurityGroupRules[?!IsEgress]", "SecurityGroupRuleId", tags="Tags",
        missing=("InvalidGroup.NotFound",),
    ),
    "aws:ec2/tag:Tag": Lookup(
        Call("ec2.describe_tags",
             {"Filters": _ec2_filters(resource_id="{inputs[resourceId]}", key="{inputs[key]}")}),
        "Tags", "ResourceId", "{key},{inputs[key]}", {"Value": "{inputs[value]}"},
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": _ec2(
        "LaunchTemplates", "LaunchTemplateId", launch_template_name=_NAME
    ),
    "aws:ec2/placementGroup:PlacementGroup": _ec2("PlacementGroups", "GroupName", _LIVE, group_name=_NAME),
    "aws:eks/cluster:Cluster": Lookup(
        _call("eks.describe_cluster", "name"), "cluster", "name", tags="tags", missing=_NOT_FOUND
    ),
    "aws:eks/nodeGroup:NodeGroup": _eks("describe_nodegroup", "nodegroup", "nodegroupName", "nodeGroupName"),
    "aws:eks/addon:Addon": _eks("describe_addon", "addon", "addonName", "addonName"),
    "aws:eks/accessEntry:AccessEntry": _eks(
        "describe_access_entry", "accessEntry", "principalArn", "principalArn"
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": Lookup(
        _call("eks.list_associated_access_policies", "clusterName", "principalArn"),
        "associatedAccessPolicies", "policyArn", "{inputs[clusterName]}#{inputs[principalArn]}#{key}",
        {"policyArn": "{inputs[policyArn]}"}, missing=_NOT_FOUND,
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Lookup(
        _call("eks.list_pod_identity_associations", "clusterName", "namespace", "serviceAccount"),
        "associations", "associationId", "{inputs[clusterName]},{key}", tags="association.tags",
        details=_call("eks.describe_pod_identity_association", "clusterName", associationId="{key}"),
        missing=_NOT_FOUND,
    ),
    "aws:iam/role:Role": Lookup(
        _call("iam.get_role", RoleName=_NAME), "Role", "RoleName", tags="Tags", missing=_NO_IAM
    ),
    "aws:iam/policy:Policy": Lookup(
        _call("iam.list_policies", Scope="Local"), "Policies", "Arn", match={"PolicyName": _NAME},
        tags="Tags", details=_call("iam.list_policy_tags", PolicyArn="{key}"),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": Lookup(
        _call("iam.list_attached_role_policies", RoleName="{inputs[role]}"), "AttachedPolicies", "PolicyArn",
        "{inputs[role]}/{key}", {"PolicyArn": "{inputs[policyArn]}"}, missing=_NO_IAM,
    ),
    "aws:kms/key:Key": Lookup(
        _call("resourcegroupstaggingapi.get_resources", ResourceTypeFilters=["kms:key"], TagFilters=OUR_TAGS),
        "ResourceTagMappingList", "ResourceARN", separator="/", alive="KeyMetadata.Enabled",
        details=_call("kms.describe_key", KeyId="{key}"),
    ),
    "aws:kms/alias:Alias": Lookup(
        Call("kms.list_aliases"), "Aliases", "AliasName",
        match={"AliasName": _NAME, "TargetKeyId": "{inputs[targetKeyId]}"},
    ),
    "aws:cloudwatch/logGroup:LogGroup": Lookup(
        _call("logs.describe_log_groups", logGroupNamePrefix=_NAME), "logGroups", "logGroupName",
        match={"logGroupName": _NAME}, tags="tags",
        details=_call("logs.list_tags_log_group", logGroupName="{key}"),
    ),
    "aws:cloudwatch/eventRule:EventRule": Lookup(
        _call("events.list_rules", NamePrefix=_NAME), "Rules", "Name", match={"Name": _NAME}, tags="Tags",
        details=_call("events.list_tags_for_resource", ResourceARN="{item[Arn]}"),
    ),
    "aws:cloudwatch/eventTarget:EventTarget": Lookup(
        _call("events.list_targets_by_rule", Rule="{inputs[rule]}"), "Targets", "Id",
        "{inputs[rule]}/{key}", {"Arn": "{inputs[arn]}"}, missing=_NOT_FOUND,
    ),
    "aws:sqs/queue:Queue": Lookup(
        _call("sqs.get_queue_url", QueueName=_NAME), "@", "QueueUrl", tags="Tags",
        details=_call("sqs.list_queue_tags", QueueUrl="{key}"), missing=_NO_QUEUE,
    ),
    "aws:sqs/queuePolicy:QueuePolicy": Lookup(
        _call("sqs.get_queue_attributes", QueueUrl="{inputs[queueUrl]}", AttributeNames=["Policy"]),
        "Attributes", "Policy", "{inputs[queueUrl]}", missing=_NO_QUEUE,
    ),
}  # fmt: skip

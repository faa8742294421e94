"""``aws:ec2`` and ``aws:vpc``: the types that our program creates, and how each is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.clouds.aws.lookup import TAGS, Call, Look


def _filter(name: str, *values: str) -> dict[str, Any]:
    return {"Name": name, "Values": list(values)}


def _tagged(operation: str, items: str, key: str, *filters: dict[str, Any], under: str = "Filters") -> Look:
    return Look(Call(f"ec2.{operation}", {under: [*filters, TAGS]}), items, key, tags="Tags")


def _vpc() -> dict[str, Any]:
    return _filter("vpc-id", "{inputs[vpcId]}")


_ROUTES = Call("ec2.describe_route_tables", {"RouteTableIds": ["{inputs[routeTableId]}"]})
_NO_TABLE = ("InvalidRouteTableID.NotFound",)
_LIVE = "[?!contains(['deleting', 'Deleting', 'deleted', 'Deleted', 'failed', 'Failed'], State)]"

EC2: Mapping[str, Look] = {
    "aws:ec2/vpc:Vpc": _tagged("describe_vpcs", "Vpcs", "VpcId"),
    "aws:ec2/subnet:Subnet": _tagged("describe_subnets", "Subnets", "SubnetId", _vpc()),
    "aws:ec2/internetGateway:InternetGateway": _tagged(
        "describe_internet_gateways", "InternetGateways", "InternetGatewayId"
    ),
    "aws:ec2/eip:Eip": _tagged("describe_addresses", "Addresses", "AllocationId"),
    "aws:ec2/natGateway:NatGateway": _tagged(
        "describe_nat_gateways",
        "NatGateways",
        "NatGatewayId",
        _filter("state", "pending", "available"),
        under="Filter",
    ),
    "aws:ec2/routeTable:RouteTable": _tagged("describe_route_tables", "RouteTables", "RouteTableId", _vpc()),
    "aws:ec2/route:Route": Look(
        _ROUTES,
        "RouteTables[].Routes[]",
        "DestinationCidrBlock",
        "{inputs[routeTableId]}_{found}",
        {"DestinationCidrBlock": "{inputs[destinationCidrBlock]}"},
        none=_NO_TABLE,
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Look(
        _ROUTES,
        "RouteTables[].Associations[]",
        "RouteTableAssociationId",
        "{inputs[subnetId]}/{inputs[routeTableId]}",
        {"SubnetId": "{inputs[subnetId]}"},
        none=_NO_TABLE,
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _tagged(
        "describe_vpc_endpoints",
        f"VpcEndpoints{_LIVE}",
        "VpcEndpointId",
        _vpc(),
        _filter("service-name", "{inputs[serviceName]}"),
    ),
    "aws:ec2/securityGroup:SecurityGroup": _tagged(
        "describe_security_groups",
        "SecurityGroups",
        "GroupId",
        _vpc(),
        _filter("group-name", "{inputs[name]}"),
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Look(
        Call(
            "ec2.describe_security_group_rules",
            {"Filters": [_filter("group-id", "{inputs[securityGroupId]}"), TAGS]},
        ),
        "SecurityGroupRules[?!IsEgress]",
        "SecurityGroupRuleId",
        tags="Tags",
        none=("InvalidGroup.NotFound",),
    ),
    "aws:ec2/tag:Tag": Look(
        Call(
            "ec2.describe_tags",
            {
                "Filters": [
                    _filter("resource-id", "{inputs[resourceId]}"),
                    _filter("key", "{inputs[key]}"),
                ]
            },
        ),
        "Tags",
        "ResourceId",
        "{found},{inputs[key]}",
        {"Value": "{inputs[value]}"},
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": _tagged(
        "describe_launch_templates",
        "LaunchTemplates",
        "LaunchTemplateId",
        _filter("launch-template-name", "{inputs[name]}"),
    ),
    "aws:ec2/placementGroup:PlacementGroup": _tagged(
        "describe_placement_groups",
        f"PlacementGroups{_LIVE}",
        "GroupName",
        _filter("group-name", "{inputs[name]}"),
    ),
}

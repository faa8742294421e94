"""A made-up account: botocore's own clients, stubbed, so that requests and responses have AWS's format.

It has everything that an environment needs; a test removes one thing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import botocore.session
from botocore.stub import Stubber

from gpuform.checkout.paths import Paths
from gpuform.clouds.aws.preflight import checks
from gpuform.clouds.aws.preflight.endpoint import ConnectionResult, LocalMachine
from gpuform.stack.preflight.check import Finding
from infra.model.environment import Environment
from infra.model.gpu.machines import MACHINES
from infra.plan import eks

ACCOUNT = "111122223333"
VPC = "vpc-0123456789abcdef0"
ROLE = f"arn:aws:sts::{ACCOUNT}:assumed-role/maker/session"
RESERVATION = "cr-0123456789abcdef0"
ROLES = tuple(
    f"AWSServiceRoleFor{name}" for name in ("AmazonEKS", "AmazonEKSNodegroup", "AutoScaling", "EC2Spot")
)


@functools.cache
def real_client(service: str, region: str) -> Any:
    return botocore.session.Session().create_client(
        service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b"
    )


class FakeMachine(LocalMachine):
    """A machine with a documentation address; ``inside`` are the VPCs of its interfaces."""

    def __init__(
        self, at: str = "203.0.113.7", inside: tuple[str, ...] = (), answer: ConnectionResult | None = None
    ) -> None:
        super().__init__({})
        self.at, self.inside, self.answer = at, inside, answer or ConnectionResult()
        self.tried: list[tuple[str, str]] = []

    def vpc_ids(self) -> tuple[str, ...]:
        return self.inside

    def public_address(self) -> str:
        return self.at

    def connect(self, endpoint: str, authority: str) -> ConnectionResult:
        self.tried.append((endpoint, authority))
        return self.answer


class ErrorCode(Exception):
    """An error of AWS, by its code."""


def reservation(**other: Any) -> dict[str, Any]:
    return {
        "CapacityReservationId": RESERVATION,
        "OwnerId": ACCOUNT,
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": "us-west-2b",
        "State": "active",
        "TotalInstanceCount": 4,
        "AvailableInstanceCount": 4,
        "InstanceMatchCriteria": "targeted",
        "ReservationType": "default",
        **other,
    }


def instance(kind: str, environment: str = "", **other: Any) -> dict[str, Any]:
    tags = [{"Key": "gpuform.io/environment", "Value": environment}] if environment else []
    return {"InstanceType": kind, "Tags": tags, **other}


def subnet(letter: str, **other: Any) -> dict[str, Any]:
    return {
        "SubnetId": f"subnet-0123456789abcde{letter}0",
        "VpcId": VPC,
        "AvailabilityZone": f"us-west-2{letter}",
        "AvailableIpAddressCount": 16_000,
        "Tags": [{"Key": "kubernetes.io/role/internal-elb", "Value": "1"}],
        **other,
    }


def route_table(*subnets: str, id: str = "rtb-1", **target: str) -> dict[str, Any]:
    """A route table, with a default route to ``target`` if given; the main one without subnets of its own."""
    associations = [{"SubnetId": subnet} for subnet in subnets] or [{"Main": True}]
    routes = [{"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}]
    if target:
        routes.append({"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target})
    return {"RouteTableId": id, "VpcId": VPC, "Associations": associations, "Routes": routes}


@dataclass
class Account:
    """The account's contents. ``denied`` and ``failing`` are by operation; ``request`` records the calls."""

    env: Environment
    caller: str = ROLE
    quotas: dict[str, float] = field(default_factory=dict)
    quota: float | None = 10_000
    default_quota: float | None = None
    instances: list[dict[str, Any]] = field(default_factory=list)
    reservations: list[dict[str, Any]] = field(default_factory=lambda: [reservation()])
    not_offered: set[tuple[str, str]] = field(default_factory=set)
    usage_classes: dict[str, list[str]] = field(default_factory=dict)
    roles: tuple[str, ...] = ROLES
    entries: list[str] | None = None
    region: str | None = "opt-in-not-required"
    zones: dict[str, str] | None = None
    zone_ids: dict[str, str] = field(default_factory=dict)
    support: str | None = "STANDARD_SUPPORT"
    add_ons: dict[str, str] = field(default_factory=dict)
    no_image: bool = False
    newest: str = ""
    images: list[dict[str, Any]] = field(default_factory=lambda: [{"Name": "ours", "State": "available"}])
    cluster: dict[str, Any] = field(default_factory=dict)
    vpc_ids: list[str] = field(default_factory=lambda: [VPC])
    dns: dict[str, bool] = field(default_factory=dict)
    subnets: list[dict[str, Any]] = field(default_factory=lambda: [subnet(letter) for letter in "abc"])
    tables: list[dict[str, Any]] = field(default_factory=lambda: [route_table(NatGatewayId="nat-1")])
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    machine: FakeMachine = field(default_factory=FakeMachine)
    denied: set[str] = field(default_factory=set)
    failing: dict[str, str] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)

    def findings(self) -> dict[str, Finding]:
        """The preflight's findings by subject."""
        findings = list(checks(self.env, Paths.here(), "s", self.clients, self.machine))
        by_subject = {finding.subject: finding for finding in findings}
        assert len(by_subject) == len(findings), "two checks of one name"
        assert all(finding.check.startswith("aws ") for finding in findings), "each names a command"
        return by_subject

    def clients(self, service: str, region: str) -> Any:
        client, replies = real_client(service, region), ANSWERS

        def reply(operation: str, parameters: dict[str, Any], call: Callable[[], Any]) -> Any:
            name = client.meta.method_to_api_mapping[operation]
            self.actions.append(f"{service}:{name}")
            with Stubber(client) as stub:
                try:
                    if name in self.denied:
                        ec2 = service == "ec2"
                        raise ErrorCode("UnauthorizedOperation" if ec2 else "AccessDeniedException")
                    if name in self.failing:
                        raise ErrorCode(self.failing[name])
                    stub.add_response(operation, replies[operation](self, parameters))
                except ErrorCode as error:
                    stub.add_client_error(operation, str(error), f"{error} of {name}")
                return call()

        class Client:
            meta = client.meta

            def can_paginate(self, operation: str) -> bool:
                return bool(client.can_paginate(operation))

            def get_paginator(self, operation: str) -> Any:
                def paginate(**parameters: Any) -> Any:
                    pages = client.get_paginator(operation).paginate(**parameters)
                    build = functools.partial(reply, operation, parameters, pages.build_full_result)
                    return SimpleNamespace(build_full_result=build)

                return SimpleNamespace(paginate=paginate)

            def __getattr__(self, operation: str) -> Any:
                call = getattr(client, operation)
                return lambda **asked: reply(operation, asked, functools.partial(call, **asked))

        return Client()


Reply = Callable[[Account, dict[str, Any]], dict[str, Any]]


def _regions(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    if account.region is None:
        raise ErrorCode("InvalidParameterValue")
    return {"Regions": [{"RegionName": request["RegionNames"][0], "OptInStatus": account.region}]}


def _zones(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    cluster: Any = account.env.cluster
    states = account.zones or dict.fromkeys(cluster.network.zones, "available")
    ids = {name: account.zone_ids.get(name, "x1-az1") for name in states}
    zones = [{"ZoneName": name, "State": state, "ZoneId": ids[name]} for name, state in states.items()]
    return {"AvailabilityZones": zones}


def _cluster(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    if account.entries is None:
        raise ErrorCode("ResourceNotFoundException")
    return {"cluster": {"name": request["name"], **account.cluster}}


def _quota(request: dict[str, Any], value: float | None) -> dict[str, Any]:
    if value is None:
        raise ErrorCode("NoSuchResourceException")
    return {"Quota": {"QuotaCode": request["QuotaCode"], "Value": value}}


def _instances(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    assert request == {"Filters": [{"Name": "instance-state-name", "Values": ["running"]}]}
    return {"Reservations": [{"Instances": [instance]} for instance in account.instances]}


def _reservations(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    there = {one["CapacityReservationId"]: one for one in account.reservations}
    wanted = request.get("CapacityReservationIds", [*there])
    if {*wanted} - there.keys():
        raise ErrorCode("InvalidCapacityReservationId.NotFound")
    return {"CapacityReservations": [there[id] for id in wanted]}


def _offerings(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    cluster: Any = account.env.cluster
    offered = [
        {"InstanceType": kind, "LocationType": "availability-zone", "Location": zone}
        for kind in request["Filters"][0]["Values"]
        for zone in cluster.network.zones
        if (kind, zone) not in account.not_offered
    ]
    return {"InstanceTypeOfferings": offered}


def _types(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    sold_as = ["on-demand", "spot", "capacity-block"]
    described = [
        {
            "InstanceType": kind,
            "VCpuInfo": {"DefaultVCpus": MACHINES[kind].vcpu if kind in MACHINES else 2},
            "SupportedUsageClasses": account.usage_classes.get(kind, sold_as),
        }
        for kind in request.get("InstanceTypes") or request["Filters"][0]["Values"]
    ]
    return {"InstanceTypes": described}


def _role(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    if request["RoleName"] not in account.roles:
        raise ErrorCode("NoSuchEntity")
    role = {"Path": "/", "RoleName": request["RoleName"], "RoleId": "AROA0123456789abcdef"}
    return {"Role": {**role, "Arn": "arn:aws:iam::111122223333:role/x", "CreateDate": "2026-01-01"}}


def _add_ons(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    name = request["addonName"]
    version = account.add_ons.get(name, eks.add_ons(account.env)[name])
    compatibilities = [{"clusterVersion": request["kubernetesVersion"], "defaultVersion": True}]
    versions = [{"addonVersion": version, "compatibilities": compatibilities}] if version else []
    return {"addons": [{"addonName": name, "addonVersions": versions}]}


def _parameter(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    if account.newest and request["Name"].endswith("/recommended/release_version"):
        return {"Parameter": {"Name": request["Name"], "Value": account.newest}}
    if account.no_image:
        raise ErrorCode("ParameterNotFound")
    return {"Parameter": {"Name": request["Name"], "Value": "ami-0123456789abcdef0"}}


def _find_vpcs(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    """By id; by our tag none, since the stack has not created one."""
    (vpc_filter,) = request["Filters"]
    ids = account.vpc_ids if vpc_filter["Name"] == "vpc-id" else []
    return {"Vpcs": [{"VpcId": id} for id in ids if id in vpc_filter["Values"]]}


def _find_subnets(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    def matches(subnet: dict[str, Any]) -> bool:
        tags = {f"tag:{tag['Key']}": tag["Value"] for tag in subnet["Tags"]}
        values = {"vpc-id": subnet["VpcId"], "subnet-id": subnet["SubnetId"], **tags}
        return all(values.get(condition["Name"]) in condition["Values"] for condition in request["Filters"])

    return {"Subnets": [subnet for subnet in account.subnets if matches(subnet)]}


def _attribute(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    name = request["Attribute"]
    return {name[0].upper() + name[1:]: {"Value": account.dns.get(name, True)}}


def _versions(account: Account, request: dict[str, Any]) -> dict[str, Any]:
    offered = request["clusterVersions"] if account.support else ()
    return {"clusterVersions": [{"clusterVersion": one, "versionStatus": account.support} for one in offered]}


ANSWERS: dict[str, Reply] = {
    "describe_vpcs": _find_vpcs,
    "describe_vpc_attribute": _attribute,
    "describe_subnets": _find_subnets,
    "describe_route_tables": lambda has, _: {"RouteTables": has.tables},
    "describe_vpc_endpoints": lambda has, _: {"VpcEndpoints": has.endpoints},
    "get_caller_identity": lambda has, _: {"Account": ACCOUNT, "Arn": has.caller, "UserId": "AROA:session"},
    "describe_regions": _regions,
    "describe_availability_zones": _zones,
    "describe_cluster": _cluster,
    "list_access_entries": lambda has, _: {"accessEntries": has.entries},
    "get_service_quota": lambda has, asked: _quota(asked, has.quotas.get(asked["QuotaCode"], has.quota)),
    "get_aws_default_service_quota": lambda has, asked: _quota(asked, has.default_quota),
    "describe_instances": _instances,
    "describe_capacity_reservations": _reservations,
    "describe_instance_type_offerings": _offerings,
    "describe_instance_types": _types,
    "get_role": _role,
    "describe_cluster_versions": _versions,
    "describe_addon_versions": _add_ons,
    "get_parameter": _parameter,
    "describe_images": lambda has, _: {"Images": has.images},
}
"""Response of each operation; another operation raises KeyError, which fails the test."""

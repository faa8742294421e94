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
from gpuform.clouds.aws.preflight.reach import Answer, Here
from gpuform.stack.preflight.check import Finding
from infra.model.environment import Environment
from infra.model.machines import MACHINES
from infra.plan import eks

ACCOUNT = "111122223333"
VPC = "vpc-0123456789abcdef0"
ROLE = f"arn:aws:sts::{ACCOUNT}:assumed-role/maker/session"
RESERVATION = "cr-0123456789abcdef0"
ROLES = (
    "AWSServiceRoleForAmazonEKS",
    "AWSServiceRoleForAmazonEKSNodegroup",
    "AWSServiceRoleForAutoScaling",
    "AWSServiceRoleForEC2Spot",
)


@functools.cache
def real(service: str, region: str) -> Any:
    return botocore.session.Session().create_client(
        service, region_name=region, aws_access_key_id="a", aws_secret_access_key="b"
    )


class Machine(Here):
    """A machine with a documentation address; ``inside`` are the VPCs of its interfaces."""

    def __init__(
        self, at: str = "203.0.113.7", inside: tuple[str, ...] = (), answer: Answer | None = None
    ) -> None:
        super().__init__({})
        self.at, self.inside, self.answer = at, inside, answer or Answer()
        self.tried: list[tuple[str, str]] = []

    def vpcs(self) -> tuple[str, ...]:
        return self.inside

    def address(self) -> str:
        return self.at

    def connect(self, endpoint: str, authority: str) -> Answer:
        self.tried.append((endpoint, authority))
        return self.answer


class Said(Exception):
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


def table(*subnets: str, id: str = "rtb-1", **target: str) -> dict[str, Any]:
    """A route table, with a default route to ``target`` if given; the main one without subnets of its own."""
    own = [{"SubnetId": one} for one in subnets] or [{"Main": True}]
    routes = [{"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local", "State": "active"}]
    if target:
        routes.append({"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target})
    return {"RouteTableId": id, "VpcId": VPC, "Associations": own, "Routes": routes}


@dataclass
class Account:
    """The account's contents. ``denied`` and ``failing`` are by operation; ``asked`` records the calls."""

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
    vpcs: list[str] = field(default_factory=lambda: [VPC])
    dns: dict[str, bool] = field(default_factory=dict)
    subnets: list[dict[str, Any]] = field(default_factory=lambda: [subnet(letter) for letter in "abc"])
    tables: list[dict[str, Any]] = field(default_factory=lambda: [table(NatGatewayId="nat-1")])
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    here: Machine = field(default_factory=Machine)
    denied: set[str] = field(default_factory=set)
    failing: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def checked(self) -> dict[str, Finding]:
        """The preflight's findings by subject."""
        found = list(checks(self.env, Paths.here(), "s", self.clients, self.here))
        by_subject = {finding.subject: finding for finding in found}
        assert len(by_subject) == len(found), "two checks of one name"
        return by_subject

    def clients(self, service: str, region: str) -> Any:
        there, known = real(service, region), ANSWERS

        def one(operation: str, parameters: dict[str, Any], call: Callable[[], Any]) -> Any:
            name = there.meta.method_to_api_mapping[operation]
            self.asked.append(f"{service}:{name}")
            with Stubber(there) as stub:
                try:
                    if name in self.denied:
                        raise Said("UnauthorizedOperation" if service == "ec2" else "AccessDeniedException")
                    if name in self.failing:
                        raise Said(self.failing[name])
                    stub.add_response(operation, known[operation](self, parameters))
                except Said as said:
                    stub.add_client_error(operation, str(said), f"{said} of {name}")
                return call()

        class Client:
            meta = there.meta

            def can_paginate(self, operation: str) -> bool:
                return bool(there.can_paginate(operation))

            def get_paginator(self, operation: str) -> Any:
                def paginate(**parameters: Any) -> Any:
                    pages = there.get_paginator(operation).paginate(**parameters)
                    whole = functools.partial(one, operation, parameters, pages.build_full_result)
                    return SimpleNamespace(build_full_result=whole)

                return SimpleNamespace(paginate=paginate)

            def __getattr__(self, operation: str) -> Any:
                def call(**parameters: Any) -> Any:
                    return one(operation, parameters, lambda: getattr(there, operation)(**parameters))

                return call

        return Client()


Reply = Callable[[Account, dict[str, Any]], dict[str, Any]]


def _regions(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    if account.region is None:
        raise Said("InvalidParameterValue")
    return {"Regions": [{"RegionName": asked["RegionNames"][0], "OptInStatus": account.region}]}


def _zones(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    names = account.zones if account.zones is not None else dict.fromkeys(account.env.cluster.network.zones)  # type: ignore[union-attr]
    return {
        "AvailabilityZones": [
            {"ZoneName": name, "State": state or "available", "ZoneId": account.zone_ids.get(name, "x1-az1")}
            for name, state in names.items()
        ]
    }


def _cluster(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    if account.entries is None:
        raise Said("ResourceNotFoundException")
    return {"cluster": {"name": asked["name"], **account.cluster}}


def _quota(asked: dict[str, Any], value: float | None) -> dict[str, Any]:
    if value is None:
        raise Said("NoSuchResourceException")
    return {"Quota": {"QuotaCode": asked["QuotaCode"], "Value": value}}


def _instances(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    assert asked == {"Filters": [{"Name": "instance-state-name", "Values": ["running"]}]}
    return {"Reservations": [{"Instances": [one]} for one in account.instances]}


def _reservations(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    known = {one["CapacityReservationId"] for one in account.reservations}
    wanted = set(asked.get("CapacityReservationIds", known))
    if wanted - known:
        raise Said("InvalidCapacityReservationId.NotFound")
    found = [one for one in account.reservations if one["CapacityReservationId"] in wanted]
    return {"CapacityReservations": found}


def _offerings(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    cluster: Any = account.env.cluster
    found = [
        {"InstanceType": kind, "LocationType": "availability-zone", "Location": zone}
        for kind in asked["Filters"][0]["Values"]
        for zone in cluster.network.zones
        if (kind, zone) not in account.not_offered
    ]
    return {"InstanceTypeOfferings": found}


def _types(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    wanted = asked.get("InstanceTypes") or asked["Filters"][0]["Values"]
    return {
        "InstanceTypes": [
            {
                "InstanceType": kind,
                "VCpuInfo": {"DefaultVCpus": MACHINES[kind].vcpu if kind in MACHINES else 2},
                "SupportedUsageClasses": account.usage_classes.get(
                    kind, ["on-demand", "spot", "capacity-block"]
                ),
            }
            for kind in wanted
        ]
    }


def _role(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    if asked["RoleName"] not in account.roles:
        raise Said("NoSuchEntity")
    named = {"Path": "/", "RoleName": asked["RoleName"], "RoleId": "AROA0123456789abcdef"}
    return {"Role": {**named, "Arn": "arn:aws:iam::111122223333:role/x", "CreateDate": "2026-01-01"}}


def _add_ons(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    name = asked["addonName"]
    version = account.add_ons.get(name, eks.add_ons(account.env)[name])
    fits = [{"clusterVersion": asked["kubernetesVersion"], "defaultVersion": True}]
    there = [{"addonVersion": version, "compatibilities": fits}] if version else []
    return {"addons": [{"addonName": name, "addonVersions": there}]}


def _parameter(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    if account.newest and asked["Name"].endswith("/recommended/release_version"):
        return {"Parameter": {"Name": asked["Name"], "Value": account.newest}}
    if account.no_image:
        raise Said("ParameterNotFound")
    return {"Parameter": {"Name": asked["Name"], "Value": "ami-0123456789abcdef0"}}


def _vpcs(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    """By id; by our tag none, since the stack has not created one."""
    (wanted,) = asked["Filters"]
    there = account.vpcs if wanted["Name"] == "vpc-id" else []
    return {"Vpcs": [{"VpcId": one} for one in there if one in wanted["Values"]]}


def _subnets(account: Account, asked: dict[str, Any]) -> dict[str, Any]:
    def fits(one: dict[str, Any]) -> bool:
        tags = {f"tag:{tag['Key']}": tag["Value"] for tag in one["Tags"]}
        known = {"vpc-id": one["VpcId"], "subnet-id": one["SubnetId"], **tags}
        return all(known.get(each["Name"]) in each["Values"] for each in asked["Filters"])

    return {"Subnets": [one for one in account.subnets if fits(one)]}


ANSWERS: dict[str, Reply] = {
    "describe_vpcs": _vpcs,
    "describe_vpc_attribute": lambda account, asked: {
        asked["Attribute"][0].upper() + asked["Attribute"][1:]: {
            "Value": account.dns.get(asked["Attribute"], True)
        }
    },
    "describe_subnets": _subnets,
    "describe_route_tables": lambda account, asked: {"RouteTables": account.tables},
    "describe_vpc_endpoints": lambda account, asked: {"VpcEndpoints": account.endpoints},
    "get_caller_identity": lambda account, asked: {
        "Account": ACCOUNT,
        "Arn": account.caller,
        "UserId": "AROA:session",
    },
    "describe_regions": _regions,
    "describe_availability_zones": _zones,
    "describe_cluster": _cluster,
    "list_access_entries": lambda account, asked: {"accessEntries": account.entries},
    "get_service_quota": lambda account, asked: _quota(
        asked, account.quotas.get(asked["QuotaCode"], account.quota)
    ),
    "get_aws_default_service_quota": lambda account, asked: _quota(asked, account.default_quota),
    "describe_instances": _instances,
    "describe_capacity_reservations": _reservations,
    "describe_instance_type_offerings": _offerings,
    "describe_instance_types": _types,
    "get_role": _role,
    "describe_cluster_versions": lambda account, asked: {
        "clusterVersions": [
            {"clusterVersion": one, "versionStatus": account.support}
            for one in asked["clusterVersions"]
            if account.support
        ]
    },
    "describe_addon_versions": _add_ons,
    "get_parameter": _parameter,
    "describe_images": lambda account, asked: {"Images": account.images},
}
"""Response of each operation; another operation raises KeyError, which fails the test."""

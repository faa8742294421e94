"""The network of an EKS cluster, created by the stack or existing, and the access to its endpoint."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from infra.model.aws.values import UNIQUE_ZONES, SubnetId, TagKey, TagValue, VpcId, Zone
from infra.model.base.errors import InputError
from infra.model.base.fields import Model, Strict, each_once, option, required

MAX_CIDRS = 40
"""EKS quota "Public endpoint access CIDR ranges per cluster" (EKS user guide, service quotas)."""

MAX_ADDRESSES = 2**24
"""Addresses of a /8, the largest block that IANA has assigned to one organisation (IANA IPv4 Address Space
Registry): wider networks hold strangers."""

_RESERVED = tuple(
    ipaddress.IPv4Network(cidr)
    for cidr in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
    )
)
"""Never the source of a client on the internet (RFC 6890). EKS user guide, "Configure network access to
cluster API server endpoint": "The block cannot include reserved addresses"."""

_NAME_NETWORKS = "name the networks that administer it, or leave it out for a private endpoint"
_PRIVATE = tuple(
    ipaddress.IPv4Network(cidr) for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
"""Ranges for a VPC (RFC 1918, RFC 6598; VPC user guide, "VPC CIDR blocks"): nothing in a VPC of other
addresses reaches their owners on the internet."""

_OWN_VPC = ("is for a VPC that the stack creates", "leave it out, or leave out vpc and subnets")


def _network(value: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(value, strict=True)
    except ValueError as error:
        fact = f"{value!r} is not an IPv4 network: {error}"
        raise InputError("", fact, "write it as 10.0.0.0/16") from None
    if str(network) != value:
        raise InputError("", f"{value!r} is not in CIDR notation", f"write it as {network}")
    return network


def _vpc_cidr(value: str) -> str:
    network = _network(value)
    if not 16 <= network.prefixlen <= 28:
        raise InputError("", f"{value} is not a supported VPC size", "use a prefix from /16 to /28")
    if not any(network.subnet_of(private) for private in _PRIVATE):
        ranges = ", ".join(map(str, _PRIVATE))
        raise InputError("", f"{value} is no private network", f"use a part of {ranges}")
    return value


def _public_cidr(value: str) -> str:
    network = _network(value)
    if network.prefixlen == 0:
        raise InputError("", f"{value} opens the control plane's endpoint to everyone", _NAME_NETWORKS)
    for reserved in _RESERVED:
        if network.overlaps(reserved):
            fact = f"EKS refuses {value}: no client outside the VPC has an address in {reserved}"
            raise InputError("", fact, "name the public addresses of the clients")
    return value


def _public_cidrs(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) > MAX_CIDRS:
        raise InputError("", f"has {len(values)} entries", f"EKS accepts {MAX_CIDRS}: merge networks")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise InputError(f"[{index}]", f"{value} is given twice", "name each network once")
    networks = ipaddress.collapse_addresses(map(ipaddress.IPv4Network, values))
    opened = sum(network.num_addresses for network in networks)
    if opened > MAX_ADDRESSES:
        fact = f"open the control plane's endpoint to {opened} addresses, more than a /8 has"
        raise InputError("", fact, _NAME_NETWORKS)
    return values


Zones = Annotated[tuple[Zone, ...], Field(min_length=2, max_length=6), each_once(UNIQUE_ZONES)]


class OwnNetwork(Model):
    """A VPC that the stack creates: per zone a public and a private subnet; nodes are in the private ones."""

    cidr: Annotated[Strict, AfterValidator(_vpc_cidr)] = required(
        "IPv4 network of the VPC, /16 to /28; nodes and pods get their addresses from it."
    )
    zones: Zones = required("Availability zones, 2 to 6: EKS requires two.")
    nat: Literal["single", "per_zone"] = option(
        "One NAT gateway for all zones, or one per zone, so that no zone depends on another.", "single"
    )

    def check(self, region: str) -> None:
        """Refuse zones of another region."""
        _check_zones("network.zones", self.zones, region)


class SubnetTags(Model):
    """Tags of exactly one subnet in each zone; every update looks up the ids.

    Two such subnets in a zone are refused: other subnets would replace a node group.
    """

    tags: dict[TagKey, TagValue] = required("A subnet must have all of these tags.", min_length=1)
    zones: Zones = required("Availability zones, 2 to 6: EKS requires two.")


def _tags_or_ids(value: Any) -> str:
    tags = isinstance(value, SubnetTags) or (isinstance(value, Mapping) and {"tags", "zones"} & {*value})
    return "[tags]" if tags else "[ids]"


# Tags appear in error paths; the brackets distinguish them from an environment's keys.
PrivateSubnets = Annotated[
    Annotated[dict[Zone, SubnetId], Field(min_length=2, max_length=6), Tag("[ids]")]
    | Annotated[SubnetTags, Tag("[tags]")],
    Discriminator(_tags_or_ids),
]


class ExistingNetwork(Model):
    """An existing VPC with a private subnet in each zone; the stack changes nothing in it.

    Its owner provides NAT, a transit gateway or VPC endpoints; the preflight checks them.
    """

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = dict.fromkeys(("cidr", "zones", "nat"), _OWN_VPC)

    vpc: VpcId = required("Id of an existing VPC; the stack changes nothing in it.")
    subnets: PrivateSubnets = required(
        "Its private subnets, one per zone: a subnet id for each zone, or tags and zones."
    )

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones, in the declared order."""
        return self.subnets.zones if isinstance(self.subnets, SubnetTags) else tuple(self.subnets)

    @property
    def subnet_ids(self) -> Mapping[str, str]:
        """Subnet ids by zone; empty if tags select the subnets."""
        return {} if isinstance(self.subnets, SubnetTags) else self.subnets

    @property
    def subnet_tags(self) -> Mapping[str, str]:
        """Tags of the subnets; empty if their ids are given."""
        return self.subnets.tags if isinstance(self.subnets, SubnetTags) else {}

    def check(self, region: str) -> None:
        """Refuse zones of another region, and a subnet given twice."""
        if isinstance(self.subnets, SubnetTags):
            _check_zones("network.subnets.zones", self.subnets.zones, region)
        zone_of_subnet: dict[str, str] = {}
        for zone, subnet in self.subnet_ids.items():
            _check_zone(f"network.subnets.{zone}", zone, region)
            if zone_of_subnet.setdefault(subnet, zone) != zone:
                fact = f"{subnet} is also given for {zone_of_subnet[subnet]}, and a subnet is in one zone"
                raise InputError(f"network.subnets.{zone}", fact, "name a subnet of that zone")


def _check_zones(path: str, zones: tuple[str, ...], region: str) -> None:
    for index, zone in enumerate(zones):
        _check_zone(f"{path}[{index}]", zone, region)


_LAST_ZONE = "f"
"""No region has more than six zones (AWS, "Regions and Zones"): us-east-1 has a to f."""


def _check_zone(path: str, zone: str, region: str) -> None:
    if zone[:-1] != region or not "a" <= zone[-1] <= _LAST_ZONE:
        raise InputError(path, f"{zone!r} is not a zone of {region}", f"write it as {region}a")


def _existing_or_own(value: Any) -> str:
    existing = isinstance(value, ExistingNetwork) or (
        isinstance(value, Mapping) and {"vpc", "subnets"} & {*value}
    )
    return "[existing]" if existing else "[own]"


Network = Annotated[
    Annotated[OwnNetwork, Tag("[own]")] | Annotated[ExistingNetwork, Tag("[existing]")],
    Discriminator(_existing_or_own),
]


class Endpoint(Model):
    """Access to the control plane's endpoint; nodes always reach it from inside the VPC."""

    public_cidrs: Annotated[
        tuple[Annotated[Strict, AfterValidator(_public_cidr)], ...], AfterValidator(_public_cidrs)
    ] = option(
        "Public networks that may reach it from outside, at most 40 and as many addresses as a /8; private "
        "only if left out.",
        (),
    )
    reached_by: Literal["network"] | None = option(
        "network: the machine that runs updates is in the VPC or connected to it (VPN, peering, "
        "HTTPS_PROXY). The preflight trusts this until there is an endpoint that it can try."
    )

"""Rules over lists of networks: who reaches a cluster's API, a node or a service."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any

from policies import contract
from policies.rule import Resource, Rule, at, each, listed, table, text

_MOST_ADDRESSES = {4: 2**24, 6: 2**112}
"""By version of IP, the largest block that one organisation has been given: a /8 (IANA IPv4 Address Space
Registry), a /16 (ARIN, 2630::/16). More addresses let strangers in, however many networks they make."""
_EVERYONE = ("0.0.0.0/0",)
_LABEL = "api_master_lb_allowed_cidrs"
"""Label of Magnum's Cluster API driver (``conf.py`` of magnum-capi-helm): networks, separated by commas."""
_NEUTRON_RULE = "openstack:networking/secGroupRule:SecGroupRule"
_REMOTE = ("remoteIpPrefix", "remoteGroupId", "remoteAddressGroupId")
_SOURCES = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6", "remoteIpPrefix")


def _endpoint(cluster: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if cluster.type != contract.CLUSTER:
        # Without the label, the template or the driver decides.
        yield from _open_to(text(cluster.props, "labels", _LABEL).replace(",", " ").split())
        return
    config = table(cluster.props, "vpcConfig")
    if config.get("endpointPublicAccess", True) is not False:
        yield from _open_to(each(config, "publicAccessCidrs") or _EVERYONE)


def _sources(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    """Networks of rules for incoming packets; of a Service, those that its load balancer lets in."""
    if "egress" in (at(resource.props, "type"), at(resource.props, "direction")):
        return
    rules = (resource.props, *each(resource.props, "ingress"))
    found = [one for rule in rules for key in _SOURCES for one in listed(at(rule, key))]
    found += each(resource.props, "spec", "loadBalancerSourceRanges")
    if resource.type == _NEUTRON_RULE and not any(at(resource.props, key) for key in _REMOTE):
        found += _EVERYONE
    yield from _open_to(found)


def _open_to(ranges: Sequence[Any]) -> Iterator[str]:
    """Judges all networks of a version together; a text that is no network is itself the fact."""
    try:
        networks: list[Any] = [ipaddress.ip_network(str(one), strict=False) for one in ranges]
    except ValueError as error:
        yield str(error)
        return
    for version, most in _MOST_ADDRESSES.items():
        merged = ipaddress.collapse_addresses(one for one in networks if one.version == version)
        count = sum(one.num_addresses for one in merged)
        if count > most:
            everyone = count in (2**32, 2**128)
            yield f"it is open to {'every address' if everyone else f'{count} addresses of IPv{version}'}"


RULES = (
    Rule(
        "endpoint-closed",
        "The cluster's endpoint is private or open to named ranges, of an IPv4 /8 or an IPv6 /16 at most.",
        "critical",
        "leave endpoint.public_cidrs empty, or name the ranges of its users",
        (contract.CLUSTER, contract.MAGNUM_CLUSTER, contract.MAGNUM_TEMPLATE),
        _endpoint,
    ),
    Rule(
        "sources-named",
        "Security groups and load balancers let in named ranges, of an IPv4 /8 or an IPv6 /16 at most.",
        "high",
        "name the ranges of the clients",
        (
            "aws:ec2/securityGroup:SecurityGroup",
            "aws:ec2/securityGroupRule:SecurityGroupRule",
            "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            _NEUTRON_RULE,
            "kubernetes:core/v1:Service",
        ),
        _sources,
    ),
)

"""Rules over lists of networks: who reaches a cluster's API, a node or a service."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any

from policies import contract
from policies.rule import Resource, Rule, as_list, get, items, mapping, text

_MOST_ADDRESSES = {4: 2**24, 6: 2**112}
"""By version of IP, the largest block that one organisation has been given: a /8 (IANA IPv4 Address Space
Registry), a /16 (ARIN, 2630::/16). More addresses let strangers in, however many networks they make."""
_EVERYONE = ("0.0.0.0/0",)
_CIDRS_LABEL = "api_master_lb_allowed_cidrs"
"""Label of Magnum's Cluster API driver (``conf.py`` of magnum-capi-helm): networks, separated by commas."""
_NEUTRON_RULE = "openstack:networking/secGroupRule:SecGroupRule"
_REMOTE = ("remoteIpPrefix", "remoteGroupId", "remoteAddressGroupId")
_SOURCES = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6", "remoteIpPrefix")


def _endpoint(cluster: Resource, _: Sequence[Resource]) -> Iterator[str]:
    if cluster.type != contract.CLUSTER:
        # Without the label, the template or the driver decides.
        yield from _check_ranges(text(cluster.props, "labels", _CIDRS_LABEL).replace(",", " ").split())
        return
    config = mapping(cluster.props, "vpcConfig")
    if config.get("endpointPublicAccess", True) is not False:
        yield from _check_ranges(items(config, "publicAccessCidrs") or _EVERYONE)


def _sources(resource: Resource, _: Sequence[Resource]) -> Iterator[str]:
    """Networks of rules for incoming packets; of a Service, those that its load balancer lets in."""
    if "egress" in (get(resource.props, "type"), get(resource.props, "direction")):
        return
    rules = (resource.props, *items(resource.props, "ingress"))
    ranges = [value for rule in rules for key in _SOURCES for value in as_list(get(rule, key))]
    ranges += items(resource.props, "spec", "loadBalancerSourceRanges")
    if resource.type == _NEUTRON_RULE and not any(get(resource.props, key) for key in _REMOTE):
        ranges += _EVERYONE
    yield from _check_ranges(ranges)


def _check_ranges(ranges: Sequence[Any]) -> Iterator[str]:
    """Judges all networks of a version together; a text that is no network is itself the fact."""
    try:
        networks: list[Any] = [ipaddress.ip_network(str(network), strict=False) for network in ranges]
    except ValueError as error:
        yield str(error)
        return
    for version, limit in _MOST_ADDRESSES.items():
        merged = ipaddress.collapse_addresses(network for network in networks if network.version == version)
        count = sum(network.num_addresses for network in merged)
        if count > limit:
            everyone = count in (2**32, 2**128)
            yield f"it is open to {'every address' if everyone else f'{count} addresses of IPv{version}'}"


RULES = (
    Rule(
        "endpoint-closed",
        "The cluster's endpoint is private or open to named ranges, of an IPv4 /8 or an IPv6 /16 at most.",
        "critical",
        "leave endpoint.public_cidrs empty, or name the ranges of its users",
        (contract.CLUSTER, contract.MAGNUM_CLUSTER),
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

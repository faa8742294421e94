"""The VPC's subnets, how many addresses nodes and pods may take, and the regions with EKS."""

from __future__ import annotations

import ipaddress
import itertools
from typing import Any

import pytest

from infra.model.aws import values
from infra.model.aws.network import OwnNetwork
from infra.model.base.errors import InputError
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.model.pool.addresses import max_nodes, prefix_delegation, subnets
from tests.build.aws_environments import aws

pytestmark = pytest.mark.unit


def network(cidr: str, zones: int) -> OwnNetwork:
    return OwnNetwork(cidr=cidr, zones=tuple(f"eu-west-1{letter}" for letter in "abcdef"[:zones]))


@pytest.mark.parametrize("zones", range(2, 7))
@pytest.mark.parametrize("prefix", range(16, 23))
def test_no_two_subnets_overlap_and_all_lie_in_the_vpc(prefix: int, zones: int) -> None:
    cut = subnets(network(f"10.0.0.0/{prefix}", zones))
    found = [ipaddress.ip_network(cidr) for zone in cut for cidr in (zone.public, zone.private)]
    assert len(found) == 2 * zones
    assert all(item.subnet_of(ipaddress.ip_network(f"10.0.0.0/{prefix}")) for item in found)
    assert not [pair for pair in itertools.combinations(found, 2) if pair[0].overlaps(pair[1])]
    assert all(entry.prefixlen <= 28 for entry in found)


def test_a_third_zone_moves_no_subnet_of_the_first_two() -> None:
    assert subnets(network("10.0.0.0/16", 3))[:2] == subnets(network("10.0.0.0/16", 2))


def test_the_smallest_networks() -> None:
    assert [zone.public for zone in subnets(network("10.0.0.0/24", 2))] == ["10.0.0.192/28", "10.0.0.208/28"]
    with pytest.raises(InputError, match=r"leaves 6 zones no room for subnets of /28; use /22"):
        subnets(network("10.0.0.0/23", 6))


def environment(cidr: str, **pool: Any) -> Environment:
    zones = ["us-west-2a", "us-west-2b"]
    given = pool if "gpu" in pool else {"machine": "g4dn.xlarge", **pool}
    return aws(given, network={"cidr": cidr, "zones": zones})


# /23 over two zones: 2 x (128 - 5) addresses. Two system nodes with 58 pods take 2 x 59, a g4dn.xlarge with
# 29 pods takes 30, so four of them fit. With blocks of 16, the system's take 2 x (16 x 5 + 1), the others
# 16 x 3 + 1. Nodes alone take one each.
@pytest.mark.parametrize(
    ("nodes", "pods", "need"),
    [(4, None, None), (5, None, 268), (1, 30, None), (2, 30, 260), (9, 13, None), (244, None, 7438)],
)
def test_fewer_addresses_than_full_nodes_take_get_a_warning(
    nodes: int, pods: int | None, need: int | None
) -> None:
    env = environment("10.0.0.0/23", nodes=nodes, aws={"max_pods": pods} if pods else {})
    warning = (
        "cluster.network.cidr: its private subnets in us-west-2a, us-west-2b have 246 addresses, and nodes "
        f"full of pods there may take {need}; use a larger network, fewer nodes, or a smaller max_pods"
    )
    assert warnings(env) == (() if need is None else (warning,))


def test_fewer_addresses_than_nodes_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        environment("10.0.0.0/23", nodes=245)
    assert str(caught.value) == (
        "cluster.network.cidr: its private subnets in us-west-2a, us-west-2b have 246 addresses, and nodes "
        "alone there may take 247; use a larger network, or fewer nodes"
    )


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"cpu": 1000}, 250),
        ({"memory_gib": 160}, 10),
        ({"cpu": 1000, "nvidia.com/gpu.shared": 32}, 10),
        ({"cpu": 7}, 1),
    ],
)
def test_the_first_limit_that_is_reached_ends_it(limits: dict[str, int], most: int) -> None:
    shares = {"kind": "time_slicing", "replicas": 3}
    env = environment("10.0.0.0/16", elastic={"max": limits}, sharing=shares)
    (pool,) = env.pools
    assert max_nodes(pool, pool.machines[0]) == most


def test_the_larger_nodes_take_their_own_addresses_and_offer_more() -> None:
    """24 shares of T4s are 8 nodes of one GPU with 58 pods at most, or 2 nodes of four with 234."""
    gpu, shares = {"models": ["T4"], "count": [1, 4]}, {"kind": "time_slicing", "replicas": 3}
    elastic = {"max": {"nvidia.com/gpu.shared": 24}}
    env = environment("10.0.0.0/23", gpu=gpu, elastic=elastic, sharing=shares)
    assert [f"may take {2 * 59 + 8 * 59}; " in text for text in warnings(env)] == [True]


@pytest.mark.parametrize(("pods", "blocks"), [(None, False), (29, False), (30, True), (110, True)])
def test_blocks_are_handed_out_where_single_addresses_do_not_suffice(pods: int | None, blocks: bool) -> None:
    env = environment("10.0.0.0/16", nodes=1, aws={"max_pods": pods} if pods else {})
    assert prefix_delegation(env.pools) is env.prefix_delegation is blocks


def test_the_regions_are_those_that_aws_has_eks_in() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    assert {
        name: tuple(session.get_available_regions("eks", name)) for name in session.get_available_partitions()
    } == values.PARTITIONS

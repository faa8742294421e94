"""How a VPC is cut into subnets, and whether its addresses suffice for the pods.

With the VPC CNI every pod has an address of the VPC, and EC2 keeps five of each subnet (AWS's page on subnet
sizing). Formula: a node takes one address of its own and one per pod it may hold, so a pool takes
``nodes x (max_pods + 1)``. Where a pool asks for more pods than its machine's interfaces have addresses for,
the CNI hands out blocks of 16 instead (prefix delegation), on every node and one block ahead of need: then a
node takes ``16 x (ceil(max_pods / 16) + 1) + 1``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from infra.model import offer
from infra.model.aws import AwsCluster
from infra.model.aws_network import ExistingNetwork, OwnNetwork
from infra.model.elastic import SURGE
from infra.model.errors import InputError
from infra.model.machines import MACHINES, Machine
from infra.model.offer import MigStrategy
from infra.model.pool import Pool

KEPT_BY_EC2 = 5
SMALLEST_SUBNET = 28
"""Prefix of the smallest subnet that AWS makes (VPC user guide, subnet sizing)."""
BLOCK = 16


@dataclass(frozen=True)
class Subnets:
    """The two subnets of one zone: nodes and pods live in the private one, NAT gateways in the other."""

    zone: str
    private: str
    public: str


def subnets(network: OwnNetwork) -> tuple[Subnets, ...]:
    """One private and one public subnet per zone, without overlap.

    The VPC is split into four equal blocks for two or three zones and into eight for more; each zone has one
    of them, and the last one is split once more for the public subnets. So a third zone moves no subnet of
    the first two, while a fourth one does: all subnets are then replaced. /16 over three zones: private /18,
    public /20. Raises InputError where the public subnets would be smaller than AWS allows.
    """
    cidr, zones = network.cidr, network.zones
    vpc = ipaddress.IPv4Network(cidr)
    bits = len(zones).bit_length()
    if vpc.prefixlen + 2 * bits > SMALLEST_SUBNET:
        fact = f"{cidr} leaves {len(zones)} zones no room for subnets of /{SMALLEST_SUBNET}"
        remedy = f"use /{SMALLEST_SUBNET - 2 * bits} or a larger network"
        raise InputError("cluster.network.cidr", fact, remedy)
    blocks = list(vpc.subnets(prefixlen_diff=bits))
    public = list(blocks[-1].subnets(prefixlen_diff=bits))
    return tuple(Subnets(zone, str(blocks[index]), str(public[index])) for index, zone in enumerate(zones))


def prefix_delegation(pools: Sequence[Pool]) -> bool:
    """Whether a pool asks for more pods on a node than its interfaces have single addresses for."""
    return any((pool.on_aws.max_pods or 0) > machine.pods for pool in pools for machine in pool.machines)


def with_surge(strategy: MigStrategy, pool: Pool, machine: Machine) -> int:
    """Maximum number of nodes of the pool if all are that machine, also while one is replaced."""
    if pool.elastic is None:
        return (pool.nodes or 0) + (SURGE if pool.by_karpenter else 0)
    return offer.most_nodes(strategy, pool, machine)


def _most_addresses(strategy: MigStrategy, pool: Pool, blocks: bool) -> int:
    return max(
        with_surge(strategy, pool, machine) * _per_node(pool.on_aws.max_pods or machine.pods, blocks)
        for machine in pool.machines
    )


def _per_node(pods: int, blocks: bool) -> int:
    return BLOCK * (-(-pods // BLOCK) + 1) + 1 if blocks else pods + 1


def needs(cluster: AwsCluster, pools: Sequence[Pool], strategy: MigStrategy) -> dict[frozenset[str], int]:
    """Most addresses that nodes and pods may take, by the zones that must have them.

    Pools that name zones must fit into them, so each set of zones that a pool names is counted on its own.
    """
    every, blocks = frozenset(cluster.network.zones), prefix_delegation(pools)
    takes = [(frozenset(pool.zones) or every, _most_addresses(strategy, pool, blocks)) for pool in pools]
    takes.append((every, cluster.system.nodes * _per_node(MACHINES[cluster.system.machine].pods, blocks)))
    found = dict.fromkeys(zones for zones, _ in takes)
    return {zones: sum(addresses for of, addresses in takes if of <= zones) for zones in found}


def check(cluster: AwsCluster, pools: Sequence[Pool], strategy: MigStrategy) -> None:
    """Refuse a network that is too small for what the pools may grow to.

    Only AWS knows the size of the subnets of an existing VPC: the preflight checks them.
    """
    network = cluster.network
    if isinstance(network, ExistingNetwork):
        return
    cut = subnets(network)
    for zones, need in needs(cluster, pools, strategy).items():
        inside = [ipaddress.IPv4Network(part.private) for part in cut if part.zone in zones]
        room = sum(one.num_addresses - KEPT_BY_EC2 for one in inside)
        if need > room:
            raise InputError(
                "cluster.network.cidr",
                f"its private subnets in {', '.join(sorted(zones))} have {room} addresses, "
                f"and nodes and pods there may take {need}",
                "use a larger network, fewer nodes, or a smaller max_pods",
            )

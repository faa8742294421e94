"""How a VPC is cut into subnets, and whether its addresses suffice for the pods.

With the VPC CNI every pod has an address of the VPC, and EC2 keeps five of each subnet (AWS's page on subnet
sizing). Formula: a node takes one address of its own and one per pod it may hold, so a pool takes
``nodes x (max_pods + 1)``. Where a pool asks for more pods than its machine's interfaces have addresses for,
the CNI hands out blocks of 16 instead (prefix delegation), on every node and one block ahead of need: then a
node takes ``16 x (ceil(max_pods / 16) + 1) + 1``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork, OwnNetwork
from infra.model.base.errors import InputError
from infra.model.gpu.machines import Machine
from infra.model.pool import allocatable
from infra.model.pool.elastic import SURGE
from infra.model.pool.pool import Pool

RESERVED_BY_EC2 = 5
SMALLEST_PREFIX = 28
"""Prefix of the smallest subnet that AWS makes (VPC user guide, subnet sizing)."""
BLOCK_ADDRESSES = 16


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
    if vpc.prefixlen + 2 * bits > SMALLEST_PREFIX:
        fact = f"{cidr} leaves {len(zones)} zones no room for subnets of /{SMALLEST_PREFIX}"
        remedy = f"use /{SMALLEST_PREFIX - 2 * bits} or a larger network"
        raise InputError("cluster.network.cidr", fact, remedy)
    blocks = list(vpc.subnets(prefixlen_diff=bits))
    public = list(blocks[-1].subnets(prefixlen_diff=bits))
    return tuple(Subnets(zone, str(blocks[index]), str(public[index])) for index, zone in enumerate(zones))


def prefix_delegation(pools: Sequence[Pool]) -> bool:
    """Whether a pool asks for more pods on a node than its interfaces have single addresses for."""
    return any(
        (pool.aws_settings.max_pods or 0) > machine.pods for pool in pools for machine in pool.machines
    )


def max_nodes(pool: Pool, machine: Machine) -> int:
    """Maximum number of nodes of the pool if all are that machine, also while one is replaced."""
    if pool.elastic is None:
        return pool.max_nodes + (SURGE if pool.by_karpenter else 0)
    return allocatable.max_nodes(pool, machine)


def _node_addresses(pods: int, blocks: bool) -> int:
    return BLOCK_ADDRESSES * (-(-pods // BLOCK_ADDRESSES) + 1) + 1 if blocks else pods + 1


def demand(cluster: AwsCluster, pools: Sequence[Pool], full: bool = True) -> dict[frozenset[str], int]:
    """Most addresses that nodes may take, by the zones that must have them.

    With as many pods as each may hold (``full``), or with their own address only.

    Pools that name zones must fit into them, so each set of zones that a pool names is counted on its own.
    """
    all_zones, blocks = frozenset(cluster.network.zones), prefix_delegation(pools)

    def addresses(machine: Machine, pods: int | None = None) -> int:
        return _node_addresses(pods or machine.pods, blocks) if full else 1

    demands = [(all_zones, cluster.system.nodes * addresses(cluster.system.type))]
    for pool in pools:
        max_pods = pool.aws_settings.max_pods
        most = max(max_nodes(pool, item) * addresses(item, max_pods) for item in pool.machines)
        demands.append((frozenset(pool.zones) or all_zones, most))
    groups = dict.fromkeys(zones for zones, _ in demands)
    return {zones: sum(count for within, count in demands if within <= zones) for zones in groups}


def check(cluster: AwsCluster, pools: Sequence[Pool]) -> None:
    """Refuse a network that is too small for the nodes that the pools may grow to."""
    for fact in _shortages(cluster, pools, full=False):
        raise InputError("cluster.network.cidr", fact, "use a larger network, or fewer nodes")


def warnings(cluster: AwsCluster, pools: Sequence[Pool]) -> Iterator[str]:
    """A network that is too small for nodes full of pods: few nodes ever hold as many as they may."""
    for fact in _shortages(cluster, pools, full=True):
        yield f"cluster.network.cidr: {fact}; use a larger network, fewer nodes, or a smaller max_pods"


def _shortages(cluster: AwsCluster, pools: Sequence[Pool], full: bool) -> Iterator[str]:
    """Only AWS knows the size of the subnets of an existing VPC: the preflight checks them."""
    if isinstance(cluster.network, ExistingNetwork):
        return
    pairs, subject = subnets(cluster.network), "nodes full of pods" if full else "nodes alone"
    for zones, required in demand(cluster, pools, full).items():
        networks = [ipaddress.IPv4Network(pair.private) for pair in pairs if pair.zone in zones]
        available = sum(network.num_addresses - RESERVED_BY_EC2 for network in networks)
        if required > available:
            fact = f"its private subnets in {', '.join(sorted(zones))} have {available} addresses"
            yield f"{fact}, and {subject} there may take {required}"

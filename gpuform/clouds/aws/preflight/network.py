"""An existing VPC: whether its subnets have what a cluster needs, before anything is created in them.

Source: EKS user guide, "VPC and subnet considerations" (DNS in the VPC, two zones, six free addresses per
subnet for the control plane's interfaces, tags for load balancers) and "Deploy private clusters with limited
internet access" (VPC endpoints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuform.clouds.aws.preflight.account import Aws, describe_cluster
from gpuform.stack.preflight.check import Check, Result
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import addresses
from infra.plan.eks import EVERY_ENDPOINT
from infra.plan.node_groups import cluster_of

_RESERVED = 6
"""Addresses of each subnet for EKS's own interfaces (EKS user guide, subnet requirements)."""
_ANYWHERE = "0.0.0.0/0"
_ROUTE_TARGETS = (
    *("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId", "CoreNetworkArn"),
)
"""Targets of a default route; a firewall's endpoint is a ``GatewayId`` that begins with ``vpce-``."""
_DNS_OPTIONS = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}

Json = Mapping[str, Any]


@dataclass(frozen=True)
class DeclaredNetwork:
    """The declared network of an environment."""

    env: Environment
    cluster: AwsCluster
    network: ExistingNetwork

    def subnets_by_zone(self, aws: Aws) -> dict[str, list[Json]]:
        """AWS's descriptions of the declared subnets, by the zone that they are declared for."""
        if not self.network.subnet_ids:
            wanted = self.network.subnet_tags.items()
            tags = [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted]
            tagged = aws.query("ec2", "describe_subnets", Filters=[*self.vpc_filter, *tags])["Subnets"]
            zones = self.network.zones
            return {zone: [one for one in tagged if one["AvailabilityZone"] == zone] for zone in zones}
        id_filter = [{"Name": "subnet-id", "Values": sorted(self.network.subnet_ids.values())}]
        subnets = aws.query("ec2", "describe_subnets", Filters=id_filter)["Subnets"]
        by_id = {subnet["SubnetId"]: subnet for subnet in subnets}
        return {zone: [by_id[id]] if id in by_id else [] for zone, id in self.network.subnet_ids.items()}

    def subnet_by_zone(self, aws: Aws) -> dict[str, Json]:
        """The subnet of each zone, without zones that have none or several: the check ``subnets`` fails."""
        return {zone: subnets[0] for zone, subnets in self.subnets_by_zone(aws).items() if len(subnets) == 1}

    @property
    def vpc_filter(self) -> list[dict[str, Any]]:
        return [{"Name": "vpc-id", "Values": [self.network.vpc]}]


def checks(env: Environment) -> Iterator[Check]:
    """Five checks of an existing VPC, none of a VPC that the stack creates."""
    cluster = cluster_of(env)
    if not isinstance(cluster.network, ExistingNetwork):
        return
    declared = DeclaredNetwork(env, cluster, cluster.network)
    vpc, region = cluster.network.vpc, f"--region {cluster.region}"
    subnets = f"aws ec2 describe-subnets --filters Name=vpc-id,Values={vpc} {region}"
    routes = f"aws ec2 describe-route-tables --filters Name=vpc-id,Values={vpc} {region}"
    dns = f"aws ec2 describe-vpc-attribute --vpc-id {vpc} --attribute enableDnsHostnames {region}"
    subjects: tuple[tuple[str, str, Callable[[DeclaredNetwork, Aws], Result]], ...] = (
        (f"VPC {vpc}", dns, _judge_vpc),
        ("subnets", subnets, _judge_subnets),
        ("addresses of the subnets", subnets, _judge_addresses),
        ("internet access of the subnets", routes, _judge_internet),
        ("load balancer subnets", subnets, _judge_load_balancers),
    )
    for subject, by_hand, judge in subjects:
        yield Check(subject, by_hand, partial(judge, declared))


def _judge_vpc(declared: DeclaredNetwork, aws: Aws) -> Result:
    """Nodes find the endpoint by a name that only a VPC with both DNS settings resolves."""
    vpc, region = declared.network.vpc, declared.cluster.region
    if not aws.query("ec2", "describe_vpcs", Filters=declared.vpc_filter)["Vpcs"]:
        fact = f"the account has no such VPC in {region}"
        return Result("FAIL", fact, "write another one as cluster.network.vpc")
    for name, option in _DNS_OPTIONS.items():
        answer = aws.query("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name)
        if not answer[name[0].upper() + name[1:]]["Value"]:
            fix = f"aws ec2 modify-vpc-attribute --vpc-id {vpc} {option} --region {region}"
            return Result("FAIL", f"{name} is off, but nodes find the endpoint by name", fix)
    return Result("PASS", "exists, with DNS support and DNS hostnames")


def _judge_subnets(declared: DeclaredNetwork, aws: Aws) -> Result:
    problems = []
    for zone, subnets in declared.subnets_by_zone(aws).items():
        if len(subnets) != 1:
            ids = ", ".join(sorted(subnet["SubnetId"] for subnet in subnets)) or "does not exist"
            wanted = declared.network.subnet_ids.get(zone) or "subnet with these tags"
            problems.append(f"{zone}: {wanted}: {ids}")
            continue
        (subnet,) = subnets
        if subnet["VpcId"] != declared.network.vpc:
            problems.append(f"{subnet['SubnetId']} is in {subnet['VpcId']}")
        elif subnet["AvailabilityZone"] != zone:
            problems.append(f"{subnet['SubnetId']} is in {subnet['AvailabilityZone']}, not in {zone}")
        elif subnet.get("Ipv6Native"):
            problems.append(f"{subnet['SubnetId']} has no IPv4 addresses")
    if problems:
        fix = "declare one subnet of the VPC for each zone as cluster.network.subnets"
        return Result("FAIL", "; ".join(problems), fix)
    found = (f"{subnet['SubnetId']} in {zone}" for zone, subnet in declared.subnet_by_zone(aws).items())
    return Result("PASS", ", ".join(found))


def _judge_addresses(declared: DeclaredNetwork, aws: Aws) -> Result:
    """Free addresses for the largest size of the pools, and for the control plane.

    An existing cluster's nodes and pods have addresses, which AWS does not count as free: then some free ones
    in each subnet are enough.
    """
    subnets = declared.subnet_by_zone(aws)
    free = {zone: int(subnet["AvailableIpAddressCount"]) for zone, subnet in subnets.items()}
    counts = ", ".join(f"{number} in {zone}" for zone, number in free.items())
    if describe_cluster(declared.env, aws):
        empty = [zone for zone, number in free.items() if not number]
        if empty:
            fact = f"none is free in {', '.join(empty)}: no pod can start there"
            return Result("FAIL", fact, "give pools fewer nodes, or free addresses in the subnet")
        return Result("PASS", f"free, besides those of the cluster: {counts}")
    too_few = [zone for zone, number in free.items() if number < _RESERVED]
    if too_few:
        fact = f"fewer than the control plane's {_RESERVED} are free in {', '.join(too_few)}: {counts}"
        return Result("FAIL", fact, "choose other subnets")
    env = declared.env
    for zones, needed in addresses.demand(declared.cluster, env.pools, full=False).items():
        available = sum(free.get(zone, 0) - _RESERVED for zone in zones)
        if needed > available:
            fact = f"{available} are free in {', '.join(sorted(zones))}"
            fact += f", and nodes alone there may take {needed}"
            return Result("FAIL", fact, "choose larger subnets, or fewer nodes")
    most = sum(addresses.demand(declared.cluster, env.pools).values())
    return Result("PASS", f"free: {counts}; nodes full of pods may take {most}")


def _judge_internet(declared: DeclaredNetwork, aws: Aws) -> Result:
    """A default route through NAT or another gateway; without one, the VPC endpoints that nodes need."""
    tables = aws.query("ec2", "describe_route_tables", Filters=declared.vpc_filter)["RouteTables"]
    routed, unrouted = [], {}
    for zone, subnet in declared.subnet_by_zone(aws).items():
        table = _route_table(tables, subnet["SubnetId"])
        target = _default_target(table)
        if target.startswith("igw-"):
            fact = f"{subnet['SubnetId']} is public (default route: {target}); nodes have no public address"
            return Result("FAIL", fact, "choose private subnets")
        if target:
            routed.append(f"{zone}: {target}")
        else:
            unrouted[zone] = str((table or {}).get("RouteTableId", ""))
    if unrouted:
        return _judge_endpoints(declared, aws, unrouted)
    return Result("PASS", ", ".join(routed))


def _route_table(tables: Sequence[Json], subnet: str) -> Json | None:
    """The subnet's own route table, or the VPC's main one."""
    main = None
    for table in tables:
        for association in table.get("Associations") or ():
            if association.get("SubnetId") == subnet:
                return table
            main = table if association.get("Main") else main
    return main


def _default_target(table: Json | None) -> str:
    """Target of the default route; empty without one, or if its target was deleted."""
    for route in (table or {}).get("Routes") or ():
        if route.get("DestinationCidrBlock") == _ANYWHERE and route.get("State") != "blackhole":
            gateway = str(route.get("GatewayId") or "")
            return gateway or next((str(route[key]) for key in _ROUTE_TARGETS if route.get(key)), "")
    return ""


def _judge_endpoints(declared: DeclaredNetwork, aws: Aws, tables: Mapping[str, str]) -> Result:
    """``tables``: id of the route table by zone."""
    zones = ", ".join(tables)
    endpoints = aws.query("ec2", "describe_vpc_endpoints", Filters=declared.vpc_filter)["VpcEndpoints"]
    prefix = f"com.amazonaws.{declared.cluster.region}"
    names = (*EVERY_ENDPOINT, "s3")
    missing = [name for name in names if not _has_endpoint(endpoints, f"{prefix}.{name}", tables)]
    # Karpenter creates instance profiles; IAM's endpoint is com.amazonaws.iam, without a region.
    karpenter = declared.env.has_karpenter
    if karpenter and not any(endpoint["ServiceName"].endswith(".iam") for endpoint in endpoints):
        missing.append("iam")
    fix = "add a default route to a NAT or transit gateway"
    if missing:
        fact = f"no default route in {zones}, and no VPC endpoint for {', '.join(missing)}"
        return Result("FAIL", fact, f"{fix}, or create the VPC endpoints")
    fact = f"no default route in {zones}: VPC endpoints reach AWS, but images only in ECR"
    return Result("SKIP", fact, f"{fix}, or copy every image to ECR")


def _has_endpoint(endpoints: Sequence[Json], service: str, tables: Mapping[str, str]) -> bool:
    """Whether an endpoint serves all of these subnets: by their route tables, or by its private DNS name."""
    for endpoint in endpoints:
        if endpoint["ServiceName"] != service:
            continue
        if str(endpoint.get("State", "available")).lower() != "available":
            continue
        kind = endpoint.get("VpcEndpointType")
        if kind == "Gateway" and {*tables.values()} <= {*endpoint.get("RouteTableIds", ())}:
            return True
        if kind == "Interface" and endpoint.get("PrivateDnsEnabled"):
            return True
    return False


def _judge_load_balancers(declared: DeclaredNetwork, aws: Aws) -> Result:
    """Tags by which Services of type LoadBalancer find subnets; Karpenter needs no tag, it gets the ids."""
    subnets = aws.query("ec2", "describe_subnets", Filters=declared.vpc_filter)["Subnets"]
    kinds = {"internal": labels.INTERNAL_ELB, "public": labels.ELB}
    tagged = {kind: [one["SubnetId"] for one in subnets if _has_tag(one, tag)] for kind, tag in kinds.items()}
    tagged_ids = "; ".join(f"{kind}: {', '.join(ids) or 'none'}" for kind, ids in tagged.items())
    if tagged["internal"]:
        return Result("PASS", tagged_ids)
    ids = " ".join(str(subnet["SubnetId"]) for subnet in declared.subnet_by_zone(aws).values())
    tag = f"--tags Key={labels.INTERNAL_ELB},Value=1 --region {declared.cluster.region}"
    fact = f"{tagged_ids}: an internal Service of type LoadBalancer would find no subnet; the stack has none"
    return Result("SKIP", fact, f"aws ec2 create-tags --resources {ids} {tag}" if ids else "")


def _has_tag(subnet: Json, tag: str) -> bool:
    return any(pair["Key"] == tag for pair in subnet.get("Tags") or ())

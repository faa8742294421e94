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

from gpuform.clouds.aws.preflight.account import described
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.stack.preflight.check import Check, Judged
from infra.model import addresses, labels
from infra.model.aws import AwsCluster
from infra.model.aws_network import ExistingNetwork
from infra.model.environment import Environment
from infra.plan.eks import EVERY_ENDPOINT
from infra.plan.node_groups import cluster_of

CONTROL_PLANE = 6
"""Addresses of each subnet for EKS's own interfaces (EKS user guide, subnet requirements)."""
_ANYWHERE = "0.0.0.0/0"
_TARGETS = (
    *("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId", "CoreNetworkArn"),
)
"""Targets of a default route; a firewall's endpoint is a ``GatewayId`` that begins with ``vpce-``."""
_DNS = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """The declared network of an environment."""

    env: Environment
    cluster: AwsCluster
    network: ExistingNetwork

    def subnets(self, aws: Aws) -> dict[str, list[Json]]:
        """AWS's descriptions of the declared subnets, by the zone that they are declared for."""
        if not self.network.ids:
            tagged = [{"Name": f"tag:{key}", "Values": [value]} for key, value in self.network.tags.items()]
            found = aws.ask("ec2", "describe_subnets", Filters=[*self.in_vpc, *tagged])["Subnets"]
            zones = self.network.zones
            return {zone: [one for one in found if one["AvailabilityZone"] == zone] for zone in zones}
        wanted = [{"Name": "subnet-id", "Values": sorted(self.network.ids.values())}]
        by_id = {
            one["SubnetId"]: one for one in aws.ask("ec2", "describe_subnets", Filters=wanted)["Subnets"]
        }
        return {zone: [by_id[id]] if id in by_id else [] for zone, id in self.network.ids.items()}

    def each(self, aws: Aws) -> dict[str, Json]:
        """The subnet of each zone, without zones that have none or several: the check ``subnets`` fails."""
        return {zone: found[0] for zone, found in self.subnets(aws).items() if len(found) == 1}

    @property
    def in_vpc(self) -> list[dict[str, Any]]:
        return [{"Name": "vpc-id", "Values": [self.network.vpc]}]


def checks(env: Environment) -> Iterator[Check]:
    """Five checks of an existing VPC, none of a VPC that the stack creates."""
    cluster = cluster_of(env)
    if not isinstance(cluster.network, ExistingNetwork):
        return
    place, vpc, region = (
        Place(env, cluster, cluster.network),
        cluster.network.vpc,
        f"--region {cluster.region}",
    )
    subnets = f"aws ec2 describe-subnets --filters Name=vpc-id,Values={vpc} {region}"
    routes = f"aws ec2 describe-route-tables --filters Name=vpc-id,Values={vpc} {region}"
    dns = f"aws ec2 describe-vpc-attribute --vpc-id {vpc} --attribute enableDnsHostnames {region}"
    table: tuple[tuple[str, str, Callable[[Place, Aws], Judged]], ...] = (
        (f"VPC {vpc}", dns, _vpc),
        ("subnets", subnets, _subnets),
        ("addresses of the subnets", subnets, _addresses),
        ("internet access of the subnets", routes, _internet),
        ("load balancer subnets", subnets, _load_balancers),
    )
    for subject, by_hand, judge in table:
        yield Check(subject, by_hand, partial(judge, place))


def _vpc(place: Place, aws: Aws) -> Judged:
    """Nodes find the endpoint by a name that only a VPC with both DNS settings resolves."""
    vpc, region = place.network.vpc, place.cluster.region
    if not aws.ask("ec2", "describe_vpcs", Filters=place.in_vpc)["Vpcs"]:
        fact = f"the account has no such VPC in {region}"
        return Judged("FAIL", fact, "write another one as cluster.network.vpc")
    for name, option in _DNS.items():
        answer = aws.ask("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name)
        if not answer[name[0].upper() + name[1:]]["Value"]:
            fix = f"aws ec2 modify-vpc-attribute --vpc-id {vpc} {option} --region {region}"
            return Judged("FAIL", f"{name} is off, but nodes find the endpoint by name", fix)
    return Judged("PASS", "exists, with DNS support and DNS hostnames")


def _subnets(place: Place, aws: Aws) -> Judged:
    wrong = []
    for zone, found in place.subnets(aws).items():
        if len(found) != 1:
            listed = ", ".join(sorted(one["SubnetId"] for one in found)) or "does not exist"
            wrong.append(f"{zone}: {place.network.ids.get(zone) or 'subnet with these tags'}: {listed}")
            continue
        (one,) = found
        if one["VpcId"] != place.network.vpc:
            wrong.append(f"{one['SubnetId']} is in {one['VpcId']}")
        elif one["AvailabilityZone"] != zone:
            wrong.append(f"{one['SubnetId']} is in {one['AvailabilityZone']}, not in {zone}")
        elif one.get("Ipv6Native"):
            wrong.append(f"{one['SubnetId']} has no IPv4 addresses")
    if wrong:
        fix = "declare one subnet of the VPC for each zone as cluster.network.subnets"
        return Judged("FAIL", "; ".join(wrong), fix)
    return Judged("PASS", ", ".join(f"{one['SubnetId']} in {zone}" for zone, one in place.each(aws).items()))


def _addresses(place: Place, aws: Aws) -> Judged:
    """Free addresses for the largest size of the pools, and for the control plane.

    An existing cluster's nodes and pods have addresses, which AWS does not count as free: then some free ones
    in each subnet are enough.
    """
    free = {zone: int(one["AvailableIpAddressCount"]) for zone, one in place.each(aws).items()}
    listed = ", ".join(f"{number} in {zone}" for zone, number in free.items())
    if described(place.env, aws):
        empty = [zone for zone, number in free.items() if not number]
        if empty:
            fact = f"none is free in {', '.join(empty)}: no pod can start there"
            return Judged("FAIL", fact, "give pools fewer nodes, or free addresses in the subnet")
        return Judged("PASS", f"free, besides those of the cluster: {listed}")
    few = [zone for zone, number in free.items() if number < CONTROL_PLANE]
    if few:
        fact = f"fewer than the control plane's {CONTROL_PLANE} are free in {', '.join(few)}: {listed}"
        return Judged("FAIL", fact, "choose other subnets")
    env = place.env
    for zones, need in addresses.needs(place.cluster, env.pools, env.gpu_operator.mig_strategy).items():
        room = sum(free.get(zone, 0) - CONTROL_PLANE for zone in zones)
        if need > room:
            fact = f"{room} are free in {', '.join(sorted(zones))}, and nodes and pods there may take {need}"
            return Judged("FAIL", fact, "choose larger subnets, fewer nodes, or a smaller max_pods")
    return Judged("PASS", f"free: {listed}")


def _internet(place: Place, aws: Aws) -> Judged:
    """A default route through NAT or another gateway; without one, the VPC endpoints that nodes need."""
    tables = aws.ask("ec2", "describe_route_tables", Filters=place.in_vpc)["RouteTables"]
    routed, without = [], {}
    for zone, one in place.each(aws).items():
        table = _table(tables, one["SubnetId"])
        target = _default(table)
        if target.startswith("igw-"):
            fact = f"{one['SubnetId']} is public (default route: {target}); nodes have no public address"
            return Judged("FAIL", fact, "choose private subnets")
        if target:
            routed.append(f"{zone}: {target}")
        else:
            without[zone] = str((table or {}).get("RouteTableId", ""))
    if without:
        return _by_endpoints(place, aws, without)
    return Judged("PASS", ", ".join(routed))


def _table(tables: Sequence[Json], subnet: str) -> Json | None:
    """The subnet's own route table, or the VPC's main one."""
    main = None
    for table in tables:
        for one in table.get("Associations") or ():
            if one.get("SubnetId") == subnet:
                return table
            main = table if one.get("Main") else main
    return main


def _default(table: Json | None) -> str:
    """Target of the default route; empty without one, or if its target was deleted."""
    for route in (table or {}).get("Routes") or ():
        if route.get("DestinationCidrBlock") == _ANYWHERE and route.get("State") != "blackhole":
            gateway = str(route.get("GatewayId") or "")
            return gateway or next((str(route[key]) for key in _TARGETS if route.get(key)), "")
    return ""


def _by_endpoints(place: Place, aws: Aws, tables: Mapping[str, str]) -> Judged:
    """``tables``: id of the route table by zone."""
    zones = ", ".join(tables)
    found = aws.ask("ec2", "describe_vpc_endpoints", Filters=place.in_vpc)["VpcEndpoints"]
    lacking = [name for name in (*EVERY_ENDPOINT, "s3") if not _serves(found, place, name, tables)]
    # Karpenter creates instance profiles; IAM's endpoint is com.amazonaws.iam, without a region.
    karpenter = any(pool.by_karpenter for pool in place.env.pools)
    if karpenter and not any(one["ServiceName"].endswith(".iam") for one in found):
        lacking.append("iam")
    fix = "add a default route to a NAT or transit gateway"
    if lacking:
        fact = f"no default route in {zones}, and no VPC endpoint for {', '.join(lacking)}"
        return Judged("FAIL", fact, f"{fix}, or create the VPC endpoints")
    fact = f"no default route in {zones}: VPC endpoints reach AWS, but images only in ECR"
    return Judged("SKIP", fact, f"{fix}, or copy every image to ECR")


def _serves(found: Sequence[Json], place: Place, name: str, tables: Mapping[str, str]) -> bool:
    """Whether an endpoint serves all of these subnets: by their route tables, or by its private DNS name."""
    for one in found:
        if one["ServiceName"] != f"com.amazonaws.{place.cluster.region}.{name}":
            continue
        if str(one.get("State", "available")).lower() != "available":
            continue
        if one.get("VpcEndpointType") == "Gateway" and {*tables.values()} <= {*one.get("RouteTableIds", ())}:
            return True
        if one.get("VpcEndpointType") == "Interface" and one.get("PrivateDnsEnabled"):
            return True
    return False


def _load_balancers(place: Place, aws: Aws) -> Judged:
    """Tags by which Services of type LoadBalancer find subnets; Karpenter needs no tag, it gets the ids."""
    every = aws.ask("ec2", "describe_subnets", Filters=place.in_vpc)["Subnets"]
    kinds = {"internal": labels.INTERNAL_ELB, "public": labels.ELB}
    tagged = {kind: [one["SubnetId"] for one in every if _has(one, tag)] for kind, tag in kinds.items()}
    listed = "; ".join(f"{kind}: {', '.join(ids) or 'none'}" for kind, ids in tagged.items())
    if tagged["internal"]:
        return Judged("PASS", listed)
    ids = " ".join(str(one["SubnetId"]) for one in place.each(aws).values())
    tag = f"--tags Key={labels.INTERNAL_ELB},Value=1 --region {place.cluster.region}"
    fact = f"{listed}: an internal Service of type LoadBalancer would find no subnet; the stack has none"
    return Judged("SKIP", fact, f"aws ec2 create-tags --resources {ids} {tag}" if ids else "")


def _has(subnet: Json, tag: str) -> bool:
    return any(one["Key"] == tag for one in subnet.get("Tags") or ())

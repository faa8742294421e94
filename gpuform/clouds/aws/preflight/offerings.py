"""Whether EC2 offers a pool's machines in its zones and capacity types, and has its reservations.

An offered type may still be sold out: only a request for a machine shows the capacity. Reservations that
pools name exist, fit the pool, and have room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from gpuform.clients.aws.api import AwsError
from gpuform.clouds.aws.preflight.account import Aws
from gpuform.clouds.aws.preflight.quotas import Purchase, is_own_instance, pools, purchases, running_instances
from gpuform.stack.preflight.check import Check, Result
from infra.model.environment import Environment
from infra.model.pool.elastic import Capacity
from infra.model.pool.pool import Pool
from infra.plan import node_groups

_USAGE_CLASSES: Mapping[Capacity, tuple[str, ...]] = {
    "reserved": ("on-demand", "capacity-block"),
    "on_demand": ("on-demand",),
    "spot": ("spot",),
}
"""EC2's SupportedUsageClasses for each capacity type; a reservation may be a capacity block."""


def checks(env: Environment) -> Iterator[Check]:
    """Two checks for each pool: its zones, and its capacity types."""
    region = node_groups.cluster_of(env).region
    for pool in pools(env):
        names = [machine.name for machine in pool.machines]
        zones = node_groups.zones(env, pool)
        options = f"--filters Name=instance-type,Values={','.join(names)} --region {region}"
        by_hand = f"aws ec2 describe-instance-type-offerings --location-type availability-zone {options}"
        yield Check(f"machines of pool {pool.name}", by_hand, partial(_judge_zones, names, zones))
        query = "--query 'InstanceTypes[].[InstanceType,SupportedUsageClasses]' --output text"
        by_hand = f"aws ec2 describe-instance-types {options} {query}"
        yield Check(f"capacity of pool {pool.name}", by_hand, partial(_judge_capacity, pool, names, zones))


def offered_zones(aws: Aws, names: Sequence[str]) -> dict[str, set[str]]:
    """Zones by instance type; types that the region does not offer are left out."""
    answer = aws.query(
        "ec2",
        "describe_instance_type_offerings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": list(names)}],
    )
    zones: dict[str, set[str]] = {}
    for offering in answer["InstanceTypeOfferings"]:
        zones.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    return zones


def _judge_zones(names: Sequence[str], zones: Sequence[str], aws: Aws) -> Result:
    zones_of = offered_zones(aws, names)
    types_in = {zone: [name for name in names if zone in zones_of.get(name, ())] for zone in zones}
    if not any(types_in.values()):
        others = sorted(set().union(*zones_of.values())) if zones_of else []
        fact = f"none of {', '.join(zones)} has {', '.join(names)}"
        fix = f"zones of the region that do: {', '.join(others)}" if others else "choose another region"
        return Result("FAIL", fact, fix)
    gaps = []
    for zone, offered in types_in.items():
        missing = [name for name in names if name not in offered]
        if missing:
            gaps.append(f"{zone} lacks {', '.join(missing) if offered else 'all of them'}")
    offers = f"{', '.join(names)} in {', '.join(zone for zone, offered in types_in.items() if offered)}"
    return Result("PASS", "; ".join([offers, *gaps]))


def _judge_capacity(pool: Pool, names: Sequence[str], zones: Sequence[str], aws: Aws) -> Result:
    """Each capacity type must be offered for at least one instance type that one of the zones has."""
    zones_of = offered_zones(aws, names)
    offered = [name for name in names if zones_of.get(name, set()) & set(zones)]
    if not offered:
        return Result("SKIP", "not checked: no zone of the pool has its machines")
    type_filter = [{"Name": "instance-type", "Values": list(names)}]
    types = aws.query("ec2", "describe_instance_types", Filters=type_filter)["InstanceTypes"]
    classes = {type["InstanceType"]: type.get("SupportedUsageClasses", []) for type in types}
    for capacity in pool.capacity:
        wanted = ("capacity-block",) if pool.aws_settings.capacity_block else _USAGE_CLASSES[capacity]
        if not any(usage_class in classes.get(name, ()) for name in offered for usage_class in wanted):
            sold_as = sorted({usage_class for name in offered for usage_class in classes.get(name, ())})
            alternatives = ", ".join(sold_as) or "nothing"
            fact = f"{', '.join(offered)}: not sold as {' or '.join(wanted)} here, but as {alternatives}"
            return Result("FAIL", fact, f"change capacity of pool {pool.name}")
    return Result("PASS", ", ".join(pool.capacity))


_NOT_FOUND = ("InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed")
Json = Mapping[str, Any]
_LINUX = "Linux/UNIX"
_CAPACITY_BLOCK = "capacity-block"


def reservations(env: Environment) -> Iterator[Check]:
    """One check for each pool that names reservations."""
    region = node_groups.cluster_of(env).region
    for purchase in purchases(env):
        if purchase.capacity == "reserved":
            ids = f"--capacity-reservation-ids {' '.join(purchase.pool.aws_settings.reservations)}"
            by_hand = f"aws ec2 describe-capacity-reservations {ids} --region {region}"
            judge = partial(_judge_reservations, env, purchase)
            yield Check(f"reservations of pool {purchase.pool.name}", by_hand, judge)


def _judge_reservations(env: Environment, purchase: Purchase, aws: Aws) -> Result:
    ids = list(purchase.pool.aws_settings.reservations)
    try:
        answer = aws.query("ec2", "describe_capacity_reservations", CapacityReservationIds=ids)
    except AwsError as error:
        if error.code not in _NOT_FOUND:
            raise
        fix = f"write another id as aws.reservations of pool {purchase.pool.name}"
        return Result("FAIL", error.fact, fix)
    reservations = answer["CapacityReservations"]
    mismatches = [text for reservation in reservations for text in _mismatches(env, purchase, reservation)]
    if mismatches:
        return Result("FAIL", "; ".join(mismatches), "name a reservation that fits, or change the pool")
    return _judge_size(env, purchase, reservations, aws)


def _mismatches(env: Environment, purchase: Purchase, reservation: Json) -> Iterator[str]:
    name, pool = reservation["CapacityReservationId"], purchase.pool
    if reservation["State"] != "active":
        start = reservation.get("StartDate")
        begins = f", begins {start:%Y-%m-%d %H:%M} UTC" if isinstance(start, datetime) else ""
        yield f"{name} is {reservation['State']}{begins if reservation['State'] == 'scheduled' else ''}"
    types = [machine.name for machine in purchase.machines]
    if reservation["InstanceType"] not in types:
        yield f"{name} is for {reservation['InstanceType']}, but the pool uses {', '.join(types)}"
    zones = node_groups.zones(env, pool)
    if reservation["AvailabilityZone"] not in zones:
        yield f"{name} is in {reservation['AvailabilityZone']}, but the pool is in {', '.join(zones)}"
    if reservation.get("InstancePlatform", _LINUX) != _LINUX:
        yield f"{name} is for {reservation['InstancePlatform']}, but node images are {_LINUX}"
    is_block = reservation.get("ReservationType") == _CAPACITY_BLOCK
    if not pool.by_karpenter and is_block != pool.aws_settings.capacity_block:
        article, negation = ("a", "no ") if is_block else ("not a", "")
        yield f"{name} is {article} capacity block, but the pool declares {negation}capacity_block"


def _judge_size(env: Environment, purchase: Purchase, reservations: list[Json], aws: Aws) -> Result:
    ids = {reservation["CapacityReservationId"] for reservation in reservations}
    free = sum(reservation["AvailableInstanceCount"] for reservation in reservations)
    own_instances = sum(
        is_own_instance(instance, env.name) and instance.get("CapacityReservationId") in ids
        for instance in running_instances(aws)
    )
    needed, pool = purchase.nodes, purchase.pool
    fact = f"{free} free and {own_instances} of this stack in {', '.join(sorted(ids))}; "
    fact += f"the pool needs {needed} nodes at most"
    if free + own_instances >= needed:
        return Result("PASS", fact)
    if len(pool.capacity) > 1 and free + own_instances:
        others = " or ".join(kind for kind in pool.capacity if kind != "reserved")
        return Result("PASS", f"{fact}, the rest as {others}")
    return Result("FAIL", fact, "reserve more, or reduce the pool's nodes")

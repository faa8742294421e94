"""Whether EC2 offers a pool's machines in its zones and capacity types, and has its reservations.

An offered type may still be sold out: only a request for a machine shows the capacity. Reservations that
pools name exist, fit the pool, and have room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from gpuform.clients.aws.api import Refused
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.quotas import Purchase, instances, ours, pools, purchases
from gpuform.stack.preflight.check import Check, Judged
from infra.model.elastic import Capacity
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import node_groups

_SOLD: Mapping[Capacity, tuple[str, ...]] = {
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
        listed = f"--filters Name=instance-type,Values={','.join(names)} --region {region}"
        by_hand = f"aws ec2 describe-instance-type-offerings --location-type availability-zone {listed}"
        yield Check(f"machines of pool {pool.name}", by_hand, partial(_in_zones, names, zones))
        query = "--query 'InstanceTypes[].[InstanceType,SupportedUsageClasses]' --output text"
        by_hand = f"aws ec2 describe-instance-types {listed} {query}"
        yield Check(f"capacity of pool {pool.name}", by_hand, partial(_ways, pool, names, zones))


def offered(aws: Aws, names: Sequence[str]) -> dict[str, set[str]]:
    """Zones by instance type; types that the region does not offer are left out."""
    found = aws.ask(
        "ec2",
        "describe_instance_type_offerings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": list(names)}],
    )
    zones: dict[str, set[str]] = {}
    for one in found["InstanceTypeOfferings"]:
        zones.setdefault(one["InstanceType"], set()).add(one["Location"])
    return zones


def _in_zones(names: Sequence[str], zones: Sequence[str], aws: Aws) -> Judged:
    sold = offered(aws, names)
    here = {zone: [name for name in names if zone in sold.get(name, ())] for zone in zones}
    if not any(here.values()):
        elsewhere = sorted(set().union(*sold.values())) if sold else []
        fact = f"none of {', '.join(zones)} has {_listed(names)}"
        fix = f"zones of the region that do: {', '.join(elsewhere)}" if elsewhere else "choose another region"
        return Judged("FAIL", fact, fix)
    lacking = []
    for zone, there in here.items():
        missing = [name for name in names if name not in there]
        if missing:
            lacking.append(f"{zone} lacks {_listed(missing) if there else 'all of them'}")
    said = f"{_listed(names)} in {', '.join(zone for zone, there in here.items() if there)}"
    return Judged("PASS", "; ".join([said, *lacking]))


def _ways(pool: Pool, names: Sequence[str], zones: Sequence[str], aws: Aws) -> Judged:
    """Each capacity type must be offered for at least one instance type that one of the zones has."""
    sold = offered(aws, names)
    able = [name for name in names if sold.get(name, set()) & set(zones)]
    if not able:
        return Judged("SKIP", "not checked: no zone of the pool has its machines")
    wanted = [{"Name": "instance-type", "Values": list(names)}]
    said = aws.ask("ec2", "describe_instance_types", Filters=wanted)["InstanceTypes"]
    classes = {one["InstanceType"]: one.get("SupportedUsageClasses", []) for one in said}
    for capacity in pool.capacity:
        ways = ("capacity-block",) if pool.on_aws.capacity_block else _SOLD[capacity]
        if not any(way in classes.get(name, ()) for name in able for way in ways):
            ways_open = sorted({way for name in able for way in classes.get(name, ())})
            instead = ", ".join(ways_open) or "nothing"
            fact = f"{_listed(able)}: not sold as {' or '.join(ways)} here, but as {instead}"
            return Judged("FAIL", fact, f"change capacity of pool {pool.name}")
    return Judged("PASS", ", ".join(pool.capacity))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


_NO_SUCH = ("InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed")
_LINUX = "Linux/UNIX"
_BLOCK = "capacity-block"


def reservations(env: Environment) -> Iterator[Check]:
    """One check for each pool that names reservations."""
    region = node_groups.cluster_of(env).region
    for one in purchases(env):
        if one.capacity == "reserved":
            ids = " ".join(one.pool.on_aws.reservations)
            by_hand = (
                f"aws ec2 describe-capacity-reservations --capacity-reservation-ids {ids} --region {region}"
            )
            yield Check(f"reservations of pool {one.pool.name}", by_hand, partial(_judge, env, one))


def _judge(env: Environment, wanted: Purchase, aws: Aws) -> Judged:
    ids = list(wanted.pool.on_aws.reservations)
    try:
        found = aws.ask("ec2", "describe_capacity_reservations", CapacityReservationIds=ids)
    except Refused as refused:
        if refused.code not in _NO_SUCH:
            raise
        return Judged(
            "FAIL", refused.fact, f"write another id as aws.reservations of pool {wanted.pool.name}"
        )
    reservations = found["CapacityReservations"]
    wrong = [text for one in reservations for text in _unfit(env, wanted, one)]
    if wrong:
        return Judged("FAIL", "; ".join(wrong), "name a reservation that fits, or change the pool")
    return _room(env, wanted, reservations, aws)


def _unfit(env: Environment, wanted: Purchase, one: Mapping[str, Any]) -> Iterator[str]:
    name, pool = one["CapacityReservationId"], wanted.pool
    if one["State"] != "active":
        begins = one.get("StartDate")
        when = f", begins {begins:%Y-%m-%d %H:%M} UTC" if isinstance(begins, datetime) else ""
        yield f"{name} is {one['State']}{when if one['State'] == 'scheduled' else ''}"
    types = [machine.name for machine in wanted.machines]
    if one["InstanceType"] not in types:
        yield f"{name} is for {one['InstanceType']}, but the pool uses {', '.join(types)}"
    zones = node_groups.zones(env, pool)
    if one["AvailabilityZone"] not in zones:
        yield f"{name} is in {one['AvailabilityZone']}, but the pool is in {', '.join(zones)}"
    if one.get("InstancePlatform", _LINUX) != _LINUX:
        yield f"{name} is for {one['InstancePlatform']}, but node images are {_LINUX}"
    block = one.get("ReservationType") == _BLOCK
    if not pool.by_karpenter and block != pool.on_aws.capacity_block:
        is_one, says = ("a", "no ") if block else ("not a", "")
        yield f"{name} is {is_one} capacity block, but the pool declares {says}capacity_block"


def _room(env: Environment, wanted: Purchase, found: list[Mapping[str, Any]], aws: Aws) -> Judged:
    ids = {one["CapacityReservationId"] for one in found}
    free = sum(one["AvailableInstanceCount"] for one in found)
    own = sum(
        ours(instance, env.name) and instance.get("CapacityReservationId") in ids
        for instance in instances(aws)
    )
    need, pool = wanted.nodes, wanted.pool
    fact = f"{free} free and {own} of this stack in {', '.join(sorted(ids))}; "
    fact += f"the pool needs {need} nodes at most"
    if free + own >= need:
        return Judged("PASS", fact)
    if len(pool.capacity) > 1 and free + own:
        others = " or ".join(kind for kind in pool.capacity if kind != "reserved")
        return Judged("PASS", f"{fact}, the rest as {others}")
    return Judged("FAIL", fact, "reserve more, or reduce the pool's nodes")

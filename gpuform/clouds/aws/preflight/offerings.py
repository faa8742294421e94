"""Whether EC2 offers a pool's machines in its zones and in its capacity types.

An offered type may still be sold out: only a request for a machine shows the capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.demand import pools
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

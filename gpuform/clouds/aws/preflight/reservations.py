"""Capacity reservations that pools name: they exist, they fit the pool, and have room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from gpuform.clients.aws.api import Refused
from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.demand import Purchase, purchases
from gpuform.clouds.aws.preflight.quotas import instances, ours
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment
from infra.plan import node_groups

_NO_SUCH = ("InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed")
_LINUX = "Linux/UNIX"
_BLOCK = "capacity-block"


def checks(env: Environment) -> Iterator[Check]:
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

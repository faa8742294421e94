"""vCPUs of each quota that are used by others: everything in the region that is not this stack's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.stack.preflight.aws import Aws
from gpuform.stack.preflight.quota_table import Market, Quota
from infra.model import labels
from infra.model.environment import Environment
from infra.model.machines import MACHINES

_MARKET: Mapping[str, Market] = {"": "on-demand", "scheduled": "on-demand", "spot": "spot"}
"""Market by EC2's InstanceLifecycle. Instances in a capacity block count against no vCPU quota (EC2 user
guide, Capacity Blocks, considerations)."""

_COUNTED = ("assessing", "scheduled", "pending", "active", "delayed")
"""States in which a capacity reservation counts against the quota, used or not (EC2 user guide, quotas)."""


def instances(aws: Aws) -> list[Mapping[str, Any]]:
    """Running instances; pending and stopped ones do not count (EC2 user guide, On-Demand quotas)."""
    running = [{"Name": "instance-state-name", "Values": ["running"]}]
    found = aws.ask("ec2", "describe_instances", Filters=running)["Reservations"]
    return [instance for batch in found for instance in batch["Instances"]]


def ours(instance: Mapping[str, Any], environment: str) -> bool:
    """Whether the stack launched the instance: `infra/plan/tags.py` sets this tag on every node."""
    return {"Key": labels.ENVIRONMENT, "Value": environment} in instance.get("Tags", [])


def by_others(aws: Aws, quota: Quota, env: Environment, own_types: frozenset[str]) -> int:
    """vCPUs of the quota that are not available to the stack's nodes.

    The stack's own instances are left out, since the most it may buy includes them, except those in a
    reservation that a pool declares. A reservation counts as a whole, so its unused part is added, unless it
    is open to ``own_types``, the types that the stack buys: then the stack's nodes will use it.
    """
    declared = {name for pool in env.pools for name in pool.on_aws.reservations}
    count: Counter[str] = Counter()
    for instance in instances(aws):
        market = _MARKET.get(instance.get("InstanceLifecycle", ""))
        if market == quota.market and quota.counts(instance["InstanceType"]):
            reserved = instance.get("CapacityReservationId") in declared
            count[instance["InstanceType"]] += reserved or not ours(instance, env.name)
    if quota.market == "on-demand":
        for kind, unused in _unused(aws, own_types):
            if quota.counts(kind):
                count[kind] += unused
    size = _vcpus(aws, [kind for kind, number in count.items() if number])
    return sum(number * size[kind] for kind, number in count.items() if number)


def reservations(aws: Aws) -> list[Mapping[str, Any]]:
    """All capacity reservations that the account sees in the region, including those of other accounts."""
    return list(aws.ask("ec2", "describe_capacity_reservations")["CapacityReservations"])


def _unused(aws: Aws, own_types: frozenset[str]) -> Iterator[tuple[str, int]]:
    account = aws.ask("sts", "get_caller_identity", region=aws.home)["Account"]
    for one in reservations(aws):
        open_to_ours = one.get("InstanceMatchCriteria") == "open" and one["InstanceType"] in own_types
        if one.get("OwnerId", account) != account or one.get("ReservationType") == "capacity-block":
            continue
        if one["State"] in _COUNTED and not open_to_ours:
            part = "AvailableInstanceCount" if one["State"] == "active" else "TotalInstanceCount"
            yield one["InstanceType"], one[part]


def _vcpus(aws: Aws, types: list[str]) -> dict[str, int]:
    """vCPUs of each type; AWS is queried only for types that are not in MACHINES."""
    found = {name: MACHINES[name].vcpu for name in types if name in MACHINES}
    other = sorted(set(types) - set(found))
    if other:
        said = aws.ask("ec2", "describe_instance_types", InstanceTypes=other)["InstanceTypes"]
        found |= {one["InstanceType"]: one["VCpuInfo"]["DefaultVCpus"] for one in said}
    return found

"""EC2's vCPU quotas, and the families of instance types that each of them counts.

Names and codes are those of AWS's page "Amazon EC2 instance type quotas" (EC2 instance types guide; each name
there links to its code), read on 2026-11-21. A family is listed if the quota's name covers it: by its letter
(G and VT, P, Standard: A, C, D, H, I, M, R, T, Z) or by its series (P2, P3, P4, P5). ``UNKNOWN`` has the
families of our machines that no quota name clearly covers.

The most that a stack may buy is each pool, in each of its capacity types.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from gpuform.clouds.aws.preflight.account import Aws, home_region
from gpuform.stack.preflight.check import Check, Result
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.gpu.machines import MACHINES, Machine
from infra.model.pool import allocatable
from infra.model.pool.elastic import SURGE, Capacity
from infra.model.pool.pool import Pool
from infra.plan import node_groups
from infra.plan.node_groups import cluster_of

Market = Literal["on-demand", "spot"]

_STANDARD = frozenset("acdhimrtz")
_G_AND_VT = frozenset(("g3", "g3s", "g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "g7", "g7e", "vt1"))
_P2_TO_P4 = frozenset(("p2", "p3", "p3dn", "p4d", "p4de"))
_P5 = frozenset(("p5",))
_P5_AND_LATER = frozenset(("p5", "p5e", "p5en", "p6-b200", "p6-b300"))


@dataclass(frozen=True)
class Quota:
    """One quota.

    ``families`` are the parts of instance types before the dot; ``letters`` stand for all families that begin
    with just this letter and a digit; ``label`` is all of them in AWS's words.
    """

    code: str
    name: str
    label: str
    market: Market
    families: Collection[str] = ()
    letters: Collection[str] = ()

    def counts(self, instance_type: str) -> bool:
        family = instance_type.partition(".")[0]
        letters = re.match(r"[a-z]+", family)
        return family in self.families or (letters is not None and letters[0] in self.letters)


_LETTERS = "Standard (A, C, D, H, I, M, R, T, Z)"
QUOTAS = (
    Quota("L-DB2E81BA", "Running On-Demand G and VT instances", "G and VT", "on-demand", _G_AND_VT),
    Quota("L-417A185B", "Running On-Demand P instances", "P", "on-demand", _P2_TO_P4 | _P5_AND_LATER),
    Quota("L-1216C47A", f"Running On-Demand {_LETTERS} instances", "Standard", "on-demand", (), _STANDARD),
    Quota("L-3819A6DF", "All G and VT Spot Instance Requests", "G and VT", "spot", _G_AND_VT),
    Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", "P4, P3 and P2", "spot", _P2_TO_P4),
    Quota("L-C4BD4855", "All P5 Spot Instance Requests", "P5", "spot", _P5),
    Quota("L-34B43A08", f"All {_LETTERS} Spot Instance Requests", "Standard", "spot", (), _STANDARD),
)

_BESIDE_P5 = "AWS has a quota for P5 but none for this family; it counts capacity blocks separately"
_GR = "AWS's quotas name G and VT, but not Gr"
_NO_P6 = "AWS has spot quotas for P2 to P5, but none for P6"

UNKNOWN_FAMILIES: Mapping[tuple[Market, str], str] = {
    ("on-demand", "gr6"): _GR,
    ("spot", "gr6"): _GR,
    ("spot", "p5e"): _BESIDE_P5,
    ("spot", "p5en"): _BESIDE_P5,
    ("spot", "p6-b200"): _NO_P6,
    ("spot", "p6-b300"): _NO_P6,
}
"""Why the quota of a family is not known, by market."""


def quota_of(market: Market, instance_type: str) -> Quota | None:
    """The quota that counts this type; None if not known."""
    return next((quota for quota in QUOTAS if quota.market == market and quota.counts(instance_type)), None)


MARKET_OF_CAPACITY: Mapping[Capacity, Market] = {"on_demand": "on-demand", "spot": "spot"}
"""Market of the quota that a capacity type needs. A reservation has counted since its creation, a capacity
block never counts (EC2 user guide), so launching into them needs no more quota."""
_MARKET_OF_LIFECYCLE: Mapping[str, Market] = {"": "on-demand", "scheduled": "on-demand", "spot": "spot"}
"""Market by EC2's InstanceLifecycle. Instances in a capacity block count against no vCPU quota (EC2 user
guide, Capacity Blocks, considerations)."""

_COUNTED_STATES = ("assessing", "scheduled", "pending", "active", "delayed")
"""States in which a capacity reservation counts against the quota, used or not (EC2 user guide, quotas)."""


def checks(env: Environment) -> Iterator[Check]:
    """One check for each quota that the stack needs, and one for each family without a known quota."""
    counted = [purchase for purchase in purchases(env) if purchase.capacity in MARKET_OF_CAPACITY]
    for quota in QUOTAS:
        of_quota = list(_counted_purchases(counted, quota))
        if of_quota:
            yield _quota_check(env, quota, of_quota)
    yield from _unknown_quotas(counted, cluster_of(env).region)


def _counted_purchases(purchases: Sequence[Purchase], quota: Quota) -> Iterator[Purchase]:
    for purchase in purchases:
        market = MARKET_OF_CAPACITY[purchase.capacity]
        machines = [machine for machine in purchase.machines if quota_of(market, machine.name) == quota]
        if machines:
            yield purchase.limited_to(machines)


def _quota_check(env: Environment, quota: Quota, purchases: Sequence[Purchase]) -> Check:
    pools = ", ".join(f"{purchase.pool.name} {purchase.vcpu}" for purchase in purchases)
    most = sum(purchase.vcpu for purchase in purchases)
    least = sum(purchase.vcpu for purchase in purchases if purchase.fixed)
    own_types = frozenset(machine.name for purchase in purchases for machine in purchase.machines)
    region = cluster_of(env).region

    def judge(aws: Aws) -> Result:
        limit = _limit(aws, quota)
        if limit is None:
            return Result("SKIP", f"not checked: Service Quotas has no {quota.code} in {region}")
        by_others = vcpus_of_others(aws, quota, env, own_types)
        fact = f"{most} vCPUs at most ({pools}) of {limit:g}; {by_others} taken by others and by reservations"
        if most + by_others <= limit:
            return Result("PASS", fact)
        if least + by_others > limit:
            fact += f"; the nodes that always run need {least}"
        options = f"--quota-code {quota.code} --desired-value {most + by_others} --region {region}"
        fix = f"aws service-quotas request-service-quota-increase --service-code ec2 {options}"
        return Result("FAIL", fact, fix)

    by_hand = "aws service-quotas get-service-quota --service-code ec2"
    return Check(
        f"quota of {quota.label}, {quota.market}",
        f"{by_hand} --quota-code {quota.code} --region {region}",
        judge,
    )


def _limit(aws: Aws, quota: Quota) -> float | None:
    """The quota applied to the account, else AWS's default; None if the quota does not exist."""
    parameters = {"ServiceCode": "ec2", "QuotaCode": quota.code}
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        if answer := aws.find(("NoSuchResourceException",), "service-quotas", operation, **parameters):
            return float(answer["Quota"]["Value"])
    return None


def _unknown_quotas(purchases: Sequence[Purchase], region: str) -> Iterator[Check]:
    """Families without a known quota: reported, never guessed."""
    families: dict[tuple[Market, str], dict[str, None]] = {}
    for purchase in purchases:
        for machine in purchase.machines:
            key = MARKET_OF_CAPACITY[purchase.capacity], machine.name.partition(".")[0]
            if key in UNKNOWN_FAMILIES:
                families.setdefault(key, {})[purchase.pool.name] = None
    for (market, family), pools in families.items():
        fact = f"(pool {', '.join(pools)}): {UNKNOWN_FAMILIES[market, family]}"
        query = "--query 'Quotas[?contains(QuotaName, `nstance`)].[QuotaCode,QuotaName,Value]' --output text"
        by_hand = f"aws service-quotas list-service-quotas --service-code ec2 --region {region} {query}"
        yield Check(f"quota of {family}, {market}", by_hand, partial(_not_checked, fact))


def _not_checked(fact: str, aws: Aws) -> Result:
    return Result("SKIP", f"not checked {fact}")


def running_instances(aws: Aws) -> list[Mapping[str, Any]]:
    """Running instances; pending and stopped ones do not count (EC2 user guide, On-Demand quotas)."""
    state_filter = [{"Name": "instance-state-name", "Values": ["running"]}]
    reservations = aws.query("ec2", "describe_instances", Filters=state_filter)["Reservations"]
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def is_own_instance(instance: Mapping[str, Any], environment: str) -> bool:
    """Whether the stack launched the instance: `infra/plan/node_groups.py` sets this tag on every node."""
    return {"Key": labels.ENVIRONMENT, "Value": environment} in instance.get("Tags", [])


def vcpus_of_others(aws: Aws, quota: Quota, env: Environment, own_types: frozenset[str]) -> int:
    """vCPUs of the quota that are not available to the stack's nodes.

    The stack's own instances are left out, since the most it may buy includes them, except those in a
    reservation that a pool declares. A reservation counts as a whole, so its unused part is added, unless it
    is open to ``own_types``, the types that the stack buys: then the stack's nodes will use it.
    """
    declared = {name for pool in env.pools for name in pool.aws_settings.reservations}
    count: Counter[str] = Counter()
    for instance in running_instances(aws):
        market = _MARKET_OF_LIFECYCLE.get(instance.get("InstanceLifecycle", ""))
        if market == quota.market and quota.counts(instance["InstanceType"]):
            reserved = instance.get("CapacityReservationId") in declared
            count[instance["InstanceType"]] += reserved or not is_own_instance(instance, env.name)
    if quota.market == "on-demand":
        for type, unused in _unused_reservations(aws, own_types):
            if quota.counts(type):
                count[type] += unused
    vcpus = _vcpus(aws, [type for type, number in count.items() if number])
    return sum(number * vcpus[type] for type, number in count.items() if number)


def reservations(aws: Aws) -> list[Mapping[str, Any]]:
    """All capacity reservations that the account sees in the region, including those of other accounts."""
    return list(aws.query("ec2", "describe_capacity_reservations")["CapacityReservations"])


def _unused_reservations(aws: Aws, own_types: frozenset[str]) -> Iterator[tuple[str, int]]:
    account = aws.query("sts", "get_caller_identity", region=home_region(aws.region))["Account"]
    for reservation in reservations(aws):
        type, state, owner = (reservation.get(key) for key in ("InstanceType", "State", "OwnerId"))
        is_open_to_stack = reservation.get("InstanceMatchCriteria") == "open" and type in own_types
        if owner not in (None, account) or reservation.get("ReservationType") == "capacity-block":
            continue
        if state in _COUNTED_STATES and not is_open_to_stack:
            count = "AvailableInstanceCount" if state == "active" else "TotalInstanceCount"
            yield str(type), reservation[count]


def _vcpus(aws: Aws, types: list[str]) -> dict[str, int]:
    """vCPUs of each type; AWS is queried only for types that are not in MACHINES."""
    vcpus = {name: MACHINES[name].vcpu for name in types if name in MACHINES}
    unknown = sorted(set(types) - set(vcpus))
    if unknown:
        described = aws.query("ec2", "describe_instance_types", InstanceTypes=unknown)["InstanceTypes"]
        vcpus |= {type["InstanceType"]: type["VCpuInfo"]["DefaultVCpus"] for type in described}
    return vcpus


@dataclass(frozen=True)
class Purchase:
    """Nodes of one pool, bought as one capacity type, of any of these machines."""

    environment: Environment
    pool: Pool
    capacity: Capacity
    machines: tuple[Machine, ...]

    @property
    def fixed(self) -> bool:
        """Whether the number of nodes is fixed, so that they always run."""
        return self.pool.nodes is not None

    @property
    def nodes(self) -> int:
        """The most nodes, if all were of the machine type that allows the most."""
        return max(self._count(machine) for machine in self.machines)

    @property
    def vcpu(self) -> int:
        """Upper bound of the vCPUs, for any mix of the machines within the limits.

        Does not count the extra nodes of a managed node group while it is updated.
        """
        if self.fixed or len(self.machines) == 1:
            return max(self._count(machine) * machine.vcpu for machine in self.machines)
        assert self.pool.elastic is not None
        machines = [machine for machine in self.machines if self._count(machine)]
        sizes = [(machine.vcpu, allocatable.limit_amounts(self.pool, machine)) for machine in machines]
        return min(
            max((limit * vcpu // sizes_of[key] for vcpu, sizes_of in sizes), default=0)
            for key, limit in self.pool.elastic.max.items()
        )

    def _count(self, machine: Machine) -> int:
        if self.pool.nodes is None:
            return allocatable.max_nodes(self.pool, machine)
        return self.pool.max_nodes + (SURGE if self.pool.by_claim else 0)

    def limited_to(self, machines: Sequence[Machine]) -> Purchase:
        """The same purchase, limited to these machines."""
        return Purchase(self.environment, self.pool, self.capacity, tuple(machines))


def pools(env: Environment) -> tuple[Pool, ...]:
    return (node_groups.system_pool(env), *env.pools)


def purchases(env: Environment) -> Iterator[Purchase]:
    for pool in pools(env):
        for capacity in pool.capacity:
            yield Purchase(env, pool, capacity, pool.machines)

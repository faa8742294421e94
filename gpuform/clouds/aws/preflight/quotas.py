"""vCPU quotas: the most that the stack may buy plus what others run, against the account's limit.

The most that a stack may buy is each pool, in each of its capacity types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuform.clouds.aws.preflight.account_api import Aws
from gpuform.clouds.aws.preflight.quota_table import QUOTAS, UNKNOWN, Market, Quota, quota_of
from gpuform.stack.preflight.check import Check, Judged
from infra.model import labels, offer
from infra.model.elastic import SURGE, Capacity
from infra.model.environment import Environment
from infra.model.machines import MACHINES, Machine
from infra.model.pool import Pool
from infra.plan import node_groups
from infra.plan.node_groups import cluster_of

MARKETS: Mapping[Capacity, Market] = {"on_demand": "on-demand", "spot": "spot"}
"""Market of the quota that a capacity type needs. A reservation has counted since its creation, a capacity
block never counts (EC2 user guide), so launching into them needs no more quota."""
_MARKET: Mapping[str, Market] = {"": "on-demand", "scheduled": "on-demand", "spot": "spot"}
"""Market by EC2's InstanceLifecycle. Instances in a capacity block count against no vCPU quota (EC2 user
guide, Capacity Blocks, considerations)."""

_COUNTED = ("assessing", "scheduled", "pending", "active", "delayed")
"""States in which a capacity reservation counts against the quota, used or not (EC2 user guide, quotas)."""


def checks(env: Environment) -> Iterator[Check]:
    """One check for each quota that the stack needs, and one for each family without a known quota."""
    bought = [one for one in purchases(env) if one.capacity in MARKETS]
    for quota in QUOTAS:
        wanted = list(_counted(bought, quota))
        if wanted:
            yield _check(env, quota, wanted)
    yield from _unknown(bought, cluster_of(env).region)


def _counted(bought: Sequence[Purchase], quota: Quota) -> Iterator[Purchase]:
    for one in bought:
        market = MARKETS[one.capacity]
        machines = [machine for machine in one.machines if quota_of(market, machine.name) == quota]
        if machines:
            yield one.of(machines)


def _check(env: Environment, quota: Quota, wanted: Sequence[Purchase]) -> Check:
    pools = ", ".join(f"{one.pool.name} {one.vcpu}" for one in wanted)
    need, always = (sum(one.vcpu for one in wanted if one.fixed >= fixed) for fixed in (False, True))
    own = frozenset(machine.name for one in wanted for machine in one.machines)
    region = cluster_of(env).region

    def judge(aws: Aws) -> Judged:
        limit = _limit(aws, quota)
        if limit is None:
            return Judged("SKIP", f"not checked: Service Quotas has no {quota.code} in {region}")
        others = by_others(aws, quota, env, own)
        fact = f"{need} vCPUs at most ({pools}) of {limit:g}; {others} taken by others and by reservations"
        if need + others <= limit:
            return Judged("PASS", fact)
        if always + others > limit:
            fact += f"; the nodes that always run need {always}"
        asked = f"--quota-code {quota.code} --desired-value {need + others} --region {region}"
        fix = f"aws service-quotas request-service-quota-increase --service-code ec2 {asked}"
        return Judged("FAIL", fact, fix)

    by_hand = "aws service-quotas get-service-quota --service-code ec2"
    return Check(
        f"quota of {quota.what}, {quota.market}",
        f"{by_hand} --quota-code {quota.code} --region {region}",
        judge,
    )


def _limit(aws: Aws, quota: Quota) -> float | None:
    """The quota applied to the account, else AWS's default; None if the quota does not exist."""
    named = {"ServiceCode": "ec2", "QuotaCode": quota.code}
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        if found := aws.find(("NoSuchResourceException",), "service-quotas", operation, **named):
            return float(found["Quota"]["Value"])
    return None


def _unknown(bought: Sequence[Purchase], region: str) -> Iterator[Check]:
    """Families without a known quota: reported, never guessed."""
    families: dict[tuple[Market, str], dict[str, None]] = {}
    for one in bought:
        for machine in one.machines:
            key = MARKETS[one.capacity], machine.name.partition(".")[0]
            if key in UNKNOWN:
                families.setdefault(key, {})[one.pool.name] = None
    for (market, family), pools in families.items():
        fact = f"not checked (pool {', '.join(pools)}): {UNKNOWN[market, family]}"
        named = "--query 'Quotas[?contains(QuotaName, `nstance`)].[QuotaCode,QuotaName,Value]' --output text"
        by_hand = f"aws service-quotas list-service-quotas --service-code ec2 --region {region} {named}"
        yield Check(f"quota of {family}, {market}", by_hand, partial(_said, Judged("SKIP", fact)))


def _said(judged: Judged, aws: Aws) -> Judged:
    return judged


def instances(aws: Aws) -> list[Mapping[str, Any]]:
    """Running instances; pending and stopped ones do not count (EC2 user guide, On-Demand quotas)."""
    running = [{"Name": "instance-state-name", "Values": ["running"]}]
    found = aws.ask("ec2", "describe_instances", Filters=running)["Reservations"]
    return [instance for batch in found for instance in batch["Instances"]]


def ours(instance: Mapping[str, Any], environment: str) -> bool:
    """Whether the stack launched the instance: `infra/plan/node_groups.py` sets this tag on every node."""
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
        able = [machine for machine in self.machines if self._count(machine)]
        strategy = self.environment.strategy(self.pool)
        sizes = [(machine.vcpu, offer.limited(strategy, self.pool, machine)) for machine in able]
        return min(
            max((limit * vcpu // each[key] for vcpu, each in sizes), default=0)
            for key, limit in self.pool.elastic.max.items()
        )

    def _count(self, machine: Machine) -> int:
        if self.pool.nodes is None:
            return offer.most_nodes(self.environment.strategy(self.pool), self.pool, machine)
        return self.pool.nodes + (SURGE if self.pool.by_claim else 0)

    def of(self, machines: Sequence[Machine]) -> Purchase:
        """The same purchase, limited to these machines."""
        return Purchase(self.environment, self.pool, self.capacity, tuple(machines))


def pools(env: Environment) -> tuple[Pool, ...]:
    return (node_groups.system_pool(env), *env.pools)


def purchases(env: Environment) -> Iterator[Purchase]:
    for pool in pools(env):
        for capacity in pool.capacity:
            yield Purchase(env, pool, capacity, pool.machines)

"""vCPU quotas: the most that the stack may buy plus what others run, against the account's limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from gpuform.clouds.aws.api import Refused
from gpuform.stack.preflight.aws import Aws
from gpuform.stack.preflight.check import Check, Judged
from gpuform.stack.preflight.demand import Purchase, purchases
from gpuform.stack.preflight.quota_table import QUOTAS, UNKNOWN, Market, Quota, quota_of
from gpuform.stack.preflight.usage import by_others
from infra.model.elastic import Capacity
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of

MARKETS: Mapping[Capacity, Market] = {"on_demand": "on-demand", "spot": "spot"}
"""Market of the quota that a capacity type needs. A reservation has counted since its creation, a capacity
block never counts (EC2 user guide), so launching into them needs no more quota."""

_NO_SUCH = "NoSuchResourceException"


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
    asked = {"ServiceCode": "ec2", "QuotaCode": quota.code}
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        try:
            return float(aws.ask("service-quotas", operation, **asked)["Quota"]["Value"])
        except Refused as refused:
            if refused.code != _NO_SUCH:
                raise
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

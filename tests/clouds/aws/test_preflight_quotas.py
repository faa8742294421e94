"""Quotas: which quota counts which machine, a stack's maximum purchases, and existing usage."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gpuform.clouds.aws.preflight.quotas import QUOTAS, UNKNOWN_FAMILIES, Market, purchases, quota_of
from infra.config import parse
from infra.model.gpu.machines import MACHINES, UNSUPPORTED
from infra.model.pool.allocatable import limit_amounts
from tests.clouds.aws.fake_account import RESERVATION, Account, instance, reservation
from tests.components.aws_stacks import changed, small, stack

pytestmark = pytest.mark.unit

EC2 = sorted(name for name, machine in MACHINES.items() if machine.seller == "ec2")
P, P_SPOT, P5_SPOT = "quota of P, on-demand", "quota of P4, P3 and P2, spot", "quota of P5, spot"


@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_each_machine_has_a_quota_or_a_reason_why_none_is_known(market: Market) -> None:
    without = {name.partition(".")[0] for name in EC2 if quota_of(market, name) is None}
    assert without == {family for where, family in UNKNOWN_FAMILIES if where == market}


@pytest.mark.parametrize(
    ("market", "code", "kinds"),
    [
        ("on-demand", "L-DB2E81BA", "g4dn.xlarge g7e.48xlarge"),
        ("on-demand", "L-417A185B", "p3dn.24xlarge p6-b200.48xlarge"),
        ("on-demand", "L-1216C47A", "m6i.xlarge c7gn.large"),
        ("spot", "L-3819A6DF", "g6e.xlarge"),
        ("spot", "L-7212CCBC", "p4de.24xlarge"),
        ("spot", "L-C4BD4855", "p5.48xlarge"),
        ("spot", "L-34B43A08", "t3.micro"),
        ("spot", None, "p5en.48xlarge"),
        ("on-demand", None, "gr6.4xlarge inf2.xlarge dl1.24xlarge hpc7a.12xlarge x2idn.16xlarge mac2.metal"),
    ],
)
def test_a_machine_counts_against_the_quota_of_its_family(
    market: Market, code: str | None, kinds: str
) -> None:
    """Codes are typed here independently."""
    for kind in kinds.split():
        found = quota_of(market, kind)
        assert (found.code if found else None) == code, kind


def test_no_machine_counts_twice() -> None:
    assert len({quota.code for quota in QUOTAS}) == len(QUOTAS) == 7
    for kind in (*EC2, *UNSUPPORTED):
        for market in ("on-demand", "spot"):
            assert sum(quota.market == market and quota.counts(kind) for quota in QUOTAS) <= 1


def test_the_command_for_a_family_without_a_quota_lists_those_of_both_markets() -> None:
    pool = {"name": "odd", "machine": "gr6.4xlarge", "elastic": {"max": {"cpu": 160}}}
    wanted = Account(parse(small(pool)), reservations=[]).findings()["quota of gr6, on-demand"]
    word = wanted.check.partition("QuotaName, `")[2].partition("`")[0]
    names = [quota.name for quota in QUOTAS]
    assert word
    assert [name for name in names if word in name] == names


def prod_account(**other: Any) -> Account:
    return Account(parse(stack("aws-prod")), **other)


def dedicated_account(**pool: Any) -> Account:
    one = {"name": "a100", "machine": "p4d.24xlarge", "elastic": {"max": {"cpu": 192}}, **pool}
    return Account(parse(small(one)), reservations=[])


def test_a_quota_that_just_suffices_passes_and_one_vcpu_less_fails() -> None:
    found = prod_account(quotas={"L-DB2E81BA": 640, "L-3819A6DF": 639}).findings()
    assert found["quota of G and VT, on-demand"].verdict == "PASS"
    spot = found["quota of G and VT, spot"]
    assert spot.verdict == "FAIL"
    assert spot.fact == "640 vCPUs at most (l40s-inference 640) of 639; 0 taken by others and by reservations"
    assert spot.fix == (
        "aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-3819A6DF --desired-value 640 --region us-west-2"
    )


def test_pools_of_one_quota_are_added_and_reserved_ones_need_none() -> None:
    found = prod_account().findings()
    assert found["quota of Standard, on-demand"].fact.startswith("208 vCPUs at most (system 48, cpu 160)")
    assert found[P].fact.startswith("192 vCPUs at most (a100-mig 192) of ")  # without h100-training's
    assert P5_SPOT not in found


def test_fixed_nodes_that_do_not_fit_are_told_from_a_limit_that_does_not() -> None:
    elastic = dedicated_account()
    elastic.quotas = {"L-417A185B": 96}
    assert elastic.findings()[P].fact.endswith("of 96; 0 taken by others and by reservations")
    fixed = dedicated_account(nodes=2, elastic=None)
    fixed.quotas = {"L-417A185B": 96}
    assert fixed.findings()[P].fact.endswith("; the nodes that always run need 192")


def test_the_system_nodes_count_like_any_others() -> None:
    account = Account(parse(stack("aws-dev")), quotas={"L-1216C47A": 7})
    found = account.findings()["quota of Standard, on-demand"]
    assert (found.verdict, found.fact[:34]) == ("FAIL", "8 vCPUs at most (system 8) of 7; 0")


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ([], 0),
        ([instance("p4d.24xlarge"), instance("p4d.24xlarge", "other")], 192),
        ([instance("p4d.24xlarge", "labs")], 0),
        ([instance("p4d.24xlarge", "labs", CapacityReservationId="cr-0")], 0),  # it is in an open one
        ([instance("p4d.24xlarge", InstanceLifecycle="spot")], 0),
        ([instance("p4d.24xlarge", InstanceLifecycle="capacity-block")], 0),
        ([instance("g4dn.xlarge"), instance("gr6.4xlarge"), instance("m5.xlarge")], 0),
        ([instance("p5en.48xlarge")], 192),
        ([instance("p3.2xlarge")], 2),  # not one of our machines: AWS says how many vCPUs it has
    ],
)
def test_what_others_run_is_taken(there: list[dict[str, Any]], taken: int) -> None:
    account = dedicated_account()
    account.instances = there
    assert account.findings()[P].fact.endswith(f"; {taken} taken by others and by reservations")


def test_nodes_in_a_reservation_of_the_stack_are_not_in_what_it_may_buy() -> None:
    account = dedicated_account(capacity=["reserved", "on_demand"], aws={"reservations": [RESERVATION]})
    account.reservations = [reservation(InstanceType="p4d.24xlarge", AvailableInstanceCount=1)]
    account.instances = [instance("p4d.24xlarge", "labs", CapacityReservationId=RESERVATION)] * 3
    account.instances.append(instance("p4d.24xlarge", "labs"))
    assert account.findings()[P].fact.startswith("192 vCPUs at most (a100 192) of 10000; 384 taken")


def test_spot_is_counted_apart() -> None:
    account = dedicated_account(capacity=["on_demand", "spot"])
    account.instances = [instance("p4d.24xlarge", InstanceLifecycle="spot"), instance("p5.48xlarge")]
    found = account.findings()
    assert "; 192 taken" in found[P].fact
    assert "; 96 taken" in found[P_SPOT].fact


@pytest.mark.parametrize(
    ("kept", "taken"),
    [
        ({}, 768),
        ({"AvailableInstanceCount": 1}, 192),  # the three in use are instances, if they are this account's
        ({"State": "scheduled", "AvailableInstanceCount": 0}, 768),
        ({"State": "expired"}, 0),
        ({"State": "cancelled"}, 0),
        ({"ReservationType": "capacity-block"}, 0),
        ({"OwnerId": "999988887777"}, 0),
        ({"InstanceMatchCriteria": "open"}, 768),
        ({"InstanceMatchCriteria": "open", "InstanceType": "p4d.24xlarge"}, 0),  # the pool's nodes are in it
        ({"InstanceMatchCriteria": "targeted", "InstanceType": "p4d.24xlarge"}, 384),
        ({"InstanceType": "m5.xlarge"}, 0),
    ],
)
def test_an_unused_reservation_is_taken(kept: dict[str, Any], taken: int) -> None:
    account = dedicated_account()
    account.reservations = [reservation(**kept)]
    assert account.findings()[P].fact.endswith(f"; {taken} taken by others and by reservations")


def test_the_default_counts_where_the_account_has_no_value_of_its_own() -> None:
    account = dedicated_account()
    account.quota, account.default_quota = None, 8
    assert account.findings()[P].fact.startswith("192 vCPUs at most (a100 192) of 8; ")
    account.default_quota = None
    found = account.findings()[P]
    fact = "not checked: Service Quotas has no L-417A185B in us-west-2"
    assert (found.verdict, found.fact) == ("SKIP", fact)


def test_a_family_without_a_known_quota_is_said_and_not_guessed() -> None:
    account = dedicated_account(machine="p5en.48xlarge", capacity=["on_demand", "spot"])
    found = account.findings()
    assert found[P].verdict == "PASS"
    unknown = found["quota of p5en, spot"]
    assert unknown.verdict == "SKIP"
    assert unknown.fact.startswith("not checked (pool a100): AWS has a quota for P5 but none for this family")
    assert "list-service-quotas" in unknown.check
    assert P5_SPOT not in found


@pytest.mark.parametrize(
    "limits",
    [{"cpu": 100}, {"nvidia.com/gpu": 3}, {"cpu": 100, "nvidia.com/gpu": 3}, {"memory_gib": 200, "cpu": 90}],
)
def test_no_mix_of_machines_within_the_limits_has_more_vcpus(limits: dict[str, int]) -> None:
    """Brute force over every mix; the bound exceeds the best mix by at most the largest machine."""
    pool = {"name": "l4", "gpu": {"models": ["L4"], "count": 1}, "elastic": {"max": limits}}
    env = parse(small(pool))
    (bought,) = [one for one in purchases(env) if one.pool.name == "l4"]
    sizes = [(machine.vcpu, limit_amounts(bought.pool, machine)) for machine in bought.machines]
    ranges = [range(min(limits[key] // each[key] for key in limits) + 1) for _, each in sizes]
    best = max(
        sum(n * vcpu for n, (vcpu, _) in zip(mix, sizes, strict=True))
        for mix in itertools.product(*ranges)
        if all(
            sum(n * each[key] for n, (_, each) in zip(mix, sizes, strict=True)) <= limits[key]
            for key in limits
        )
    )
    assert best <= bought.vcpu <= best + max(vcpu for vcpu, _ in sizes)


def test_a_pool_with_claimed_gpus_has_one_node_more_for_a_while() -> None:
    claimed = changed(
        small({"name": "dra", "machine": "g5.xlarge", "nodes": 2, "sharing": {"kind": "dra"}}), version="1.34"
    )
    (bought,) = [one for one in purchases(parse(claimed)) if one.pool.name == "dra"]
    assert (bought.nodes, bought.vcpu, bought.fixed) == (3, 12, True)

"""Each subject of the preflight except network and endpoint: what the account lacks, and the report."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuform.clouds.aws.preflight.account import is_same_principal
from gpuform.clouds.aws.preflight.quotas import QUOTAS, UNKNOWN_FAMILIES, Market, purchases, quota_of
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from infra.model.gpu.machines import MACHINES, UNSUPPORTED
from infra.model.pool.allocatable import limit_amounts
from tests.build.aws_stacks import changed, small, stack
from tests.clouds.findings import expect
from tests.fakes.aws import ACCOUNT, RESERVATION, Account, instance, reservation

pytestmark = pytest.mark.unit

Json = dict[str, Any]
AWS = {"reservations": [RESERVATION]}
H100 = {
    "name": "h100",
    "machine": "p5.48xlarge",
    "zones": ["us-west-2b"],
    "capacity": ["reserved"],
    "aws": AWS,
}
ELASTIC = {**H100, "elastic": {"max": {"nvidia.com/gpu": 32}}}
EITHER = {**ELASTIC, "capacity": ["reserved", "on_demand"]}
RESERVED = {**H100, "nodes": 4}
BLOCK = {**RESERVED, "aws": {**AWS, "capacity_block": True}}
SPOT = {"name": "l4", "machine": "g6.xlarge", "elastic": {"max": {"cpu": 8}}, "capacity": ["spot"]}
GROUP = {"name": "l4", "machine": "g6.xlarge", "nodes": 2}
A100 = {"name": "a100", "machine": "p4d.24xlarge", "elastic": {"max": {"cpu": 192}}}
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/gpu-oncall"  # one of aws-prod's
AS_ADMIN = f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-oncall/run"
NOWHERE = {("p4d.24xlarge", f"us-west-2{zone}") for zone in "abc"}
LACKING = {("m6i.4xlarge", "us-west-2b"), ("g6e.xlarge", "us-west-2a")}
OTHER_ADD_ON, NO_ADD_ON = {"coredns": "v9.9.9-eksbuild.1"}, {"coredns": ""}


def findings(pool: Json, **has: Any) -> dict[str, Finding]:
    return Account(parse(small(pool)), **has).findings()


def findings_of_prod(**has: Any) -> dict[str, Finding]:
    return Account(parse(stack("aws-prod")), **has).findings()


TWO_ZONES = {"us-west-2a": "available", "us-west-2b": "available"}
KUBERNETES, ACCESS, ADD_ON = "Kubernetes 1.36", "access to the cluster", "add-on coredns"
NEWER = "write a newer one as cluster.version"


@pytest.mark.parametrize(
    ("has", "subject", "verdict", "fact", "fix"),
    [
        ({"zones": TWO_ZONES}, "zones", "FAIL", "the account has no us-west-2c", ""),
        ({"zones": {**TWO_ZONES, "us-west-2c": "impaired"}}, "zones", "FAIL", "us-west-2c is impaired", ""),
        ({"zone_ids": {"us-west-2b": "usw1-az2"}}, "zones", "FAIL",  # its letter differs between accounts
         "us-west-2b is usw1-az2 in this account, where EKS creates no control plane", ""),
        ({"support": "EXTENDED_SUPPORT"}, KUBERNETES, "FAIL",
         "in extended support, but the cluster has standard support only", "cluster.support: extended"),
        ({"support": "UNSUPPORTED"}, KUBERNETES, "FAIL", "EKS reports it as UNSUPPORTED", NEWER),
        ({"support": None}, KUBERNETES, "FAIL", "EKS no longer offers it", NEWER),
        ({"add_ons": OTHER_ADD_ON}, "add-on vpc-cni", "PASS", "", ""),
        ({}, ACCESS, "PASS", "no cluster yet; its creator gets access", ""),
        ({"caller": AS_ADMIN}, ACCESS, "FAIL",
         f"the cluster's creator gets an access entry, and EKS refuses a second one for {ADMIN}", ""),
        ({"caller": AS_ADMIN, "entries": [ADMIN]}, ACCESS, "PASS", "exists, and has an access", ""),
        ({"entries": [ADMIN]}, ACCESS, "FAIL",
         "cluster aws-prod exists, and has no access entry of arn:aws:sts", ""),
        ({"caller": f"arn:aws:iam::{ACCOUNT}:root"}, ACCESS, "FAIL", "root user, which cannot have", ""),
        ({"not_offered": NOWHERE}, "machines of pool a100-mig", "FAIL", "none of us-west-2a has p4d.24xlarge",
         "choose another region"),
        ({"not_offered": NOWHERE}, "capacity of pool a100-mig", "SKIP", "", ""),
        ({"not_offered": {("p4d.24xlarge", "us-west-2a")}}, "machines of pool a100-mig", "FAIL", "",
         "zones of the region that do: us-west-2b, us-west-2c"),
        ({"not_offered": LACKING}, "machines of pool cpu", "PASS",
         "m6i.4xlarge in us-west-2a, us-west-2c; us-west-2b lacks all of them", ""),
        ({"not_offered": LACKING}, "machines of pool l40s-inference", "PASS", "; us-west-2a lacks g6e.xlarge",
         ""),
    ],
)  # fmt: skip
def test_account_lacks_what_aws_prod_needs(
    has: Json, subject: str, verdict: str, fact: str, fix: str
) -> None:
    expect(findings_of_prod(**has)[subject], verdict, fact, fix)


@pytest.mark.parametrize(
    ("add_ons", "fact", "fix"),
    [
        (OTHER_ADD_ON, "EKS has no v1.14.2-eksbuild.4 for Kubernetes 1.36",
         "write v9.9.9-eksbuild.1 as cluster.add_ons.coredns"),
        (NO_ADD_ON, "EKS has no version of it for Kubernetes 1.36", "write another cluster.version"),
    ],
)  # fmt: skip
def test_missing_add_on_version_names_another(add_ons: dict[str, str], fact: str, fix: str) -> None:
    expect(findings_of_prod(add_ons=add_ons)[ADD_ON], "FAIL", fact, fix)


def test_a_version_in_extended_support_is_enough_where_that_is_declared() -> None:
    env = parse(changed(stack("aws-prod"), support="extended"))
    expect(Account(env, support="EXTENDED_SUPPORT").findings()[KUBERNETES], "PASS", "in extended support")


@pytest.mark.parametrize(
    ("newest", "fix"),
    [("1.36.2-20260818", "al2023@v20260818, the newest"), ("", "another date"), ("odd", "another date")],
)
def test_missing_images_name_the_newest(newest: str, fix: str) -> None:
    found = findings_of_prod(no_image=True, newest=newest)
    images = [one for name, one in found.items() if "image" in name]
    assert len(images) == 4
    for one in images:
        expect(one, "FAIL", "AWS has no such image in this region", f"pin {fix}, in cluster.images")


EKS_IMAGE = "amazon-eks-node-al2023-x86_64-standard-1.34"


@pytest.mark.parametrize(
    ("images", "verdict", "fact"),
    [
        ([{"Name": "ours", "State": "available"}], "PASS", "ours"),
        ([{"Name": "ours", "State": "deregistered"}], "FAIL", "deregistered"),
        ([], "FAIL", "does not exist, or is not shared with the account"),
        ([{"Name": f"{EKS_IMAGE}-v20260930"}], "FAIL", f"{EKS_IMAGE}-v20260930 ends in kernel panics"),
        ([{"Name": f"{EKS_IMAGE}-v20261012"}], "PASS", f"{EKS_IMAGE}-v20261012"),
        ([{"Name": "ours-v20260930"}], "PASS", "ours-v20260930"),
    ],
)
def test_image_id_must_be_available_and_no_bad_release(images: list[Json], verdict: str, fact: str) -> None:
    env = parse(changed(small({**GROUP, "machine": "m6i.xlarge"}), images={"al2023": "ami-01234567"}))
    expect(Account(env, images=images).findings()["image ami-01234567"], verdict, fact)


@pytest.mark.parametrize(
    ("pool", "verdict"),
    [(SPOT, "FAIL"), ({**GROUP, "capacity": ["spot"]}, "SKIP"), (GROUP, None)],
    ids=["karpenter", "node group", "no spot"],
)
def test_spot_role_is_required_by_karpenter_pools(pool: Json, verdict: str | None) -> None:
    found = findings(pool, roles=()).get("role AWSServiceRoleForEC2Spot")
    assert (found.verdict if found else None) == verdict
    command = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    assert found is None or found.fix == command


def test_missing_roles_that_aws_creates_are_no_failure() -> None:
    found = findings(SPOT, roles=("AWSServiceRoleForEC2Spot",))
    roles = {name: one.verdict for name, one in found.items() if name.startswith("role ")}
    assert sorted(roles.values()) == ["PASS", "SKIP", "SKIP", "SKIP"]
    fixes = {one.fix.rpartition(" ")[2] for one in found.values() if "create-service-linked-role" in one.fix}
    assert fixes == {"eks.amazonaws.com", "eks-nodegroup.amazonaws.com", "autoscaling.amazonaws.com"}


@pytest.mark.parametrize(
    ("pool", "classes", "fact"),
    [
        (SPOT, ["on-demand"], "g6.xlarge: not sold as spot here, but as on-demand"),
        ({**SPOT, "capacity": ["on_demand", "spot"]}, ["spot"],
         "g6.xlarge: not sold as on-demand here, but as spot"),
        (RESERVED, [], "p5.48xlarge: not sold as on-demand or capacity-block here, but as nothing"),
        (BLOCK, ["on-demand"], "p5.48xlarge: not sold as capacity-block here, but as on-demand"),
    ],
)  # fmt: skip
def test_capacity_type_must_be_sold(pool: Json, classes: list[str], fact: str) -> None:
    found = findings(pool, usage_classes={pool["machine"]: classes})
    expect(found[f"capacity of pool {pool['name']}"], "FAIL", fact)


@pytest.mark.parametrize(
    ("caller", "principal", "alike"),
    [
        ("arn:aws:sts::1:assumed-role/deploy/run-7", "arn:aws:iam::1:role/ci/deploy", True),
        ("arn:aws:sts::1:assumed-role/deploy/run-7", "arn:aws:iam::2:role/deploy", False),
        ("arn:aws:sts::1:assumed-role/deploy/run-7", "arn:aws:iam::1:user/deploy", False),
        ("arn:aws:iam::1:user/people/ada", "arn:aws:iam::1:user/people/ada", True),
        ("arn:aws:iam::1:root", "arn:aws:iam::1:user/people/ada", False),
    ],
)
def test_session_is_the_same_principal_as_its_role(caller: str, principal: str, alike: bool) -> None:
    assert is_same_principal(caller, principal) is alike


SCHEDULED = {"State": "scheduled", "StartDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC)}
OWN = instance("p5.48xlarge", "labs", CapacityReservationId=RESERVATION)
OTHERS = instance("p5.48xlarge", CapacityReservationId=RESERVATION)
TWO_FREE = {"AvailableInstanceCount": 2}


@pytest.mark.parametrize(
    ("pools", "kept", "running", "verdict", "fact"),
    [
        ((ELASTIC, RESERVED), {"State": "expired"}, [], "FAIL", f"{RESERVATION} is expired"),
        ((ELASTIC, RESERVED), SCHEDULED, [], "FAIL",
         f"{RESERVATION} is scheduled, begins 2026-12-01 11:30 UTC"),
        ((ELASTIC, RESERVED), {"InstanceType": "p4d.24xlarge"}, [], "FAIL",
         f"{RESERVATION} is for p4d.24xlarge, but the pool uses p5.48xlarge"),
        ((ELASTIC, RESERVED), {"AvailabilityZone": "us-west-2a"}, [], "FAIL",
         f"{RESERVATION} is in us-west-2a, but the pool is in us-west-2b"),
        ((ELASTIC, RESERVED), {"InstancePlatform": "Windows"}, [], "FAIL",
         f"{RESERVATION} is for Windows, but node images are Linux/UNIX"),
        ((ELASTIC, RESERVED), {"State": "cancelled", "InstanceType": "p5.4xlarge"}, [], "FAIL",
         f"{RESERVATION} is cancelled; {RESERVATION} is for p5.4xlarge, but the pool uses p5.48xlarge"),
        ((ELASTIC, RESERVED), {"AvailableInstanceCount": 3}, [], "FAIL",
         f"3 free and 0 of this stack in {RESERVATION}; the pool needs 4 nodes at most"),
        ((RESERVED,), {"ReservationType": "capacity-block"}, [], "FAIL",
         "capacity block, but the pool declares"),
        ((BLOCK,), {"ReservationType": "default"}, [], "FAIL", "capacity block, but the pool declares"),
        ((BLOCK,), {"ReservationType": "capacity-block"}, [], "PASS", ""),
        ((ELASTIC,), {"ReservationType": "capacity-block"}, [], "PASS", ""),  # Karpenter detects its type
        ((RESERVED,), TWO_FREE, [OWN, OWN], "PASS", ""),
        ((RESERVED,), TWO_FREE, [OWN, OTHERS], "FAIL", ""),
        ((EITHER,), {"AvailableInstanceCount": 1}, [], "PASS", ", the rest as on_demand"),
        ((EITHER,), {"AvailableInstanceCount": 0}, [], "FAIL", ""),
        ((ELASTIC,), {"CapacityReservationId": "cr-1"}, [], "FAIL", "InvalidCapacityReservationId.NotFound"),
    ],
)  # fmt: skip
def test_a_reservation_fits_its_pool_and_has_room(
    pools: tuple[Json, ...], kept: Json, running: list[Json], verdict: str, fact: str
) -> None:
    for pool in pools:
        found = findings(pool, reservations=[reservation(**kept)], instances=running)
        subject = found["reservations of pool h100"]
        expect(subject, verdict, fact)
        assert f"--capacity-reservation-ids {RESERVATION} --region us-west-2" in subject.check
        assert ("aws.reservations of pool h100" in subject.fix) == ("NotFound" in fact)


EC2 = sorted(name for name, machine in MACHINES.items() if machine.seller == "ec2")
P, P_SPOT, P5_SPOT = "quota of P, on-demand", "quota of P4, P3 and P2, spot", "quota of P5, spot"
STANDARD = "quota of Standard, on-demand"


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
    found = [quota_of(market, kind) for kind in kinds.split()]
    assert {quota.code if quota else None for quota in found} == {code}


def test_no_machine_counts_twice() -> None:
    assert len({quota.code for quota in QUOTAS}) == len(QUOTAS) == 7
    for kind, market in itertools.product((*EC2, *UNSUPPORTED), ("on-demand", "spot")):
        assert sum(quota.market == market and quota.counts(kind) for quota in QUOTAS) <= 1


def test_a_family_without_a_known_quota_is_said_and_not_guessed() -> None:
    found = findings({**A100, "machine": "p5en.48xlarge", "capacity": ["on_demand", "spot"]}, reservations=[])
    assert (found[P].verdict, P5_SPOT in found) == ("PASS", False)
    unknown = found["quota of p5en, spot"]
    expect(unknown, "SKIP", "not checked (pool a100): AWS has a quota for P5 but none for this family")
    assert "aws service-quotas list-service-quotas" in unknown.check
    word = unknown.check.partition("QuotaName, `")[2].partition("`")[0]
    assert word
    assert all(word in quota.name for quota in QUOTAS), "the command lists those of both markets"


def test_quotas_add_up_pools_and_a_limit_of_one_vcpu_less_fails() -> None:
    found = findings_of_prod(quotas={"L-DB2E81BA": 640, "L-3819A6DF": 639})
    assert found["quota of G and VT, on-demand"].verdict == "PASS"
    expect(
        found["quota of G and VT, spot"], "FAIL",
        "640 vCPUs at most (l40s-inference 640) of 639; 0 taken by others and by reservations",
        "aws service-quotas request-service-quota-increase --service-code ec2 "
        "--quota-code L-3819A6DF --desired-value 640 --region us-west-2",
    )  # fmt: skip
    expect(found[STANDARD], "PASS", "208 vCPUs at most (system 48, cpu 160)")
    expect(found[P], "PASS", "192 vCPUs at most (a100-mig 192) of ")  # h100-training is reserved
    assert P5_SPOT not in found
    dev = Account(parse(stack("aws-dev")), quotas={"L-1216C47A": 7}).findings()
    expect(dev[STANDARD], "FAIL", "8 vCPUs at most (system 8) of 7; 0")


RESERVED_A100 = {**A100, "capacity": ["reserved", "on_demand"], "aws": AWS}
SPOT_A100 = {**A100, "capacity": ["on_demand", "spot"]}
IN_RESERVATION = instance("p4d.24xlarge", "labs", CapacityReservationId=RESERVATION)
ONE_FREE = reservation(InstanceType="p4d.24xlarge", AvailableInstanceCount=1)
SPOT_AND_P5 = [instance("p4d.24xlarge", InstanceLifecycle="spot"), instance("p5.48xlarge")]


@pytest.mark.parametrize(
    ("pool", "has", "subject", "verdict", "fact"),
    [
        (A100, {"quotas": {"L-417A185B": 96}}, P, "FAIL", " of 96; 0 taken by others and by reservations"),
        ({**A100, "nodes": 2, "elastic": None}, {"quotas": {"L-417A185B": 96}}, P, "FAIL",
         "; the nodes that always run need 192"),
        (RESERVED_A100,
         {"reservations": [ONE_FREE], "instances": [*[IN_RESERVATION] * 3, instance("p4d.24xlarge", "labs")]},
         P, "PASS", "192 vCPUs at most (a100 192) of 10000; 384 taken"),
        (SPOT_A100, {"instances": SPOT_AND_P5}, P, "PASS", "; 192 taken"),
        (SPOT_A100, {"instances": SPOT_AND_P5}, P_SPOT, "PASS", "; 96 taken"),
        (A100, {"quota": None, "default_quota": 8}, P, "FAIL", "192 vCPUs at most (a100 192) of 8; "),
        (A100, {"quota": None}, P, "SKIP", "not checked: Service Quotas has no L-417A185B in us-west-2"),
    ],
)  # fmt: skip
def test_a_quota_is_compared_with_what_a_pool_may_buy(
    pool: Json, has: Json, subject: str, verdict: str, fact: str
) -> None:
    expect(findings(pool, **{"reservations": [], **has})[subject], verdict, fact)


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
        ([reservation()], 768),
        # The three in use are instances, if they are this account's.
        ([reservation(AvailableInstanceCount=1)], 192),
        ([reservation(State="scheduled", AvailableInstanceCount=0)], 768),
        ([reservation(State="expired")], 0),
        ([reservation(State="cancelled")], 0),
        ([reservation(ReservationType="capacity-block")], 0),
        ([reservation(OwnerId="999988887777")], 0),
        ([reservation(InstanceMatchCriteria="open")], 768),
        # The pool's nodes are in it.
        ([reservation(InstanceMatchCriteria="open", InstanceType="p4d.24xlarge")], 0),
        ([reservation(InstanceMatchCriteria="targeted", InstanceType="p4d.24xlarge")], 384),
        ([reservation(InstanceType="m5.xlarge")], 0),
    ],
)
def test_what_others_run_and_unused_reservations_are_taken(there: list[Json], taken: int) -> None:
    kept = [one for one in there if "State" in one]
    found = findings(A100, reservations=kept, instances=[one for one in there if one not in kept])
    assert found[P].fact.endswith(f"; {taken} taken by others and by reservations")


@pytest.mark.parametrize(
    "limits",
    [{"cpu": 100}, {"nvidia.com/gpu": 3}, {"cpu": 100, "nvidia.com/gpu": 3}, {"memory_gib": 200, "cpu": 90}],
)
def test_no_mix_of_machines_within_the_limits_has_more_vcpus(limits: dict[str, int]) -> None:
    """Brute force over every mix; the bound exceeds the best mix by at most the largest machine."""
    pool = {"name": "l4", "gpu": {"models": ["L4"], "count": 1}, "elastic": {"max": limits}}
    (bought,) = [one for one in purchases(parse(small(pool))) if one.pool.name == "l4"]
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
    pool = {"name": "dra", "machine": "g5.xlarge", "nodes": 2, "sharing": {"kind": "dra"}}
    (bought,) = [one for one in purchases(parse(small(pool))) if one.pool.name == "dra"]
    assert (bought.nodes, bought.vcpu, bought.fixed) == (3, 12, True)

"""Each subject of the preflight except quotas and network: what the account lacks, and the report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuform.clouds.aws.preflight.account import is_same_principal
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from tests.clouds.aws.fake_account import ACCOUNT, RESERVATION, Account, instance, reservation
from tests.components.aws_stacks import changed, small, stack

pytestmark = pytest.mark.unit

SOON = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
H100 = {
    "name": "h100",
    "machine": "p5.48xlarge",
    "zones": ["us-west-2b"],
    "capacity": ["reserved"],
    "aws": {"reservations": [RESERVATION]},
}
ELASTIC = {**H100, "elastic": {"max": {"nvidia.com/gpu": 32}}}
EITHER = {**ELASTIC, "capacity": ["reserved", "on_demand"]}
RESERVED = {**H100, "nodes": 4}
BLOCK = {**RESERVED, "aws": {"reservations": [RESERVATION], "capacity_block": True}}
SPOT = {"name": "l4", "machine": "g6.xlarge", "elastic": {"max": {"cpu": 8}}, "capacity": ["spot"]}
GROUP = {"name": "l4", "machine": "g6.xlarge", "nodes": 2}
ADMIN = f"arn:aws:iam::{ACCOUNT}:role/gpu-oncall"  # one of aws-prod's
AS_ADMIN = f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-oncall/run"
NOWHERE = {("p4d.24xlarge", f"us-west-2{zone}") for zone in "abc"}
LACKING = {("m6i.4xlarge", "us-west-2b"), ("g6e.xlarge", "us-west-2a")}
OTHER_ADD_ON, NO_ADD_ON = {"coredns": "v9.9.9-eksbuild.1"}, {"coredns": ""}


def findings(pool: dict[str, Any], **other: Any) -> dict[str, Finding]:
    return Account(parse(small(pool)), **other).findings()


def findings_of_prod(**other: Any) -> dict[str, Finding]:
    return Account(parse(stack("aws-prod")), **other).findings()


@pytest.mark.parametrize(
    ("has", "subject", "verdict", "fact", "fix"),
    [
        ({"support": "EXTENDED_SUPPORT"}, "Kubernetes 1.36", "FAIL",
         "in extended support, but the cluster has standard support only", "cluster.support: extended"),
        ({"support": "UNSUPPORTED"}, "Kubernetes 1.36", "FAIL", "EKS reports it as UNSUPPORTED",
         "write a newer one as cluster.version"),
        ({"support": None}, "Kubernetes 1.36", "FAIL", "EKS no longer offers it",
         "write a newer one as cluster.version"),
        ({"add_ons": OTHER_ADD_ON}, "add-on vpc-cni", "PASS", "", ""),
        ({}, "access to the cluster", "PASS", "no cluster yet; its creator gets access", ""),
        ({"caller": AS_ADMIN}, "access to the cluster", "FAIL",
         f"the cluster's creator gets an access entry, and EKS refuses a second one for {ADMIN}", ""),
        ({"caller": AS_ADMIN, "entries": [ADMIN]}, "access to the cluster", "PASS",
         "cluster aws-prod exists, and has an access", ""),
        ({"entries": [ADMIN]}, "access to the cluster", "FAIL",
         "cluster aws-prod exists, and has no access entry of arn:aws:sts", ""),
        ({"caller": f"arn:aws:iam::{ACCOUNT}:root"}, "access to the cluster", "FAIL",
         "the caller is the root user, which cannot have", ""),
        ({"not_offered": NOWHERE}, "machines of pool a100-mig", "FAIL",
         "none of us-west-2a has p4d.24xlarge", "choose another region"),
        ({"not_offered": NOWHERE}, "capacity of pool a100-mig", "SKIP", "", ""),
        ({"not_offered": {("p4d.24xlarge", "us-west-2a")}}, "machines of pool a100-mig", "FAIL", "",
         "zones of the region that do: us-west-2b, us-west-2c"),
        ({"not_offered": LACKING}, "machines of pool cpu", "PASS",
         "m6i.4xlarge in us-west-2a, us-west-2c; us-west-2b lacks all of them", ""),
    ],
)  # fmt: skip
def test_what_an_account_lacks_for_aws_prod(
    has: dict[str, Any], subject: str, verdict: str, fact: str, fix: str
) -> None:
    found = findings_of_prod(**has)[subject]
    assert found.verdict == verdict
    assert found.fact.startswith(fact)
    assert fix in found.fix


@pytest.mark.parametrize(
    ("add_ons", "fact", "fix"),
    [
        (OTHER_ADD_ON, "EKS has no v1.14.2-eksbuild.4 for Kubernetes 1.36",
         "write v9.9.9-eksbuild.1 as cluster.add_ons.coredns"),
        (NO_ADD_ON, "EKS has no version of it for Kubernetes 1.36", "write another cluster.version"),
    ],
)  # fmt: skip
def test_an_add_on_that_is_not_to_be_had(add_ons: dict[str, str], fact: str, fix: str) -> None:
    found = findings_of_prod(add_ons=add_ons)["add-on coredns"]
    assert (found.verdict, found.fact, found.fix) == ("FAIL", fact, fix)


def test_a_zone_that_lacks_some_machines_names_them() -> None:
    found = findings_of_prod(not_offered=LACKING)["machines of pool l40s-inference"]
    assert found.fact.endswith("; us-west-2a lacks g6e.xlarge")


def test_a_version_in_extended_support_is_enough_where_that_is_declared() -> None:
    declared = changed(stack("aws-prod"), support="extended")
    found = Account(parse(declared), support="EXTENDED_SUPPORT").findings()["Kubernetes 1.36"]
    assert (found.verdict, found.fact) == ("PASS", "in extended support")


@pytest.mark.parametrize(
    ("newest", "fix"),
    [("1.36.2-20260818", "al2023@v20260818, the newest"), ("", "another date"), ("odd", "another date")],
)
def test_images_that_are_gone(newest: str, fix: str) -> None:
    found = findings_of_prod(no_image=True, newest=newest)
    images = [one for name, one in found.items() if "image" in name]
    assert [one.verdict for one in images] == ["FAIL"] * 4
    assert {one.fact for one in images} == {"AWS has no such image in this region"}
    assert {one.fix for one in images} == {f"pin {fix}, in cluster.images"}


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
def test_an_image_by_its_id(images: list[dict[str, Any]], verdict: str, fact: str) -> None:
    pool = {"name": "a", "machine": "m6i.xlarge", "nodes": 1}
    account = Account(parse(changed(small(pool), images={"al2023": "ami-01234567"})), images=images)
    found = account.findings()["image ami-01234567"]
    assert (found.verdict, found.fact) == (verdict, fact)


@pytest.mark.parametrize(
    ("pool", "verdict"),
    [(SPOT, "FAIL"), ({**GROUP, "capacity": ["spot"]}, "SKIP"), (GROUP, None)],
    ids=["karpenter", "node group", "no spot"],
)
def test_the_role_of_spot_must_be_there_where_nobody_makes_it(
    pool: dict[str, Any], verdict: str | None
) -> None:
    found = findings(pool, roles=()).get("role AWSServiceRoleForEC2Spot")
    assert (found.verdict if found else None) == verdict
    command = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    assert found is None or found.fix == command


def test_roles_that_aws_makes_by_itself_are_no_failure() -> None:
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
def test_a_way_of_buying_that_there_is_not(pool: dict[str, Any], classes: list[str], fact: str) -> None:
    found = findings(pool, usage_classes={pool["machine"]: classes})[f"capacity of pool {pool['name']}"]
    assert (found.verdict, found.fact) == ("FAIL", fact)


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
def test_a_session_is_its_role(caller: str, principal: str, alike: bool) -> None:
    assert is_same_principal(caller, principal) is alike


@pytest.mark.parametrize("pool", [ELASTIC, RESERVED], ids=["elastic", "fixed"])
@pytest.mark.parametrize(
    ("kept", "fact"),
    [
        ({"State": "expired"}, f"{RESERVATION} is expired"),
        ({"State": "scheduled", "StartDate": SOON},
         f"{RESERVATION} is scheduled, begins 2026-12-01 11:30 UTC"),
        ({"InstanceType": "p4d.24xlarge"},
         f"{RESERVATION} is for p4d.24xlarge, but the pool uses p5.48xlarge"),
        ({"AvailabilityZone": "us-west-2a"},
         f"{RESERVATION} is in us-west-2a, but the pool is in us-west-2b"),
        ({"InstancePlatform": "Windows"}, f"{RESERVATION} is for Windows, but node images are Linux/UNIX"),
        ({"State": "cancelled", "InstanceType": "p5.4xlarge"},
         f"{RESERVATION} is cancelled; {RESERVATION} is for p5.4xlarge, but the pool uses p5.48xlarge"),
        ({"AvailableInstanceCount": 3},
         f"3 free and 0 of this stack in {RESERVATION}; the pool needs 4 nodes at most"),
    ],
)  # fmt: skip
def test_a_reservation_that_does_not_fit(pool: dict[str, Any], kept: dict[str, Any], fact: str) -> None:
    found = findings(pool, reservations=[reservation(**kept)])["reservations of pool h100"]
    assert (found.verdict, found.fact) == ("FAIL", fact)
    assert f"--capacity-reservation-ids {RESERVATION} --region us-west-2" in found.check


OWN = instance("p5.48xlarge", "labs", CapacityReservationId=RESERVATION)
OTHERS = instance("p5.48xlarge", CapacityReservationId=RESERVATION)


@pytest.mark.parametrize(
    ("pool", "kept", "running", "verdict", "fact"),
    [
        (RESERVED, {"ReservationType": "capacity-block"}, [], "FAIL",
         "capacity block, but the pool declares"),
        (BLOCK, {"ReservationType": "default"}, [], "FAIL", "capacity block, but the pool declares"),
        (BLOCK, {"ReservationType": "capacity-block"}, [], "PASS", ""),
        (ELASTIC, {"ReservationType": "capacity-block"}, [], "PASS", ""),  # Karpenter detects its type
        (RESERVED, {"AvailableInstanceCount": 2}, [OWN, OWN], "PASS", ""),
        (RESERVED, {"AvailableInstanceCount": 2}, [OWN, OTHERS], "FAIL", ""),
        (EITHER, {"AvailableInstanceCount": 1}, [], "PASS", ", the rest as on_demand"),
        (EITHER, {"AvailableInstanceCount": 0}, [], "FAIL", ""),
        (ELASTIC, {"CapacityReservationId": "cr-1"}, [], "FAIL", "InvalidCapacityReservationId.NotFound"),
    ],
)  # fmt: skip
def test_the_room_of_a_reservation(
    pool: dict[str, Any], kept: dict[str, Any], running: list[dict[str, Any]], verdict: str, fact: str
) -> None:
    found = findings(pool, reservations=[reservation(**kept)], instances=running)["reservations of pool h100"]
    assert found.verdict == verdict
    assert fact in found.fact
    assert ("aws.reservations of pool h100" in found.fix) == ("NotFound" in fact)

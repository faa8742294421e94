"""Each subject of the preflight except quotas: what the account lacks, and the report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuform.clouds.aws.preflight.account import same
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from tests.clouds.aws.made_up import ACCOUNT, RESERVATION, Account, instance, reservation
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
RESERVED = {**H100, "nodes": 4}
BLOCK = {**RESERVED, "aws": {"reservations": [RESERVATION], "capacity_block": True}}


def look(pool: dict[str, Any], **other: Any) -> dict[str, Finding]:
    return Account(parse(small(pool)), **other).checked()


def prod(**other: Any) -> dict[str, Finding]:
    return Account(parse(stack("aws-prod")), **other).checked()


SPOT = {"name": "l4", "machine": "g6.xlarge", "elastic": {"max": {"cpu": 8}}, "capacity": ["spot"]}


@pytest.mark.parametrize(
    ("pool", "verdict"),
    [
        (SPOT, "FAIL"),
        ({"name": "l4", "machine": "g6.xlarge", "nodes": 2, "capacity": ["spot"]}, "SKIP"),
        ({"name": "l4", "machine": "g6.xlarge", "nodes": 2}, None),
    ],
    ids=["karpenter", "node group", "no spot"],
)
def test_the_role_of_spot_must_be_there_where_nobody_makes_it(
    pool: dict[str, Any], verdict: str | None
) -> None:
    found = look(pool, roles=()).get("role AWSServiceRoleForEC2Spot")
    assert (found.verdict if found else None) == verdict
    assert found is None or found.fix == (
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    )


def test_roles_that_aws_makes_by_itself_are_no_failure() -> None:
    found = look(SPOT, roles=("AWSServiceRoleForEC2Spot",))
    roles = {name: one.verdict for name, one in found.items() if name.startswith("role ")}
    assert sorted(roles.values()) == ["PASS", "SKIP", "SKIP", "SKIP"]
    fixes = {one.fix.rpartition(" ")[2] for one in found.values() if "create-service-linked-role" in one.fix}
    assert fixes == {"eks.amazonaws.com", "eks-nodegroup.amazonaws.com", "autoscaling.amazonaws.com"}


@pytest.mark.parametrize(
    ("support", "fact"),
    [
        ("EXTENDED_SUPPORT", "in extended support, but the cluster has standard support only"),
        ("UNSUPPORTED", "EKS reports it as UNSUPPORTED"),
        (None, "EKS no longer offers it"),
    ],
)
def test_a_version_of_kubernetes_that_is_over(support: str | None, fact: str) -> None:
    found = prod(support=support)["Kubernetes 1.36"]
    assert (found.verdict, found.fact) == ("FAIL", fact)
    assert ("cluster.support: extended" in found.fix) == (support == "EXTENDED_SUPPORT")


def test_a_version_in_extended_support_is_enough_where_that_is_declared() -> None:
    declared = changed(stack("aws-prod"), support="extended")
    account = Account(parse(declared), support="EXTENDED_SUPPORT")
    found = account.checked()["Kubernetes 1.36"]
    assert (found.verdict, found.fact) == ("PASS", "in extended support")


@pytest.mark.parametrize(
    ("version", "fact", "fix"),
    [
        (
            "v9.9.9-eksbuild.1",
            "EKS has no v1.14.2-eksbuild.4 for Kubernetes 1.36",
            "write v9.9.9-eksbuild.1 as cluster.add_ons.coredns",
        ),
        ("", "EKS has no version of it for Kubernetes 1.36", "write another cluster.version"),
    ],
)
def test_an_add_on_that_is_not_to_be_had(version: str, fact: str, fix: str) -> None:
    found = prod(add_ons={"coredns": version})
    assert (found["add-on coredns"].verdict, found["add-on coredns"].fact) == ("FAIL", fact)
    assert found["add-on coredns"].fix == fix
    assert found["add-on vpc-cni"].verdict == "PASS"


@pytest.mark.parametrize(
    ("newest", "fix"),
    [("1.36.2-20260818", "al2023@v20260818, the newest"), ("", "another date"), ("odd", "another date")],
)
def test_images_that_are_gone(newest: str, fix: str) -> None:
    found = prod(no_image=True, newest=newest)
    images = [one for name, one in found.items() if "image" in name]
    assert [one.verdict for one in images] == ["FAIL"] * 4
    assert {one.fact for one in images} == {"AWS has no such image in this region"}
    assert {one.fix for one in images} == {f"pin {fix}, in cluster.images"}


@pytest.mark.parametrize(
    ("images", "verdict", "fact"),
    [
        ([{"Name": "ours", "State": "available"}], "PASS", "ours"),
        ([{"Name": "ours", "State": "deregistered"}], "FAIL", "deregistered"),
        ([], "FAIL", "does not exist, or is not shared with the account"),
    ],
)
def test_an_image_by_its_id(images: list[dict[str, Any]], verdict: str, fact: str) -> None:
    pinned = changed(
        small({"name": "a", "machine": "m6i.xlarge", "nodes": 1}), images={"al2023": "ami-01234567"}
    )
    account = Account(parse(pinned), images=images)
    found = account.checked()["image ami-01234567"]
    assert (found.verdict, found.fact) == (verdict, fact)


def test_machines_that_no_zone_of_the_pool_sells() -> None:
    nowhere = {("p4d.24xlarge", f"us-west-2{zone}") for zone in "abc"}
    found = prod(not_offered=nowhere)
    assert found["machines of pool a100-mig"].fact == "none of us-west-2a has p4d.24xlarge"
    assert found["machines of pool a100-mig"].fix == "choose another region"
    assert found["capacity of pool a100-mig"].verdict == "SKIP"
    elsewhere = prod(not_offered={("p4d.24xlarge", "us-west-2a")})["machines of pool a100-mig"]
    assert (elsewhere.verdict, elsewhere.fix) == (
        "FAIL",
        "zones of the region that do: us-west-2b, us-west-2c",
    )


def test_a_zone_that_lacks_machines_is_named() -> None:
    lacking = {("m6i.4xlarge", "us-west-2b"), ("g6e.xlarge", "us-west-2a")}
    found = prod(not_offered=lacking)
    assert found["machines of pool cpu"].verdict == "PASS"
    assert found["machines of pool cpu"].fact == (
        "m6i.4xlarge in us-west-2a, us-west-2c; us-west-2b lacks all of them"
    )
    assert found["machines of pool l40s-inference"].fact.endswith("; us-west-2a lacks g6e.xlarge")


@pytest.mark.parametrize(
    ("pool", "classes", "fact"),
    [
        (SPOT, ["on-demand"], "g6.xlarge: not sold as spot here, but as on-demand"),
        (
            {**SPOT, "capacity": ["on_demand", "spot"]},
            ["spot"],
            "g6.xlarge: not sold as on-demand here, but as spot",
        ),
        (RESERVED, [], "p5.48xlarge: not sold as on-demand or capacity-block here, but as nothing"),
        (BLOCK, ["on-demand"], "p5.48xlarge: not sold as capacity-block here, but as on-demand"),
    ],
)
def test_a_way_of_buying_that_there_is_not(pool: dict[str, Any], classes: list[str], fact: str) -> None:
    found = look(pool, usage_classes={pool["machine"]: classes})[f"capacity of pool {pool['name']}"]
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
    assert same(caller, principal) is alike


ADMIN = f"arn:aws:iam::{ACCOUNT}:role/gpu-oncall"  # one of aws-prod's
AS_ADMIN = f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-oncall/run"


@pytest.mark.parametrize(
    ("other", "verdict", "fact"),
    [
        ({}, "PASS", "no cluster yet; its creator gets access"),
        (
            {"caller": AS_ADMIN},
            "FAIL",
            f"the cluster's creator gets an access entry, and EKS refuses a second one for {ADMIN}",
        ),
        ({"caller": AS_ADMIN, "entries": [ADMIN]}, "PASS", "cluster aws-prod exists, and has an access"),
        ({"entries": [ADMIN]}, "FAIL", "cluster aws-prod exists, and has no access entry of arn:aws:sts"),
        (
            {"caller": f"arn:aws:iam::{ACCOUNT}:root"},
            "FAIL",
            "the caller is the root user, which cannot have",
        ),
    ],
)
def test_access_to_the_cluster(other: dict[str, Any], verdict: str, fact: str) -> None:
    found = prod(**other)["access to the cluster"]
    assert found.verdict == verdict
    assert found.fact.startswith(fact)


@pytest.mark.parametrize("pool", [ELASTIC, RESERVED], ids=["elastic", "fixed"])
@pytest.mark.parametrize(
    ("kept", "fact"),
    [
        ({"State": "expired"}, f"{RESERVATION} is expired"),
        (
            {"State": "scheduled", "StartDate": SOON},
            f"{RESERVATION} is scheduled, begins 2026-12-01 11:30 UTC",
        ),
        (
            {"InstanceType": "p4d.24xlarge"},
            f"{RESERVATION} is for p4d.24xlarge, but the pool uses p5.48xlarge",
        ),
        (
            {"AvailabilityZone": "us-west-2a"},
            f"{RESERVATION} is in us-west-2a, but the pool is in us-west-2b",
        ),
        ({"InstancePlatform": "Windows"}, f"{RESERVATION} is for Windows, but node images are Linux/UNIX"),
        (
            {"State": "cancelled", "InstanceType": "p5.4xlarge"},
            f"{RESERVATION} is cancelled; {RESERVATION} is for p5.4xlarge, but the pool uses p5.48xlarge",
        ),
        (
            {"AvailableInstanceCount": 3},
            f"3 free and 0 of this stack in {RESERVATION}; the pool needs 4 nodes at most",
        ),
    ],
)
def test_a_reservation_that_does_not_fit(pool: dict[str, Any], kept: dict[str, Any], fact: str) -> None:
    found = look(pool, reservations=[reservation(**kept)])["reservations of pool h100"]
    assert (found.verdict, found.fact) == ("FAIL", fact)
    assert f"--capacity-reservation-ids {RESERVATION} --region us-west-2" in found.check


def test_a_reservation_that_is_not_there() -> None:
    found = look(ELASTIC, reservations=[])["reservations of pool h100"]
    assert found.verdict == "FAIL"
    assert found.fact.startswith("InvalidCapacityReservationId.NotFound")
    assert "aws.reservations of pool h100" in found.fix


@pytest.mark.parametrize(
    ("pool", "kind", "verdict"),
    [
        (RESERVED, "capacity-block", "FAIL"),
        (BLOCK, "default", "FAIL"),
        (BLOCK, "capacity-block", "PASS"),
        (ELASTIC, "capacity-block", "PASS"),  # Karpenter detects its type
    ],
)
def test_a_capacity_block_is_declared_as_one_where_nobody_else_sees_it(
    pool: dict[str, Any], kind: str, verdict: str
) -> None:
    found = look(pool, reservations=[reservation(ReservationType=kind)])["reservations of pool h100"]
    assert found.verdict == verdict
    assert verdict == "PASS" or "capacity block, but the pool declares" in found.fact


def test_the_stacks_own_nodes_have_their_places_already() -> None:
    own = instance("p5.48xlarge", "labs", CapacityReservationId=RESERVATION)
    others = instance("p5.48xlarge", CapacityReservationId=RESERVATION)
    kept = [reservation(AvailableInstanceCount=2)]
    subject = "reservations of pool h100"
    assert look(RESERVED, reservations=kept, instances=[own, own])[subject].verdict == "PASS"
    assert look(RESERVED, reservations=kept, instances=[own, others])[subject].verdict == "FAIL"


def test_what_a_reservation_has_no_room_for_may_be_bought_otherwise() -> None:
    pool = {**ELASTIC, "capacity": ["reserved", "on_demand"]}
    subject = "reservations of pool h100"
    found = look(pool, reservations=[reservation(AvailableInstanceCount=1)])[subject]
    assert (found.verdict, found.fact.rpartition(", ")[2]) == ("PASS", "the rest as on_demand")
    assert look(pool, reservations=[reservation(AvailableInstanceCount=0)])[subject].verdict == "FAIL"

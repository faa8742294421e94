"""Capacity reservations that pools name: reported mismatches, and the available capacity."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuform.stack.preflight import findings
from gpuform.usage.finding import Finding
from infra.config import parse
from tests.aws.made_up import RESERVATION, Account, instance, reservation
from tests.components.aws_stacks import small

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
FIXED = {**H100, "nodes": 4}
BLOCK = {**H100, "nodes": 4, "aws": {"reservations": [RESERVATION], "capacity_block": True}}


def look(pool: dict[str, Any], **other: Any) -> dict[str, Finding]:
    account = Account(parse(small(pool)), **other)
    return {one.subject: one for one in findings(account.env, "x", account.clients, here=account.here)}


@pytest.mark.parametrize("pool", [ELASTIC, FIXED], ids=["elastic", "fixed"])
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
        (FIXED, "capacity-block", "FAIL"),
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
    assert look(FIXED, reservations=kept, instances=[own, own])[subject].verdict == "PASS"
    assert look(FIXED, reservations=kept, instances=[own, others])[subject].verdict == "FAIL"


def test_what_a_reservation_has_no_room_for_may_be_bought_otherwise() -> None:
    pool = {**ELASTIC, "capacity": ["reserved", "on_demand"]}
    subject = "reservations of pool h100"
    found = look(pool, reservations=[reservation(AvailableInstanceCount=1)])[subject]
    assert (found.verdict, found.fact.rpartition(", ")[2]) == ("PASS", "the rest as on_demand")
    assert look(pool, reservations=[reservation(AvailableInstanceCount=0)])[subject].verdict == "FAIL"

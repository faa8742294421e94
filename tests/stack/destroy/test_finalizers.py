"""What blocks a destroy: whether Karpenter is alive, which objects block, and the progress report."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gpuform.kubernetes.client import Unreachable
from gpuform.stack.destroy import finalizers
from gpuform.stack.destroy.cluster import BUDGET, DEPLOYMENT, EVENT, LEASE, Cluster, Kind
from gpuform.stack.destroy.waiting import Left, StillThere, listed, until_gone

pytestmark = pytest.mark.unit


class Played:
    def __init__(self, objects: dict[Kind, list[dict[str, Any]]]) -> None:
        self._objects = objects

    def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return next(iter(self._objects.get(kind, ())), None)

    def objects(self, kind: Kind, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        return self._objects.get(kind, [])


def _lease(age: float, holder: str = "karpenter-1") -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "age": age}}


def _renewed(lease: dict[str, Any]) -> dict[str, Any]:
    """With a time instead of its age, relative to now: tests are collected long before they run."""
    then = datetime.now(UTC) - timedelta(seconds=lease["spec"]["age"])
    return {"spec": {**lease["spec"], "renewTime": then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}


@pytest.mark.parametrize(
    ("objects", "alive", "said"),
    [
        ({}, False, "is not running"),
        (
            {DEPLOYMENT: [{"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}]},
            True,
            r"is running \(1 of 2 ready\)",
        ),
        ({DEPLOYMENT: [{"spec": {"replicas": 2}, "status": {}}]}, False, r"is not ready \(0 of 2\)"),
        ({LEASE: [_lease(3)]}, True, "is running .karpenter-1 is the leader"),
        ({LEASE: [_lease(600)]}, False, "is not running"),
        ({LEASE: [_lease(3, "")]}, False, "is not running"),  # it released its lease
        ({DEPLOYMENT: [{"status": {}}], LEASE: [_lease(3)]}, True, "is running"),
    ],
)
def test_whether_karpenter_lives(objects: dict[Kind, list[dict[str, Any]]], alive: bool, said: str) -> None:
    played = {
        kind: [_renewed(one) if kind == LEASE else one for one in ones] for kind, ones in objects.items()
    }
    found = finalizers.controller(cast(Cluster, Played(played)))
    assert found.alive is alive
    assert re.match(said, found.said)


def test_what_blocks_is_named() -> None:
    budget = {
        "metadata": {"namespace": "web", "name": "shop"},
        "spec": {"minAvailable": 2},
        "status": {"expectedPods": 2, "currentHealthy": 2, "disruptionsAllowed": 0},
    }
    free = {**budget, "metadata": {"name": "free"}, "status": {"expectedPods": 2, "disruptionsAllowed": 1}}
    event = {"involvedObject": {"name": "a"}, "reason": "FailedDraining", "message": "1 pod is waiting"}
    other = {"involvedObject": {"name": "z"}, "reason": "Other", "message": "-"}
    played = Played({BUDGET: [budget, free], EVENT: [event, other]})
    lives, said = finalizers.why(cast(Cluster, played), [Left("NodeClaim", "a")])
    assert not lives.alive
    assert "budgets that allow no eviction: web/shop (2 healthy, minAvailable 2);" in said
    assert said.endswith("last warnings: FailedDraining: 1 pod is waiting")


def test_waiting_ends_and_says_what_is_left() -> None:
    left = [Left("NodeClaim", f"n{index}", "finalizer f") for index in range(7)] + [Left("EC2NodeClass", "c")]
    text = listed(left)
    assert text.startswith("7 NodeClaims left: n0 (finalizer f), ")
    assert text.endswith("n4 (finalizer f) and 2 more; 1 EC2NodeClass left: c")
    said: list[str] = []
    with pytest.raises(StillThere, match=r"and 2 more; 1 EC2NodeClass left: c after 0\.3 s"):
        until_gone(lambda: left, 0.3, said.append)
    assert said == [text], "an unchanged line is not said again"
    answers = iter([left, Unreachable("no answer"), []])

    def look() -> list[Left]:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    until_gone(look, 5, said.append)
    assert said[1:] == [text, "no answer"]

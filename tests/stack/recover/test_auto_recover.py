"""Pending operations that `up` resolves before it starts, and the owner of a pending Helm release."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from gpuform.clouds import RECOVERIES
from gpuform.engine.pending import GIVEN_UP, IMPORTING, Operation
from gpuform.kubernetes.kubeconfig import resolve
from gpuform.stack.recover import Lock, Plan, Release, Stack, Step, auto_recover, resume
from gpuform.stack.recover.cluster import _with_login_command
from gpuform.stack.recover.releases import StoredRelease, plan_release
from tests.fakes.client import kubeconfig

pytestmark = pytest.mark.unit

MAGNUM = "openstack:containerinfra/cluster:Cluster"
TYPE = "kubernetes:helm.sh/v3:Release"
STEP = Step("urn", TYPE, "creating", "import", "it is there", "n/it")
YOUNG = Release("urn", "n/it", "pending-install", "leave", "look again", 1)
MARKED = Release("urn", "n/it", "pending-install", "mark failed", "", 1)
LEFT = Step("urn", TYPE, "creating", "leave", "another one's")


class Engine:
    def __init__(self, *types: str, kind: str = "creating") -> None:
        self.left = [Operation(kind, {"urn": "urn", "type": type}) for type in types]


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls ``resume`` with one plan per poll; returns the executed plans and the number of polls."""

    def run(engine: Engine, *plans: Plan) -> tuple[list[Plan], int]:
        looks = list(plans)
        done: list[Plan] = []
        monkeypatch.setattr(auto_recover, "_POLL_S", 0.0)
        monkeypatch.setattr(auto_recover, "find", lambda stack: looks.pop(0) if len(looks) > 1 else looks[0])
        monkeypatch.setattr(auto_recover, "carry_out", lambda stack, plan, say: done.append(plan))
        stack = Stack("s", cast(Any, None), cast(Any, engine), RECOVERIES, at_cloud=False)
        resume(stack, engine.left, lambda line: None)
        return done, len(plans) - len(looks)

    return run


def plan(*steps: Step, releases: tuple[Release, ...] = (), locks: tuple[Lock, ...] = ()) -> Plan:
    return Plan("s", "b", locks, steps, releases)


@pytest.mark.parametrize(
    ("engine", "settles"),
    [
        (Engine(), False),
        (Engine("aws:ec2/vpc:Vpc"), False),
        (Engine("kubernetes:core/v1:Pod"), True),
        (Engine("kubernetes:core/v1:Pod", kind="updating"), False),
        (Engine(TYPE, kind="updating"), True),
        (Engine(TYPE, kind="deleting"), False),
        *((Engine(MAGNUM, kind=kind), True) for kind in ("creating", GIVEN_UP, IMPORTING)),
        (Engine("openstack:containerinfra/nodeGroup:NodeGroup", kind="updating"), True),
    ],
)
def test_it_settles_what_no_engine_goes_on_with(resumed: Any, engine: Engine, settles: bool) -> None:
    wanted = plan(STEP)
    assert resumed(engine, wanted)[0] == ([wanted] if settles else [])


def test_a_release_that_is_being_installed_is_waited_for(resumed: Any) -> None:
    young, old = plan(LEFT, releases=(YOUNG,)), plan(STEP, releases=(MARKED,))
    assert resumed(Engine(TYPE), young, young, old) == ([old], 2)


def test_what_magnum_is_at_work_on_is_waited_for(resumed: Any) -> None:
    busy = plan(Step("urn", MAGNUM, GIVEN_UP, "leave", "CREATE_IN_PROGRESS; run it again", busy_s=60))
    done = plan(Step("urn", MAGNUM, GIVEN_UP, "refresh", "CREATE_COMPLETE"))
    assert resumed(Engine(MAGNUM, kind=GIVEN_UP), busy, busy, done) == ([done], 2)


@pytest.mark.parametrize("left", [plan(STEP, LEFT), plan(STEP, locks=(Lock("k", None, b"", False),)), plan()])
def test_what_is_not_decided_is_left_to_a_person(resumed: Any, left: Plan) -> None:
    assert resumed(Engine(TYPE), left)[0] == []


INPUTS: dict[str, Any] = {"chart": "operator", "version": "v1.2.0", "values": {"a": {"b": 1}}}
INPUTS["repositoryOpts"] = {"repo": "https://charts.example.org"}


@pytest.mark.parametrize(
    ("ours", "number", "chart", "values", "inputs"),
    [
        (True, 1, ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
        (False, 2, ("operator", "1.2.0"), {"a": {"b": 1}}, {}),
        (False, 1, ("operator", "1.2.1"), {"a": {"b": 1}}, {}),
        (False, 1, ("other", "1.2.0"), {"a": {"b": 1}}, {}),
        (True, 1, ("other", "1.2.0"), {"a": {"b": 1}}, {"chart": "../charts/x", "repositoryOpts": None}),
        (False, 1, ("operator", "1.2.0"), {"a": {"b": 2}}, {}),
        (True, 1, ("operator", "1.2.0"), None, {"values": {}}),
    ],
)
def test_a_release_is_ours_by_its_first_content(
    ours: bool, number: int, chart: tuple[str, str], values: Any, inputs: dict[str, Any]
) -> None:
    content = {"chart": {"metadata": {"name": chart[0], "version": chart[1]}}, "config": values}
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    stored = base64.b64encode(packed).decode()
    found = StoredRelease("n/it", number, "deployed", None, stored)
    assert found.is_made_by(INPUTS | inputs) is ours
    assert not StoredRelease("n/it").is_made_by(INPUTS | inputs)


@pytest.mark.parametrize(
    ("status", "good", "ours", "age", "does"),
    [
        ("deployed", 2, True, 600, None),
        ("failed", 1, True, 600, None),
        ("pending-install", 0, True, 600, "mark failed"),
        ("pending-upgrade", 1, True, 179, "leave"),
        ("pending-upgrade", 1, True, 181, "roll back"),
        ("pending-upgrade", 0, True, 181, "mark failed"),
        ("pending-rollback", 1, False, 600, "leave"),
    ],
)
def test_what_becomes_of_a_release(status: str, good: int, ours: bool, age: float, does: str | None) -> None:
    now = datetime.now(UTC)
    found = StoredRelease("n/it", 2, status, now - timedelta(seconds=age), completed=good)
    release = plan_release("urn", found, ours, now)
    assert (release.does if release else None) == does


def test_helm_logs_in_as_the_client_does(tmp_path: Path) -> None:
    """The engine's environment has the login command; the PATH of this process may not."""
    program = tmp_path / "aws"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}
    given = kubeconfig({"server": "https://c"}, {"exec": login})
    given["clusters"].append({"name": "d", "cluster": {}})
    env = {"PATH": str(tmp_path), "GPUFORM_OFFLINE": "1"}
    config = _with_login_command(resolve({"kubeconfig": json.dumps(given)}, {}), env).document
    assert [one["cluster"] for one in config["clusters"]] == [{"server": "https://c"}]
    (user,) = config["users"]
    assert user["user"]["exec"]["command"] == str(program)
    assert user["user"]["exec"]["env"] == [{"name": "GPUFORM_OFFLINE", "value": "1"}]

"""What an `up` resolves automatically before it starts: no engine, no cluster."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gpuform.clouds import RECOVERIES
from gpuform.engine.pending import GIVEN_UP, IMPORTING, Operation
from gpuform.stack.recover import Lock, Plan, Release, Stack, Step, auto_recover, resume

pytestmark = pytest.mark.unit

TYPE = "kubernetes:helm.sh/v3:Release"
STEP = Step("urn", TYPE, "creating", "import", "it is there", "n/it")
YOUNG = Release("urn", "n/it", "pending-install", "leave", "look again", 1)
MARKED = Release("urn", "n/it", "pending-install", "mark failed", "", 1)
LEFT = Step("urn", TYPE, "creating", "leave", "another one's")


class Engine:
    def __init__(self, *types: str, kind: str = "creating") -> None:
        self.left = [Operation(kind, {"urn": "urn", "type": type}) for type in types]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls ``resume`` with one plan per poll; returns the executed plans and the number of polls."""

    def run(engine: Engine, *plans: Plan) -> tuple[list[Plan], int]:
        looks = list(plans)
        done: list[Plan] = []
        monkeypatch.setattr(auto_recover, "_LOOK_S", 0.0)
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
        (Engine("openstack:containerinfra/cluster:Cluster"), True),
        (Engine("openstack:containerinfra/cluster:Cluster", kind=GIVEN_UP), True),
        (Engine("openstack:containerinfra/cluster:Cluster", kind=IMPORTING), True),
        (Engine("openstack:containerinfra/nodeGroup:NodeGroup", kind="updating"), True),
    ],
)
def test_it_settles_what_no_engine_goes_on_with(settled: Any, engine: Engine, settles: bool) -> None:
    wanted = plan(STEP)
    assert settled(engine, wanted)[0] == ([wanted] if settles else [])


def test_a_release_that_is_being_installed_is_waited_for(settled: Any) -> None:
    young, old = plan(LEFT, releases=(YOUNG,)), plan(STEP, releases=(MARKED,))
    assert settled(Engine(TYPE), young, young, old) == ([old], 2)


def test_what_magnum_is_at_work_on_is_waited_for(settled: Any) -> None:
    type = "openstack:containerinfra/cluster:Cluster"
    busy = plan(Step("urn", type, GIVEN_UP, "leave", "CREATE_IN_PROGRESS; run it again", busy_s=60))
    done = plan(Step("urn", type, GIVEN_UP, "refresh", "CREATE_COMPLETE"))
    assert settled(Engine(type, kind=GIVEN_UP), busy, busy, done) == ([done], 2)


@pytest.mark.parametrize(
    "left",
    [
        plan(STEP, LEFT),
        plan(STEP, locks=(Lock("k", None, b"", False),)),
        plan(),
    ],
)
def test_what_is_not_decided_is_left_to_a_person(settled: Any, left: Plan) -> None:
    assert settled(Engine(TYPE), left)[0] == []

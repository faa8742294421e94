"""Workloads in queues during a rehearsal: their history from Kueue's objects, and what a queue costs."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage.nodes import Pod
from gpuform.usage.rehearsal import Queued, Turn
from infra.config import parse
from infra.model.prices import PriceList
from lab.rehearse import queued
from lab.rehearse.cost_report import CostReport
from lab.rehearse.watch import Snapshot
from tests.lab.rehearse.test_cost_report import node
from tests.reports.test_queues import NO_ROOM, workload

pytestmark = pytest.mark.unit

ADMITTED, DONE = ("Admitted", "True", "x"), ("Finished", "True", "x")
WAITS = ("QuotaReserved", "False", NO_ROOM)
EVICTED = ("Evicted", "True", "Preempted to accommodate a workload (UID: job-urgent, JobUID: x) due to y")
BACK = ("Evicted", "False", "Previously: Preempted")
WHY = "Preempted to accommodate Job arts/urgent due to y"


def history(**looks: list[tuple[tuple[str, str, str], ...] | None]) -> dict[str, Queued]:
    """What is known of each workload after looks a second apart, by their conditions; None: not there."""
    lives: dict[str, Queued] = {}
    for at in range(max(map(len, looks.values()))):
        there = [workload(name, "arts", *said) for name, of in looks.items() if (said := of[at]) is not None]
        for one in there:
            one["metadata"]["uid"] = one["metadata"]["name"]
        lives = queued.noted(lives, there, float(at))
    return {one.name: one for one in lives.values()}


def times(life: Queued) -> list[tuple[float, str]]:
    return [(one.at, one.what) for one in life.turns]


def test_a_preempted_workload_returns_a_pod_does_not_and_one_waits_for_kueues_reason() -> None:
    lives = history(
        low=[(ADMITTED,), (WAITS, EVICTED), (WAITS, EVICTED), (ADMITTED, BACK), (ADMITTED, BACK, DONE)],
        late=[(), (WAITS,), (WAITS,), (WAITS,), (WAITS,)],
        pod=[(ADMITTED,), (ADMITTED, DONE, EVICTED), (ADMITTED, DONE, EVICTED), None, None],
        urgent=[None, (ADMITTED,), (ADMITTED,), None, None],
    )
    low, late, pod, urgent = lives.values()
    assert times(low)[1:] == [(0, "admitted"), (1, "evicted"), (3, "admitted"), (4, "finished")]
    assert (late.turns, late.waits) == ((Turn(0.0, "created"),), NO_ROOM)
    assert pod.turns[2] == Turn(1.0, "evicted", WHY)
    assert times(urgent) == [(1, "created"), (1, "admitted"), (3, "removed")]
    assert [one.name for one in queued.of("", lives.values())] == ["low", "pod", "urgent", "late"]


@pytest.mark.parametrize("after", [(ADMITTED, DONE, EVICTED), (WAITS, EVICTED)])
def test_the_trouble_of_a_pod_that_was_evicted_is_its_queue(after: tuple[tuple[str, str, str], ...]) -> None:
    lives = history(pod=[(ADMITTED,), after, None], urgent=[(ADMITTED,), (ADMITTED,), (ADMITTED,)])
    ((where, pod),) = queued.held(lives.values()).items()
    assert where == ("arts", "pod")
    assert pod.trouble == f"queue  ended it, and nothing creates it again: {WHY}"


def test_a_queue_costs_the_part_of_gpus_that_its_pods_hold() -> None:
    pools = [{"name": "p0", "machine": "p4d.24xlarge"}, {"name": "own", "machine": "g1.4xlarge"}]
    teams = [{"name": name, "namespaces": [name], "quota": {"p0": 8}} for name in ("arts", "science")]
    work: dict[str, Any] = {"kind": "pod", "pool": "p0", "image": "a:1", "name": "a"}
    works = [{**work, "namespace": name, "queue": name} for name in ("arts", "science")]
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "embedded"},
            "pools": [{**one, "nodes": 1} for one in pools],
            "queues": {"teams": teams},
            "workloads": [*works, {**work, "name": "free", "namespace": "arts"}],
        }
    )
    gpus = {"nvidia.com/gpu": 2.0}
    nodes = [
        node(name, machine, {"nvidia.com/gpu": 8.0}, gpus=8) for name, machine in map(dict.values, pools)
    ]
    there = [Pod("arts", name, name, "p0-n", "Running", gpus) for name in ("a", "free")]
    costs = CostReport(env, PriceList())
    assert costs.held("arts", Snapshot(1.0, tuple(nodes), tuple(there))) == pytest.approx(21.9576 / 4)
    assert costs.held("science", Snapshot(1.0, tuple(nodes), tuple(there))) == 0
    there.append(Pod("science", "a", "a", "own-n", "Running", gpus))
    assert costs.held("science", Snapshot(1.0, tuple(nodes), tuple(there))) is None, (
        "its machine has no price"
    )

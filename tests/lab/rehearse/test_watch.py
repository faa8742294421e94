"""Watching a cluster: when nodes and pods came and changed, devices by claim, workloads in queues."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.kinds import RESOURCE_CLAIM, RESOURCE_SLICE
from gpuform.usage.queues import QueuedWorkload, Transition
from lab.rehearse import watch as watching
from lab.rehearse.cluster import NODE_CLAIMS, NODES, PODS
from lab.rehearse.watch import Watch
from tests.lab.rehearse.fake_cluster import FakeCluster

pytestmark = pytest.mark.unit
Json = dict[str, Any]


def node(name: str, ready: bool = True, held: bool = False) -> Json:
    taints = [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}] if held else []
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}, "status": status}


def pod(node: str, namespace: str = "a") -> Json:
    labels = {"app.kubernetes.io/name": "w", "gpuform.io/environment": "lab"} if namespace == "a" else {}
    meta = {"namespace": namespace, "name": "p", "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def test_the_times_of_a_node_are_noted_from_joining_to_removal() -> None:
    cluster = FakeCluster()
    watch = Watch(cluster, "lab")
    watch.observe()
    assert watch.lives == {}
    held, node_only, used = {NODES: [node("n", held=True)]}, {NODES: [node("n")]}, {PODS: [pod("n")]}
    for lists in (held, node_only, used, {NODES: [], PODS: []}):
        cluster.lists |= lists
        watch.observe()
    life = watch.lives["n"]
    assert life.ready is not None
    assert life.removed is not None
    assert life.joined < life.ready < life.removed
    assert life.used


def test_a_node_that_is_kept_free_counts_as_used_and_nothing_of_it_is_taken() -> None:
    lists = {NODES: [node("n"), node("idle")], PODS: [pod("n", "gpuform-placeholder")]}
    watch = Watch(FakeCluster(lists), "lab")
    now = watch.observe()
    assert {name: life.used for name, life in watch.lives.items()} == {"n": True, "idle": False}
    assert now.pods_on("n") == ()


def test_a_node_that_is_held_back_is_not_ready() -> None:
    nodes = [node("held", held=True), node("down", ready=False), node("up")]
    watch = Watch(FakeCluster({NODES: nodes}), "lab")
    watch.observe()
    ready = {name: life.ready is not None for name, life in watch.lives.items()}
    assert ready == {"held": False, "down": False, "up": True}


def test_a_wait_ends_when_it_is_done_or_nothing_changes_any_more() -> None:
    cluster = FakeCluster()
    watch = Watch(cluster, "lab")
    began = time.monotonic()
    with watch.running():
        assert not watch.wait_until(lambda now: False, quiet_s=0.2, timeout_s=600)
        assert time.monotonic() - began < 600
        cluster.lists[NODES] = [node("n")]
        assert watch.wait_until(lambda now: bool(now.nodes), quiet_s=5, timeout_s=5)


def test_pods_that_a_removed_node_leaves_behind_are_no_change_when_they_go() -> None:
    cluster = FakeCluster({NODES: [node("n"), node("left")], PODS: [pod("n"), pod("left")]})
    watch = Watch(cluster, "lab")
    changes = []
    for lists in ({}, {NODES: [node("left")]}, {PODS: [pod("left")]}, {PODS: []}):
        cluster.lists |= lists
        before = watch.changed
        watch.observe()
        changes.append(watch.changed > before)
    assert changes == [True, True, False, True]


def test_a_cluster_that_does_not_answer_for_a_while_is_waited_for() -> None:
    cluster = FakeCluster()
    cluster.fails = True
    watch = Watch(cluster, "lab")
    with watch.running():
        assert not watch.wait_until(lambda now: True, quiet_s=0.7, timeout_s=5)
        cluster.fails = False
        assert watch.wait_until(lambda now: True, quiet_s=5, timeout_s=5)


def test_an_object_that_cannot_be_read_fails_at_once() -> None:
    watch = Watch(FakeCluster({NODES: [{"metadata": {}}]}), "lab")
    with watch.running(), pytest.raises(Failure, match="cannot be read"):
        watch.wait_until(lambda now: False, quiet_s=30, timeout_s=30)


def test_a_nodeclaim_that_moves_on_is_a_change() -> None:
    cluster = FakeCluster()
    watch, states = Watch(cluster, "lab"), []
    for true in ([], ["Launched"], ["Launched", "Registered"]):
        conditions = [{"type": item, "status": "True"} for item in true]
        cluster.lists[NODE_CLAIMS] = [{"metadata": {"name": "c"}, "status": {"conditions": conditions}}]
        states.append(watch.observe())
    assert [now.claims[0][1] for now in states] == ["", "Launched", "Launched Registered"]
    assert len({now.state for now in states}) == 3


def device(name: str, kind: str) -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}, "uuid": {"string": f"uuid-{name}"}}}


def test_devices_count_by_class_and_by_uuid_where_a_pool_is_claimed() -> None:
    devices = [device("gpu-0-mig-a", "mig"), device("gpu-0-mig-b", "mig"), device("gpu-1", "gpu")]
    place = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n", "generation": 1}}
    exactly = {"deviceClassName": "mig.nvidia.com", "count": 2}
    results = [{"pool": "n", "device": f"gpu-0-mig-{name}", "driver": "gpu.nvidia.com"} for name in "ab"]
    claim = {
        "metadata": {"namespace": "lab", "name": "a-gpu-x"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    claimed = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
    meta = {"name": "a", "namespace": "lab"}
    lists: dict[str, list[Json]] = {
        NODES: [{"metadata": {"name": "n", "uid": "u"}, "status": {"allocatable": {"cpu": "4"}}}],
        PODS: [{"metadata": meta, "spec": {"containers": [{}]}, "status": {"phase": "Running", **claimed}}],
        RESOURCE_SLICE.path(): [{"spec": {**place, "devices": devices}}],
        RESOURCE_CLAIM.path(): [claim],
    }
    now = Watch(FakeCluster(lists), "labs", by_claim=True).observe()
    assert now.nodes[0].offers == {"cpu": 4, "mig.nvidia.com": 2, "gpu.nvidia.com": 1}
    assert now.pods[0].requests == {"mig.nvidia.com": 2}
    assert now.pods[0].devices == ("uuid-gpu-0-mig-a", "uuid-gpu-0-mig-b")
    assert Watch(FakeCluster(lists), "labs").observe().nodes[0].offers == {"cpu": 4}, "no pool is claimed"


Condition = tuple[str, str, str]
NO_ROOM = "couldn't assign flavors to pod set main: insufficient unused quota, 1 more needed"
ADMITTED, DONE = ("Admitted", "True", "x"), ("Finished", "True", "x")
WAITS = ("QuotaReserved", "False", NO_ROOM)
EVICTED = ("Evicted", "True", "Preempted to accommodate a workload (UID: urgent, JobUID: x) due to y")
BACK = ("Evicted", "False", "Previously: Preempted")
WHY = "Preempted to accommodate Job arts/urgent due to y"


def history(**looks: list[tuple[Condition, ...] | None]) -> dict[str, QueuedWorkload]:
    """What is known of each workload after looks a second apart, by their conditions; None: not there."""
    lives: dict[str, QueuedWorkload] = {}
    for at in range(max(map(len, looks.values()))):
        objects = []
        for name, found in looks.items():
            if (conditions := found[at]) is not None:
                status = [dict(zip(("type", "status", "message"), item, strict=True)) for item in conditions]
                owner = {"ownerReferences": [{"kind": "Job", "name": name}]}
                meta = {"name": f"job-{name}", "namespace": "arts", "uid": name, **owner}
                objects.append({"metadata": meta, "spec": {}, "status": {"conditions": status}})
        lives = watching.update_queued(lives, objects, float(at))
    return {live.name: live for live in lives.values()}


def times(life: QueuedWorkload) -> list[tuple[float, str]]:
    return [(turn.at, turn.what) for turn in life.turns]


def test_a_preempted_job_returns_a_pod_does_not_and_one_waits_for_kueues_reason() -> None:
    lives = history(
        low=[(ADMITTED,), (WAITS, EVICTED), (WAITS, EVICTED), (ADMITTED, BACK), (ADMITTED, BACK, DONE)],
        late=[(), (WAITS,), (WAITS,), (WAITS,), (WAITS,)],
        pod=[(ADMITTED,), (ADMITTED, DONE, EVICTED), (ADMITTED, DONE, EVICTED), None, None],
        urgent=[None, (ADMITTED,), (ADMITTED,), None, None],
    )
    low, late, pod, urgent = lives.values()
    assert times(low)[1:] == [(0, "admitted"), (1, "evicted"), (3, "admitted"), (4, "finished")]
    assert (late.turns, late.waits) == ((Transition(0.0, "created"),), NO_ROOM)
    assert pod.turns[2] == Transition(1.0, "evicted", WHY)
    assert times(urgent) == [(1, "created"), (1, "admitted"), (3, "removed")]
    assert [item.name for item in watching.in_queue("", lives.values())] == ["low", "pod", "urgent", "late"]


@pytest.mark.parametrize("after", [(ADMITTED, DONE, EVICTED), (WAITS, EVICTED)])
def test_an_evicted_pods_trouble_is_its_queue(after: tuple[Condition, ...]) -> None:
    lives = history(pod=[(ADMITTED,), after, None], urgent=[(ADMITTED,), (ADMITTED,), (ADMITTED,)])
    ((where, pod),) = watching.held_back(lives.values()).items()
    assert where == ("arts", "pod")
    assert pod.trouble == f"queue  ended it, and nothing creates it again: {WHY}"

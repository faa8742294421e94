"""Watching a cluster: when nodes and pods came and changed, devices by claim, workloads in queues."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.kinds import RESOURCE_CLAIM, RESOURCE_SLICE
from gpuform.usage.nodes import Pod
from gpuform.usage.queues import QueuedWorkload, Transition
from infra.config import parse
from infra.model.base.prices import PriceList
from infra.model.workload.workload import PodWorkload
from lab.rehearse import watch as watching
from lab.rehearse.cluster import NODE_CLAIMS, NODES, PODS
from lab.rehearse.cost_report import CostReport
from lab.rehearse.watch import Snapshot, Watch
from lab.rehearse.workloads import refusals
from tests.lab.rehearse.fake_cluster import FakeCluster
from tests.lab.rehearse.test_cost_report import node as costly
from tests.plan.aws_environments import CLAIMED, aws
from tests.reports.test_queues import NO_ROOM, workload

pytestmark = pytest.mark.unit


def node(name: str, ready: bool = True, held: bool = False) -> dict[str, Any]:
    taints = [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}] if held else []
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}, "status": status}


def pod(name: str, node: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "w", "gpuform.io/environment": "lab"}
    meta = {"namespace": "a", "name": name, "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def test_a_node_comes_is_let_in_is_used_and_goes() -> None:
    cluster = FakeCluster()
    watch = Watch(cluster, "lab")
    watch.observe()
    assert watch.lives == {}
    for nodes, pods in (
        ([node("n", held=True)], []),
        ([node("n")], []),
        ([node("n")], [pod("p", "n")]),
        ([], []),
    ):
        cluster.lists |= {NODES: nodes, PODS: pods}
        watch.observe()
    life = watch.lives["n"]
    assert life.ready is not None
    assert life.removed is not None
    assert life.joined < life.ready < life.removed
    assert life.used


def test_a_node_that_is_kept_free_is_not_in_vain_and_nothing_of_it_is_taken() -> None:
    cluster = FakeCluster()
    holder = {"metadata": {"namespace": "gpuform-placeholder", "name": "spare"}, "spec": {"nodeName": "n"}}
    cluster.lists |= {NODES: [node("n"), node("idle")], PODS: [{**holder, "status": {"phase": "Running"}}]}
    watch = Watch(cluster, "lab")
    now = watch.observe()
    assert {name: life.used for name, life in watch.lives.items()} == {"n": True, "idle": False}
    assert now.pods_on("n") == ()


def test_a_node_that_is_held_back_is_not_ready() -> None:
    cluster = FakeCluster()
    cluster.lists[NODES] = [node("held", held=True), node("down", ready=False), node("up")]
    watch = Watch(cluster, "lab")
    watch.observe()
    assert {name: life.ready is not None for name, life in watch.lives.items()} == {
        "held": False,
        "down": False,
        "up": True,
    }


def test_it_waits_until_it_is_done() -> None:
    cluster = FakeCluster()
    watch = Watch(cluster, "lab")
    with watch.running():
        cluster.lists[NODES] = [node("n")]
        assert watch.wait_until(lambda now: bool(now.nodes), quiet_s=5, timeout_s=5)


def test_it_gives_up_when_nothing_changes_any_more() -> None:
    watch = Watch(FakeCluster(), "lab")
    began = time.monotonic()
    with watch.running():
        assert not watch.wait_until(lambda now: False, quiet_s=0.2, timeout_s=600)
    assert time.monotonic() - began < 600


def test_a_cluster_that_does_not_answer_for_a_while_is_waited_for() -> None:
    cluster = FakeCluster()
    cluster.fails = True
    watch = Watch(cluster, "lab")
    with watch.running():
        assert not watch.wait_until(lambda now: True, quiet_s=0.7, timeout_s=5)
        cluster.fails = False
        assert watch.wait_until(lambda now: True, quiet_s=5, timeout_s=5)


def test_an_object_that_is_not_understood_is_said_and_not_waited_for() -> None:
    cluster = FakeCluster()
    cluster.lists[NODES] = [{"metadata": {}}]
    watch = Watch(cluster, "lab")
    with watch.running(), pytest.raises(Failure, match="cannot be read"):
        watch.wait_until(lambda now: False, quiet_s=30, timeout_s=30)


def test_a_nodeclaim_that_moves_on_is_a_change() -> None:
    def claim(*true: str) -> dict[str, Any]:
        conditions = [{"type": item, "status": "True"} for item in true]
        return {"metadata": {"name": "c"}, "status": {"conditions": conditions}}

    cluster = FakeCluster()
    states: list[Snapshot] = []
    watch = Watch(cluster, "lab")
    for entry in (claim(), claim("Launched"), claim("Launched", "Registered")):
        cluster.lists[NODE_CLAIMS] = [entry]
        states.append(watch.observe())
    assert [now.claims for now in states] == [
        (("c", ""),),
        (("c", "Launched"),),
        (("c", "Launched Registered"),),
    ]
    assert len({now.state for now in states}) == 3


def device(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "attributes": {"type": {"string": kind}, "uuid": {"string": f"uuid-{name}"}}}


def claim(**allocated: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "mig.nvidia.com", "count": 2}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {"metadata": {"namespace": "lab", "name": "a-gpu-x"}, "spec": spec, "status": allocated}


SLICE = {
    "driver": "gpu.nvidia.com",
    "nodeName": "n",
    "pool": {"name": "n", "generation": 1},
    "devices": [device("gpu-0-mig-a", "mig"), device("gpu-0-mig-b", "mig"), device("gpu-1", "gpu")],
}
RESULTS = [{"pool": "n", "device": f"gpu-0-mig-{name}", "driver": "gpu.nvidia.com"} for name in "ab"]
STATUS = {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
FOUND: dict[str, list[dict[str, Any]]] = {
    NODES: [{"metadata": {"name": "n", "uid": "u"}, "status": {"allocatable": {"cpu": "4"}}}],
    PODS: [{"metadata": {"name": "a", "namespace": "lab"}, "spec": {"containers": [{}]}, "status": STATUS}],
    RESOURCE_SLICE.path(): [{"spec": SLICE}],
    RESOURCE_CLAIM.path(): [claim(allocation={"devices": {"results": RESULTS}})],
}


def test_they_count_by_class_and_are_known_by_their_uuid() -> None:
    now = Watch(FakeCluster(FOUND), "labs", by_claim=True).observe()
    assert now.nodes[0].offers == {"cpu": 4, "mig.nvidia.com": 2, "gpu.nvidia.com": 1}
    assert now.pods[0].requests == {"mig.nvidia.com": 2}
    assert now.pods[0].devices == ("uuid-gpu-0-mig-a", "uuid-gpu-0-mig-b")


def test_nobody_looks_where_no_pool_is_claimed() -> None:
    assert Watch(FakeCluster(FOUND), "labs").observe().nodes[0].offers == {"cpu": 4}


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"gpu": {"compute": "8.9"}}, []),
        ({"gpu": {"compute": "9.0"}}, [("p0", "compute capability 9.0 or later, its models are L4")]),
        ({"count": 5}, [("p0", "GPUs, 5 requested of 4 for claims")]),
        ({"slice": "1g.5gb"}, [("p0", "slice, it has whole GPUs for claims, not 1g.5gb")]),
    ],
)
def test_a_workload_that_claims_hears_what_its_pool_cannot_give(
    requests: dict[str, Any], message: list[tuple[str, str]]
) -> None:
    work = PodWorkload.model_validate(
        {"kind": "pod", "name": "w", "pool": "p0", "image": "registry.example/w:1", **requests}
    )
    assert list(refusals(aws(CLAIMED), work)) == message


ADMITTED, DONE = ("Admitted", "True", "x"), ("Finished", "True", "x")
WAITS = ("QuotaReserved", "False", NO_ROOM)
EVICTED = ("Evicted", "True", "Preempted to accommodate a workload (UID: job-urgent, JobUID: x) due to y")
BACK = ("Evicted", "False", "Previously: Preempted")
WHY = "Preempted to accommodate Job arts/urgent due to y"


def history(**looks: list[tuple[tuple[str, str, str], ...] | None]) -> dict[str, QueuedWorkload]:
    """What is known of each workload after looks a second apart, by their conditions; None: not there."""
    lives: dict[str, QueuedWorkload] = {}
    for at in range(max(map(len, looks.values()))):
        objects = [
            workload(name, "arts", *output) for name, of in looks.items() if (output := of[at]) is not None
        ]
        for item in objects:
            item["metadata"]["uid"] = item["metadata"]["name"]
        lives = watching.update_queued(lives, objects, float(at))
    return {live.name: live for live in lives.values()}


def times(life: QueuedWorkload) -> list[tuple[float, str]]:
    return [(turn.at, turn.what) for turn in life.turns]


def test_a_preempted_workload_returns_a_pod_does_not_and_one_waits_for_kueues_reason() -> None:
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
def test_the_trouble_of_a_pod_that_was_evicted_is_its_queue(after: tuple[tuple[str, str, str], ...]) -> None:
    lives = history(pod=[(ADMITTED,), after, None], urgent=[(ADMITTED,), (ADMITTED,), (ADMITTED,)])
    ((where, pod),) = watching.held_back(lives.values()).items()
    assert where == ("arts", "pod")
    assert pod.trouble == f"queue  ended it, and nothing creates it again: {WHY}"


def test_a_queue_costs_the_part_of_gpus_that_its_pods_hold() -> None:
    env = parse(
        yaml.safe_load("""
            name: e
            cluster: {kind: embedded}
            pools: [{name: p0, machine: p4d.24xlarge, nodes: 1}, {name: own, machine: g1.4xlarge, nodes: 1}]
            queues:
              teams:
              - {name: arts, namespaces: [arts], quota: {p0: 8}}
              - {name: science, namespaces: [science], quota: {p0: 8}}
            workloads:
            - {kind: pod, pool: p0, image: "a:1", name: a, namespace: arts, queue: arts}
            - {kind: pod, pool: p0, image: "a:1", name: a, namespace: science, queue: science}
            - {kind: pod, pool: p0, image: "a:1", name: free, namespace: arts}
        """)
    )
    gpus = {"nvidia.com/gpu": 2.0}
    nodes = [costly(pool.name, pool.machine, {"nvidia.com/gpu": 8.0}, gpus=8) for pool in env.pools]
    objects = [Pod("arts", name, name, "p0-n", "Running", gpus) for name in ("a", "free")]
    costs = CostReport(env, PriceList())
    assert costs.queue_usd("arts", Snapshot(1.0, tuple(nodes), tuple(objects))) == pytest.approx(21.9576 / 4)
    assert costs.queue_usd("science", Snapshot(1.0, tuple(nodes), tuple(objects))) == 0
    objects.append(Pod("science", "a", "a", "own-n", "Running", gpus))
    assert costs.queue_usd("science", Snapshot(1.0, tuple(nodes), tuple(objects))) is None, (
        "its machine has no price"
    )

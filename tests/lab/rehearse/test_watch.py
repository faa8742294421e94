"""Watching a cluster: when each node and pod came, what changed, and when the wait is over."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from lab.rehearse.cluster import NODE_CLAIMS, NODES, PODS, Cluster
from lab.rehearse.watch import Snapshot, Watch

pytestmark = pytest.mark.unit


class Played(Cluster):
    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {NODES: [], PODS: [], NODE_CLAIMS: []}
        self.fails = False

    def items(self, path: str) -> list[dict[str, Any]]:
        if self.fails:
            raise Failure("the control plane", "is gone", "wait")
        return self.lists.get(path, [])


def node(name: str, ready: bool = True, held: bool = False) -> dict[str, Any]:
    taints = [{"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}] if held else []
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return {"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}, "status": status}


def pod(name: str, node: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "w", "gpuform.io/environment": "lab"}
    meta = {"namespace": "a", "name": name, "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def test_a_node_comes_is_let_in_is_used_and_goes() -> None:
    cluster = Played()
    watch = Watch(cluster, "lab")
    watch.look()
    assert watch.lives == {}
    for nodes, pods in (
        ([node("n", held=True)], []),
        ([node("n")], []),
        ([node("n")], [pod("p", "n")]),
        ([], []),
    ):
        cluster.lists |= {NODES: nodes, PODS: pods}
        watch.look()
    life = watch.lives["n"]
    assert life.ready is not None
    assert life.gone is not None
    assert life.born < life.ready < life.gone
    assert life.used


def test_a_node_that_is_kept_free_is_not_in_vain_and_nothing_of_it_is_taken() -> None:
    cluster = Played()
    holder = {"metadata": {"namespace": "gpuform-placeholder", "name": "spare"}, "spec": {"nodeName": "n"}}
    cluster.lists |= {NODES: [node("n"), node("idle")], PODS: [{**holder, "status": {"phase": "Running"}}]}
    watch = Watch(cluster, "lab")
    now = watch.look()
    assert {name: life.used for name, life in watch.lives.items()} == {"n": True, "idle": False}
    assert now.on("n") == ()


def test_a_node_that_is_held_back_is_not_ready() -> None:
    cluster = Played()
    cluster.lists[NODES] = [node("held", held=True), node("down", ready=False), node("up")]
    watch = Watch(cluster, "lab")
    watch.look()
    assert {name: life.ready is not None for name, life in watch.lives.items()} == {
        "held": False,
        "down": False,
        "up": True,
    }


def test_it_waits_until_it_is_done() -> None:
    cluster = Played()
    watch = Watch(cluster, "lab")
    with watch.running():
        cluster.lists[NODES] = [node("n")]
        assert watch.until(lambda now: bool(now.nodes), quiet_s=5, timeout_s=5)


def test_it_gives_up_when_nothing_changes_any_more() -> None:
    watch = Watch(Played(), "lab")
    began = time.monotonic()
    with watch.running():
        assert not watch.until(lambda now: False, quiet_s=0.2, timeout_s=600)
    assert time.monotonic() - began < 600


def test_a_cluster_that_does_not_answer_for_a_while_is_waited_for() -> None:
    cluster = Played()
    cluster.fails = True
    watch = Watch(cluster, "lab")
    with watch.running():
        assert not watch.until(lambda now: True, quiet_s=0.7, timeout_s=5)
        cluster.fails = False
        assert watch.until(lambda now: True, quiet_s=5, timeout_s=5)


def test_an_object_that_is_not_understood_is_said_and_not_waited_for() -> None:
    cluster = Played()
    cluster.lists[NODES] = [{"metadata": {}}]
    watch = Watch(cluster, "lab")
    with watch.running(), pytest.raises(Failure, match="cannot be read"):
        watch.until(lambda now: False, quiet_s=30, timeout_s=30)


def test_a_nodeclaim_that_moves_on_is_a_change() -> None:
    def claim(*true: str) -> dict[str, Any]:
        conditions = [{"type": one, "status": "True"} for one in true]
        return {"metadata": {"name": "c"}, "status": {"conditions": conditions}}

    cluster = Played()
    states: list[Snapshot] = []
    watch = Watch(cluster, "lab")
    for one in (claim(), claim("Launched"), claim("Launched", "Registered")):
        cluster.lists[NODE_CLAIMS] = [one]
        states.append(watch.look())
    assert [now.claims for now in states] == [
        (("c", ""),),
        (("c", "Launched"),),
        (("c", "Launched Registered"),),
    ]
    assert len({now.state for now in states}) == 3

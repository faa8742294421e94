"""The played cluster-autoscaler at work on a cluster of dicts: what it makes, says and takes away."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gpuform.rehearse.autoscaler import keeper
from gpuform.rehearse.autoscaler.keeper import Autoscaler
from gpuform.rehearse.cluster import NODES, PODS, Cluster
from tests.rehearse.test_autoscaler import group, node, pod

pytestmark = pytest.mark.unit

Json = dict[str, Any]
MODEL: Json = {"metadata": {"name": "ci", "labels": {}}}


class Cards:
    """A cluster of dicts; what it was told is in ``done``."""

    def __init__(self, nodes: list[Json], pods: list[Json]) -> None:
        self.held = {NODES: nodes, PODS: pods}
        self.done: list[tuple[str, ...]] = []
        self.budget = True

    def items(self, path: str) -> list[Json]:
        return self.held[path]

    def create(self, path: str, body: Json) -> None:
        if path == NODES:
            self.done.append(("make", body["metadata"]["name"]))
        else:
            about = body["involvedObject"]
            self.done.append(("say", about["name"], body["reason"], body["message"]))

    def patch(self, path: str, body: Json) -> None:
        self.done.append(("cordon" if body["spec"]["unschedulable"] else "uncordon", path.split("/")[-1]))

    def evict(self, namespace: str, name: str) -> bool:
        self.done.append(("evict", name))
        return self.budget

    def delete(self, path: str) -> None:
        self.done.append(("delete", path.split("/")[-1]))


def site(nodes: list[Json], pods: list[Json], monkeypatch: pytest.MonkeyPatch) -> tuple[Autoscaler, Cards]:
    """An autoscaler that waits for nothing."""
    monkeypatch.setattr(keeper, "HURRIED_S", 0.0)
    cards = Cards(nodes, pods)
    made = Autoscaler(cast(Cluster, cards), [group(model=MODEL)])
    return made, cards


def test_it_makes_nodes_up_to_the_most_and_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(str(number), gpus=2) for number in range(4)]
    scaler, cards = site([node("ci-0")], pods, monkeypatch)
    scaler.look()
    assert [one for one in cards.done if one[0] == "make"] == [("make", "ci-1"), ("make", "ci-2")]
    said = {one[1]: one[2:] for one in cards.done if one[0] == "say"}
    assert said["1"] == ("TriggeredScaleUp", "group ci grows for it")
    assert said["3"] == ("NotTriggerScaleUp", "pod didn't trigger scale-up: group ci has all of its 3 nodes")
    assert "0" not in said, "it fits on the node that is there"
    cards.done.clear()
    cards.held[NODES] += [node("ci-1", gpus=0), node("ci-2", gpus=0)]
    scaler.look()
    assert cards.done == [], "what it has said and ordered it does not say and order again"


def test_nothing_goes_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler, cards = site([node("ci-0"), node("ci-1")], [], monkeypatch)
    scaler.look()
    assert cards.done == []
    scaler.hurry()
    scaler.look()
    assert cards.done == [("cordon", "ci-1")]
    scaler.look()
    assert cards.done[1:] == [
        ("say", "ci-1", "ScaleDown", "taken out of group ci: Empty: no pod was left on it"),
        ("delete", "ci-1"),
    ]


@pytest.mark.parametrize("seen", [True, False], ids=["seen by the scheduler", "not seen yet"])
def test_nothing_goes_while_a_pod_is_on_its_way(seen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    late = pod("late")
    if not seen:
        late["status"] = {"phase": "Pending"}
    scaler, cards = site([node("ci-0"), node("ci-1")], [pod("a", "ci-0"), late], monkeypatch)
    scaler.hurry()
    scaler.look()
    assert cards.done == []


def test_pods_move_one_node_at_a_time_and_leave_before_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("ci-0"), node("ci-1"), node("ci-2")]
    pods = [pod("a", "ci-0"), pod("b", "ci-1"), pod("c", "ci-2")]
    scaler, cards = site(nodes, pods, monkeypatch)
    scaler.hurry()
    scaler.look()
    assert cards.done == [("cordon", "ci-2")]
    nodes[2]["spec"]["unschedulable"] = True
    scaler.look()
    assert cards.done[1:] == [("evict", "c")]
    cards.held[PODS] = [*pods[:2], pod("late", "ci-2")]  # placed before the scheduler knew
    scaler.look()
    assert cards.done[2:] == [("evict", "late")]
    cards.held[PODS] = pods[:2]
    scaler.look()
    assert [one[:2] for one in cards.done[3:]] == [("say", "ci-2"), ("delete", "ci-2")]


def test_a_budget_that_keeps_a_pod_keeps_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler, cards = site([node("ci-0"), node("ci-1")], [pod("a", "ci-0"), pod("b", "ci-1")], monkeypatch)
    scaler.hurry()
    cards.budget = False
    scaler.look()
    scaler.look()
    assert cards.done == [("cordon", "ci-1"), ("evict", "b"), ("uncordon", "ci-1")]
    assert scaler.stays == ()

"""The pool keeper's decisions for a node; without a server."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from infra.incluster import pool_keeper
from infra.incluster.pool_keeper import gift, pool_of

pytestmark = pytest.mark.unit

GROUP = "magnum.openstack.org/nodegroup"
GPU = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
STARTUP = {"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}
POOL: dict[str, Any] = {
    "selector": {GROUP: "a"},
    "manager": "gpuform-pool-a",
    "labels": {"gpuform.io/pool": "a", "team": "x"},
    "taints": [GPU],
    "startup": {"taints": [STARTUP], "proof": "gpuform.io/gpu-ready"},
    "layout": {"config": "all-1g.10gb", "content": "1234"},
}
POOLS = {"a": POOL, "b": {**POOL, "selector": {GROUP: "b"}}}


def node(
    labels: dict[str, str] | None = None, notes: dict[str, str] | None = None, *taints: Any, **meta: Any
) -> dict[str, Any]:
    own = {"name": "n", "uid": "1", "labels": labels or {}, "annotations": notes or {}, **meta}
    return {"metadata": own, "spec": {"taints": list(taints)} if taints else {}}


@pytest.mark.parametrize(
    ("found", "pool"),
    [
        (node({GROUP: "a"}), "a"),
        (node({GROUP: "b"}), "b"),
        (node({GROUP: "default-worker"}), None),
        (node(), None),
        (node({GROUP: "a", "gpuform.io/environment": "e"}), None),  # it is in its pool
        (node({GROUP: "a", "gpuform.io/pool": "a"}), "a"),  # it had only this label from the start
        (node({GROUP: "a"}, {"gpuform.io/relayout": "{}"}), None),
        (node({GROUP: "a"}, deletionTimestamp="2026-11-22T10:00:00Z"), None),
        ({"metadata": {"name": "n"}, "spec": {}}, None),
    ],
)
def test_whose_a_node_is(found: dict[str, Any], pool: str | None) -> None:
    assert pool_of(found, POOLS) == pool


def test_a_fresh_node_gets_all_of_it() -> None:
    found = gift(node(), POOL)
    assert found.labels == POOL["labels"]
    assert found.taints == [GPU, STARTUP]
    assert found.layout == {"nvidia.com/mig.config": "all-1g.10gb"}
    assert found.notes == {"gpuform.io/mig-layout": "1234"}
    assert found.left == ()


def test_taints_of_others_stay_and_those_that_are_there_come_once() -> None:
    other = {"key": "team", "effect": "NoExecute"}
    found = gift(node(None, None, other, STARTUP), POOL)
    assert found.taints == [other, STARTUP, GPU]


def test_the_same_key_with_another_effect_is_another_taint() -> None:
    harder = {**GPU, "effect": "NoExecute"}
    assert gift(node(None, None, harder), POOL).taints == [harder, GPU, STARTUP]


def test_a_proven_node_gets_no_startup_taint_and_one_that_was_laid_out_no_layout() -> None:
    noted = {"gpuform.io/gpu-ready": "{}"}
    found = gift(node({"nvidia.com/mig.config": "all-disabled"}, noted), POOL)
    assert (found.taints, found.layout, found.notes) == ([GPU], {}, {})


def test_another_value_is_left_and_told() -> None:
    found = gift(node({"team": "y"}, None, {**GPU, "value": "no"}), POOL)
    assert found.labels == {"gpuform.io/pool": "a"}
    assert found.taints == [{**GPU, "value": "no"}, STARTUP]
    assert found.left == (
        "the taint nvidia.com/gpu=no:NoSchedule, and not 'true'",
        "the label team=y, and not 'x'",
    )


def test_a_pool_without_gpus_gets_labels_alone() -> None:
    plain = {"selector": {GROUP: "a"}, "manager": "m", "labels": {"gpuform.io/pool": "a"}, "taints": []}
    assert gift(node(), plain) == pool_keeper.Gift({"gpuform.io/pool": "a"}, [], {}, {}, ())


CONFIG = "nvidia.com/mig.config"
IN_GROUP = {"gpuform.io/pool": "a", "gpuform.io/environment": "e"}
BORN: dict[str, Any] = {
    "selector": IN_GROUP,
    "labels": {},
    "taints": [],
    "startup": {"taints": [], "proof": "gpuform.io/gpu-ready"},
    "layout": {"config": "all-1g.10gb"},
}


def test_a_node_of_an_eks_group_gets_its_layout_alone() -> None:
    found = node(IN_GROUP, None, GPU, STARTUP)
    assert pool_of(found, {"a": BORN}) == "a"
    assert gift(found, BORN) == pool_keeper.Gift({}, [GPU, STARTUP], {CONFIG: "all-1g.10gb"}, {}, ())
    assert pool_of(node({**IN_GROUP, "gpuform.io/pool": "b"}), {"a": BORN}) is None
    assert pool_of(node(IN_GROUP, {"gpuform.io/relayout": "{}"}), {"a": BORN}) is None


def test_nodes_that_may_lack_something_are_watched() -> None:
    assert pool_keeper.watched(POOLS) == "!gpuform.io/environment"
    other = {**BORN, "layout": {"config": "all-2g.20gb"}}
    assert pool_keeper.watched({"b": BORN, "a": other}) == (
        "gpuform.io/pool in (a,b),nvidia.com/mig.config notin (all-1g.10gb,all-2g.20gb)"
    )


@pytest.mark.parametrize(
    ("config", "notes", "layout"),
    [
        ({CONFIG: "all-disabled"}, {}, {CONFIG: "all-1g.10gb"}),  # the operator's default, before ours
        ({CONFIG: "all-3g.40gb"}, {}, {}),
        ({CONFIG: "all-1g.10gb"}, {}, {}),
        ({CONFIG: "all-disabled"}, {"gpuform.io/gpu-ready": "{}"}, {}),
        ({}, {"gpuform.io/gpu-ready": "{}"}, {}),
    ],
)
def test_a_layout_is_set_on_nodes_without_one_until_they_are_proven(
    config: dict[str, str], notes: dict[str, str], layout: dict[str, str]
) -> None:
    assert gift(node({**IN_GROUP, **config}, notes), BORN).layout == layout


class Server:
    """Records what the keeper changes; its watch delivers these nodes."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes, self.changed, self.owned = nodes, list[Any](), list[Any]()

    def watch(self, selector: str, seconds: float) -> Any:
        assert selector == pool_keeper.watched({"a": BORN})
        yield from self.nodes

    def change(self, node: Any, notes: Any, taints: Any, layout: Any) -> None:
        self.changed.append((notes, taints, layout))

    def call(self, method: str, path: str, query: dict[str, str], *body: Any) -> None:
        self.owned.append(query["fieldManager"])


def test_labels_of_an_eks_group_stay_with_eks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool_keeper, "PAUSE_S", 0.0)
    fresh, cut = node(IN_GROUP, None, GPU), node({**IN_GROUP, CONFIG: "all-3g.40gb"}, uid="2")
    server: Any = Server(fresh, cut)
    pool_keeper.Keeper(server, {"a": BORN}).watch(0)
    assert server.changed == [({}, [GPU], {CONFIG: "all-1g.10gb"})]
    assert server.owned == []
    assert capsys.readouterr().out == "n is in pool a, its layout all-1g.10gb\n"


@pytest.mark.parametrize(("age_s", "pool"), [(60, "a"), (7200, None)])
def test_an_old_node_that_comes_to_match_is_left_to_an_update(age_s: int, pool: str | None) -> None:
    """Its pods may hold more than it would offer: `up` compares that, and drains it for a layout."""
    joined = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
    found = node({GROUP: "a"}, creationTimestamp=joined.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert pool_of(found, {"a": {**POOL, "joined_within": 3600}}) == pool

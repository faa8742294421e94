"""The pool keeper's decisions for a node; without a server."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from infra.incluster import pool_keeper
from infra.incluster.pool_keeper import missing_values, pool_of

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
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, *taints: Any, **meta: Any
) -> dict[str, Any]:
    metadata = {"name": "n", "uid": "1", "labels": labels or {}, "annotations": annotations or {}, **meta}
    return {"metadata": metadata, "spec": {"taints": list(taints)} if taints else {}}


@pytest.mark.parametrize(
    ("node_", "pool"),
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
def test_pool_of_a_node_is_that_of_its_group(node_: dict[str, Any], pool: str | None) -> None:
    assert pool_of(node_, POOLS) == pool


def test_a_fresh_node_gets_labels_taints_and_layout() -> None:
    changes = missing_values(node(), POOL)
    assert changes.labels == POOL["labels"]
    assert changes.taints == [GPU, STARTUP]
    assert changes.layout == {"nvidia.com/mig.config": "all-1g.10gb"}
    assert changes.annotations == {"gpuform.io/mig-layout": "1234"}
    assert changes.conflicts == ()


def test_taints_of_others_stay_and_those_that_are_there_come_once() -> None:
    other = {"key": "team", "effect": "NoExecute"}
    changes = missing_values(node(None, None, other, STARTUP), POOL)
    assert changes.taints == [other, STARTUP, GPU]


def test_the_same_key_with_another_effect_is_another_taint() -> None:
    harder = {**GPU, "effect": "NoExecute"}
    assert missing_values(node(None, None, harder), POOL).taints == [harder, GPU, STARTUP]


def test_a_proven_node_gets_no_startup_taint_and_one_that_was_laid_out_no_layout() -> None:
    annotations = {"gpuform.io/gpu-ready": "{}"}
    changes = missing_values(node({"nvidia.com/mig.config": "all-disabled"}, annotations), POOL)
    assert (changes.taints, changes.layout, changes.annotations) == ([GPU], {}, {})


def test_a_value_of_others_is_left_and_told() -> None:
    changes = missing_values(node({"team": "y"}, None, {**GPU, "value": "no"}), POOL)
    assert changes.labels == {"gpuform.io/pool": "a"}
    assert changes.taints == [{**GPU, "value": "no"}, STARTUP]
    assert changes.conflicts == (
        "the taint nvidia.com/gpu=no:NoSchedule, and not 'true'",
        "the label team=y, and not 'x'",
    )


def test_gkes_value_of_the_gpu_taint_is_enough() -> None:
    changes = missing_values(node(None, None, {**GPU, "value": "present"}), POOL)
    assert (changes.taints, changes.conflicts) == ([{**GPU, "value": "present"}, STARTUP], ())


def test_a_pool_without_gpus_gets_labels_alone() -> None:
    plain = {"selector": {GROUP: "a"}, "manager": "m", "labels": {"gpuform.io/pool": "a"}, "taints": []}
    assert missing_values(node(), plain) == pool_keeper.NodeChanges({"gpuform.io/pool": "a"}, [], {}, {}, ())


CONFIG = "nvidia.com/mig.config"
IN_GROUP = {"gpuform.io/pool": "a", "gpuform.io/environment": "e"}
EKS_POOL: dict[str, Any] = {
    "selector": IN_GROUP,
    "labels": {},
    "taints": [],
    "startup": {"taints": [], "proof": "gpuform.io/gpu-ready"},
    "layout": {"config": "all-1g.10gb"},
}


def test_a_node_of_an_eks_group_gets_its_layout_alone() -> None:
    node_ = node(IN_GROUP, None, GPU, STARTUP)
    assert pool_of(node_, {"a": EKS_POOL}) == "a"
    assert missing_values(node_, EKS_POOL) == pool_keeper.NodeChanges(
        {}, [GPU, STARTUP], {CONFIG: "all-1g.10gb"}, {}, ()
    )
    assert pool_of(node({**IN_GROUP, "gpuform.io/pool": "b"}), {"a": EKS_POOL}) is None
    assert pool_of(node(IN_GROUP, {"gpuform.io/relayout": "{}"}), {"a": EKS_POOL}) is None


def test_nodes_that_may_lack_something_are_watched() -> None:
    assert pool_keeper.node_selector(POOLS) == "!gpuform.io/environment"
    other = {**EKS_POOL, "layout": {"config": "all-2g.20gb"}}
    assert pool_keeper.node_selector({"b": EKS_POOL, "a": other}) == (
        "gpuform.io/pool in (a,b),nvidia.com/mig.config notin (all-1g.10gb,all-2g.20gb)"
    )


@pytest.mark.parametrize(
    ("config", "annotations", "layout"),
    [
        ({CONFIG: "all-disabled"}, {}, {CONFIG: "all-1g.10gb"}),  # the operator's default, before ours
        ({CONFIG: "all-3g.40gb"}, {}, {}),
        ({CONFIG: "all-1g.10gb"}, {}, {}),
        ({CONFIG: "all-disabled"}, {"gpuform.io/gpu-ready": "{}"}, {}),
        ({}, {"gpuform.io/gpu-ready": "{}"}, {}),
    ],
)
def test_a_layout_is_set_on_nodes_without_one_until_they_are_proven(
    config: dict[str, str], annotations: dict[str, str], layout: dict[str, str]
) -> None:
    assert missing_values(node({**IN_GROUP, **config}, annotations), EKS_POOL).layout == layout


class FakeServer:
    """Records what the keeper changes; its watch delivers these nodes."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.nodes, self.changed, self.owned = nodes, list[Any](), list[Any]()

    def watch(self, selector: str, seconds: float) -> Any:
        assert selector == pool_keeper.node_selector({"a": EKS_POOL})
        yield from self.nodes

    def change_node(self, node: Any, annotations: Any, taints: Any, layout: Any) -> None:
        self.changed.append((annotations, taints, layout))

    def request(self, method: str, path: str, query: dict[str, str], *body: Any) -> None:
        self.owned.append(query["fieldManager"])


def test_labels_of_an_eks_group_stay_with_eks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pool_keeper, "PAUSE_S", 0.0)
    fresh, cut = node(IN_GROUP, None, GPU), node({**IN_GROUP, CONFIG: "all-3g.40gb"}, uid="2")
    server: Any = FakeServer(fresh, cut)
    pool_keeper.Keeper(server, {"a": EKS_POOL}).watch(0)
    assert server.changed == [({}, [GPU], {CONFIG: "all-1g.10gb"})]
    assert server.owned == []
    assert capsys.readouterr().out == "n is in pool a, its layout all-1g.10gb\n"


@pytest.mark.parametrize(("age_s", "pool"), [(60, "a"), (7200, None)])
def test_an_old_node_that_comes_to_match_is_left_to_an_update(age_s: int, pool: str | None) -> None:
    """Its pods may hold more than it would offer: `up` compares that, and drains it for a layout."""
    joined = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
    node_ = node({GROUP: "a"}, creationTimestamp=joined.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert pool_of(node_, {"a": {**POOL, "joined_within": 3600}}) == pool

"""The pool keeper's decisions for a node; without a server."""

from __future__ import annotations

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

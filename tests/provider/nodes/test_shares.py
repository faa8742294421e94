"""Nodes that change between device plugin, claims and slices while pods use their GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.provider.nodes.shares import claimed, moves, overdrawn
from infra.config import parse
from infra.plan.sharing import device_plugin_change, pool_labels

pytestmark = pytest.mark.unit

SLICED = {"kind": "time_slicing", "replicas": 4}
CUT = {"kind": "mig", "layout": {"3g.20gb": 2}}
REFUSE = {"relayout": {"in_use": "refuse"}}


def inputs(sharing: dict[str, Any], **more: Any) -> dict[str, Any]:
    pool = {"name": "a", "gpu": {"models": ["A100-40GB"], "count": 2}, "selector": {"p": "a"}}
    found = {
        "name": "e",
        "cluster": {"kind": "existing", "kubeconfig": "/k"},
        "gpu_operator": {"mig_strategy": "mixed"},
        "pools": [{**pool, "sharing": sharing, **more}],
    }
    env = parse(found)
    (only,) = env.pools
    return {"labels": pool_labels(env, only), "sharing": device_plugin_change(env, only)}


def node(sharing: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": inputs(sharing)["labels"]}}


def pod(resource: str = "") -> dict[str, Any]:
    limits = {resource: "1"} if resource else {}
    return {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"containers": [{"resources": {"limits": limits}}]},
    }


@pytest.mark.parametrize(
    ("before", "after", "resource"),
    [
        (SLICED, inputs({"kind": "dra"}), "nvidia.com/gpu.shared"),
        ({"kind": "exclusive"}, inputs({"kind": "dra"}), "nvidia.com/gpu"),
        # The relayout would refuse as well, but only after the plugin has been changed.
        (SLICED, inputs(CUT, **REFUSE), "nvidia.com/gpu.shared"),
    ],
)
def test_what_is_held_of_the_device_plugin_is_not_given_away_again(
    before: dict[str, Any], after: dict[str, Any], resource: str
) -> None:
    assert moves(node(before), after)
    assert not claimed(node(before), after)
    assert f"its pods would use 1 {resource} of 0" in overdrawn(node(before), after, [pod(resource)])
    assert overdrawn(node(before), after, [pod()]) == ""


def test_what_is_claimed_is_not_given_away_by_the_device_plugin() -> None:
    before, after = node({"kind": "dra"}), inputs(SLICED)
    assert moves(before, after)
    assert claimed(before, after)
    assert overdrawn(before, after, [pod()]) == ""
    assert overdrawn(before, after, [pod()], [pod()]) == (
        "node n: its pods have GPUs by ResourceClaim, which the device plugin does not know (d/p); "
        "let them end, or scale them down, and run again"
    )


def test_nothing_is_asked_where_nothing_changes_or_the_relayout_drains() -> None:
    assert not moves(node({"kind": "dra"}), inputs({"kind": "dra"}))
    assert not moves(node(SLICED), inputs(CUT))
    assert not moves(node({"kind": "exclusive"}), inputs({"kind": "exclusive"}))


def test_shares_of_slices_count_where_the_layout_stays_whatever_a_relayout_may_do() -> None:
    before = node({**CUT, "share": {"replicas": 4}})
    before["metadata"]["labels"]["nvidia.com/mig.config"] = "all-3g.20gb"
    after = inputs({**CUT, "share": {"replicas": 2}}, **REFUSE)
    assert moves(before, after)
    assert overdrawn(before, after, [pod("nvidia.com/mig-3g.20gb.shared")]) == ""
    many = [pod("nvidia.com/mig-3g.20gb.shared")] * 9
    assert "would use 9 nvidia.com/mig-3g.20gb.shared of 8" in overdrawn(before, after, many)

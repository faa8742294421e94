"""Nodes that change between device plugin, claims and slices, or leave the pool; labels handed over."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, cast

import pytest

from gpuform.kubernetes.client import Client
from gpuform.provider.nodes.cluster import Cluster, hand_over_labels, managed_labels
from gpuform.provider.nodes.inputs import layout_failures
from gpuform.provider.nodes.layout import NOTE, Layout, Note, differences
from gpuform.provider.nodes.shares import changes_sharing, is_claimed, sharing_refusal
from infra.plan.sharing import device_plugin_change, pool_labels
from tests.build import environments
from tests.fakes.client import FakeClient
from tests.provider.conftest import call_for, provider_of

pytestmark = pytest.mark.unit


SLICED = {"kind": "time_slicing", "replicas": 4}
CUT = {"kind": "mig", "layout": {"3g.20gb": 2}}
REFUSE = {"relayout": {"in_use": "refuse"}}


def pool_inputs(sharing: dict[str, Any], **more: Any) -> dict[str, Any]:
    pool = {"gpu": {"models": ["A100-40GB"], "count": 2}, "sharing": sharing, **more}
    env = environments.on("existing", pool, gpu_operator={"mig_strategy": "mixed"})
    return {"labels": pool_labels(env, env.pools[0]), "sharing": device_plugin_change(env, env.pools[0])}


def node(sharing: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": pool_inputs(sharing)["labels"]}}


def pod(resource: str = "") -> dict[str, Any]:
    limits = {resource: "1"} if resource else {}
    return {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {"containers": [{"resources": {"limits": limits}}]},
    }


@pytest.mark.parametrize(
    ("before", "after", "resource"),
    [
        (SLICED, pool_inputs({"kind": "dra"}), "nvidia.com/gpu.shared"),
        ({"kind": "exclusive"}, pool_inputs({"kind": "dra"}), "nvidia.com/gpu"),
        ({"kind": "exclusive"}, pool_inputs(SLICED), "nvidia.com/gpu"),
        # The relayout would refuse as well, but only after the plugin has been changed.
        (SLICED, pool_inputs(CUT, **REFUSE), "nvidia.com/gpu.shared"),
    ],
)
def test_what_is_held_of_the_device_plugin_is_not_given_away_again(
    before: dict[str, Any], after: dict[str, Any], resource: str
) -> None:
    assert changes_sharing(node(before), after)
    assert not is_claimed(node(before), after)
    assert f"its pods would use 1 {resource} of 0" in sharing_refusal(node(before), after, [pod(resource)])
    assert sharing_refusal(node(before), after, [pod()]) == ""


def test_what_is_claimed_is_not_given_away_by_the_device_plugin() -> None:
    before, after = node({"kind": "dra"}), pool_inputs(SLICED)
    assert changes_sharing(before, after)
    assert is_claimed(before, after)
    assert sharing_refusal(before, after, [pod()]) == ""
    assert sharing_refusal(before, after, [pod()], [pod()]) == (
        "node n: its pods have GPUs by ResourceClaim, which the device plugin does not know (d/p); "
        "let them end, or scale them down, and run again"
    )


def test_nothing_is_asked_where_nothing_changes_or_the_relayout_drains() -> None:
    assert not changes_sharing(node({"kind": "dra"}), pool_inputs({"kind": "dra"}))
    assert not changes_sharing(node(SLICED), pool_inputs(CUT))
    given_up = node({"kind": "exclusive"})
    given_up["metadata"]["labels"]["nvidia.com/mig.config"] = "all-1g.5gb"
    assert not changes_sharing(given_up, pool_inputs(SLICED))
    assert not changes_sharing(node({"kind": "exclusive"}), pool_inputs({"kind": "exclusive"}))


def test_shares_of_slices_count_where_the_layout_stays_whatever_a_relayout_may_do() -> None:
    before = node({**CUT, "share": {"replicas": 4}})
    before["metadata"]["labels"]["nvidia.com/mig.config"] = "all-3g.20gb"
    after = pool_inputs({**CUT, "share": {"replicas": 2}}, **REFUSE)
    assert changes_sharing(before, after)
    assert sharing_refusal(before, after, [pod("nvidia.com/mig-3g.20gb.shared")]) == ""
    many = [pod("nvidia.com/mig-3g.20gb.shared")] * 9
    assert "would use 9 nvidia.com/mig-3g.20gb.shared of 8" in sharing_refusal(before, after, many)


@pytest.mark.parametrize(
    ("count", "text"),
    [("4", "would use 9 nvidia.com/gpu.shared of 8"), ("8", ""), ("7", "of 0"), (None, "of 0")],
)
def test_a_node_is_asked_for_what_its_own_number_of_gpus_offers(count: str | None, text: str) -> None:
    gpu = {"models": ["A100-40GB"], "count": [4, 8]}
    after = pool_inputs({"kind": "time_slicing", "replicas": 2}, gpu=gpu)
    assert after["sharing"]["offers"] == {
        "4": {"nvidia.com/gpu.shared": 8},
        "8": {"nvidia.com/gpu.shared": 16},
    }
    before = node(SLICED)
    before["metadata"]["labels"] |= {"nvidia.com/gpu.count": count} if count else {}
    refusal = sharing_refusal(before, after, [pod("nvidia.com/gpu.shared")] * 9)
    assert text in refusal if text else not refusal


@pytest.mark.parametrize(
    ("count", "amount", "expected"),
    [
        ("8", 8, []),
        ("4", 4, []),
        ("8", 4, ["nvidia.com/gpu 4 instead of 8"]),
        ("7", 7, ["nvidia.com/gpu.count is 7"]),
        ("", 8, ["nvidia.com/gpu.count is unset"]),
    ],
)
def test_a_layout_is_applied_if_a_node_offers_all_its_own_gpus(
    count: str, amount: int, expected: list[str]
) -> None:
    layout = Layout("all-disabled", {"4": {"nvidia.com/gpu": 4}, "8": {"nvidia.com/gpu": 8}})
    assert not list(layout_failures({"selector": "a=b", "kubeconfig": "/k", **asdict(layout)}))
    labels = {"nvidia.com/gpu.count": count} if count else {}
    live = {"metadata": {"labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": str(amount)}}}
    assert differences(live, layout) == expected


OLD, NEW = "gpuform-pool-of-the-urn", "gpuform-pool-of-the-pool"


def entry(manager: str, *keys: str, operation: str = "Apply") -> dict[str, Any]:
    fields = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in keys}}}
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def managed(*entries: dict[str, Any]) -> Any:
    labels = {"gpuform.io/pool": "a", "team": "x", "other": "y"}
    return {"metadata": {"name": "n", "uid": "1", "labels": labels, "managedFields": list(entries)}}


def handed_over(node: Any, old: str, new: str) -> list[tuple[str, dict[str, str]]]:
    """Managers and the labels that they apply, in order."""
    client = FakeClient()
    asyncio.run(hand_over_labels(Cluster(cast(Client, client)), node, old, new))
    return [(manager, body["metadata"]["labels"]) for _, manager, body in client.changes]


def test_the_new_manager_applies_them_before_the_old_one_gives_them_up() -> None:
    node = managed(
        entry(OLD, "gpuform.io/pool", "team", "gone"), entry("kubelet", "other", operation="Update")
    )
    assert managed_labels(node, OLD) == {"gpuform.io/pool": "a", "team": "x"}
    assert handed_over(node, OLD, NEW) == [(NEW, {"gpuform.io/pool": "a", "team": "x"}), (OLD, {})]


def test_what_the_new_manager_has_already_stays() -> None:
    node = managed(entry(OLD, "team"), entry(NEW, "other"))
    assert handed_over(node, OLD, NEW)[0] == (NEW, {"other": "y", "team": "x"})


def test_nothing_is_applied_if_there_is_nothing_to_hand_over() -> None:
    assert handed_over(managed(), OLD, NEW) == []
    assert handed_over(managed(entry(OLD, "team")), OLD, OLD) == []


CONFIG, STATE, POOL = "nvidia.com/mig.config", "nvidia.com/mig.config.state", "gpuform.io/pool"
MIG, POOL_NODES = "gpuform:nodes:MigLayout", "gpuform:nodes:PoolNodes"
HALVES = {"nvidia.com/mig-3g.20gb": 2}
INPUTS = {"kubeconfig": "/k", "selector": f"{POOL}=a", "config": "all-3g.20gb", "offers": HALVES}


def add(cluster: FakeClient, name: str, pool: str | None = "a", note: bool = False) -> dict[str, Any]:
    """A node with the layout; ``note``: a killed run has left it closed."""
    labels = {CONFIG: "all-3g.20gb", STATE: "success", **({POOL: pool} if pool else {})}
    annotations = {NOTE: Note("all-disabled", "all-3g.20gb", cordoned=True).text()} if note else {}
    status = {"allocatable": {key: str(count) for key, count in HALVES.items()}}
    spec = {"unschedulable": True} if note else {}
    return cluster.add("nodes", name, "", labels=labels, annotations=annotations, spec=spec, status=status)


def call(cluster: FakeClient, verb: str, *args: Any, token: str = MIG) -> Any:
    return asyncio.run(getattr(provider_of(cluster).handler(token), verb)(call_for(token), "a", *args))


def differs(cluster: FakeClient, olds: dict[str, Any]) -> bool:
    return bool(call(cluster, "diff", INPUTS, olds, INPUTS).changes)


def is_released(node: dict[str, Any]) -> bool:
    """Whether it is open, and has neither a layout's label nor a note."""
    metadata = node["metadata"]
    return (metadata["annotations"], node["spec"]) == ({}, {}) and CONFIG not in metadata["labels"]


def test_a_node_that_was_on_its_way_elsewhere_does_not_keep_that_label() -> None:
    cluster = FakeClient()
    left = add(cluster, "left", pool=None, note=True)
    add(cluster, "stays")
    inputs = {**INPUTS, "config": "all-disabled"}
    call(cluster, "update", inputs, {**inputs, "nodes": ["left"]}, INPUTS)
    assert CONFIG not in left["metadata"]["labels"]


def test_deleting_a_pool_opens_a_node_that_a_killed_first_run_left_closed() -> None:
    cluster = FakeClient()
    killed = add(cluster, "killed", note=True)
    inputs = {"kubeconfig": "/k", "selector": f"{POOL}=a", "labels": {}}
    call(cluster, "delete", inputs, {**inputs, "nodes": ["killed"]}, token=POOL_NODES)
    assert is_released(killed)


def test_a_node_that_leaves_the_pool_loses_the_layouts_label_and_is_opened() -> None:
    cluster = FakeClient()
    stays = add(cluster, "stays")
    left = add(cluster, "left", pool=None, note=True)  # a run was killed before it could uncordon it
    olds = {**INPUTS, "nodes": ["gone", "left", "stays"]}
    assert differs(cluster, olds)
    outputs = call(cluster, "update", INPUTS, olds, INPUTS)
    assert outputs["nodes"] == ["stays"]
    assert is_released(left)
    assert stays["metadata"]["labels"][CONFIG] == "all-3g.20gb"
    for names in (["stays"], ["gone", "stays"]):
        assert not differs(cluster, {**outputs, "nodes": names})
    cluster.add("nodes", "comes", "", labels={POOL: "a"})
    assert differs(cluster, outputs)


def test_a_node_that_another_pool_has_is_left_to_that() -> None:
    cluster = FakeClient()
    add(cluster, "stays")
    add(cluster, "moved", pool="b", note=True)
    olds = {**INPUTS, "nodes": ["moved", "stays"]}
    assert not differs(cluster, olds)
    assert call(cluster, "update", INPUTS, olds, INPUTS)["nodes"] == ["stays"]
    assert cluster.changes == []

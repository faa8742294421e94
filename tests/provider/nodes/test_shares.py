"""Nodes that change between device plugin, claims and slices, or leave the pool; labels handed over."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from gpuform.provider.handler import Call, Engine
from gpuform.provider.nodes.cluster import hand_over_labels, managed_labels
from gpuform.provider.nodes.inputs import layout_failures
from gpuform.provider.nodes.layout import NOTE, Layout, Note, differences
from gpuform.provider.nodes.mig_layout import MigLayout
from gpuform.provider.nodes.pool_nodes import PoolNodes
from gpuform.provider.nodes.shares import changes_sharing, is_claimed, sharing_refusal
from infra.config import parse
from infra.plan.sharing import device_plugin_change, pool_labels

pytestmark = pytest.mark.unit


SLICED = {"kind": "time_slicing", "replicas": 4}
CUT = {"kind": "mig", "layout": {"3g.20gb": 2}}
REFUSE = {"relayout": {"in_use": "refuse"}}


def pool_inputs(sharing: dict[str, Any], **more: Any) -> dict[str, Any]:
    pool = {"name": "a", "gpu": {"models": ["A100-40GB"], "count": 2}, "selector": {"p": "a"}}
    environment = {
        "name": "e",
        "cluster": {"kind": "existing", "kubeconfig": "/k"},
        "gpu_operator": {"mig_strategy": "mixed"},
        "pools": [{**pool, "sharing": sharing, **more}],
    }
    env = parse(environment)
    (parsed_pool,) = env.pools
    return {"labels": pool_labels(env, parsed_pool), "sharing": device_plugin_change(env, parsed_pool)}


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


class Client:
    def __init__(self) -> None:
        self.applied: list[tuple[str, dict[str, str]]] = []

    async def apply(self, path: str, body: Any, *, manager: str) -> None:
        assert path == "/api/v1/nodes/n"
        self.applied.append((manager, body["metadata"]["labels"]))


class Cluster:
    def __init__(self) -> None:
        self.client = Client()


def handed_over(node: Any, old: str, new: str) -> list[tuple[str, dict[str, str]]]:
    cluster: Any = Cluster()
    asyncio.run(hand_over_labels(cluster, node, old, new))
    applied: list[tuple[str, dict[str, str]]] = cluster.client.applied
    return applied


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
HALVES = {"nvidia.com/mig-3g.20gb": 2}
INPUTS = {"kubeconfig": "/k", "selector": f"{POOL}=a", "config": "all-3g.20gb", "offers": HALVES}


class FakeClient:
    async def apply(self, path: str, body: dict[str, Any], *, manager: str) -> None:
        pass


@dataclass
class FakeCluster:
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)
    client: FakeClient = field(default_factory=FakeClient)

    def add(self, name: str, pool: str | None = "a", note: bool = False) -> None:
        labels = {CONFIG: "all-3g.20gb", STATE: "success", **({POOL: pool} if pool else {})}
        text = Note("all-disabled", "all-3g.20gb", cordoned=True).text()
        self.by_name[name] = {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": labels,
                "annotations": {NOTE: text} if note else {},
            },
            "spec": {"unschedulable": True} if note else {},
            "status": {"allocatable": {key: str(count) for key, count in HALVES.items()}},
        }

    async def nodes(self, selector: str) -> list[dict[str, Any]]:
        key, _, value = selector.partition("=")
        nodes = deepcopy(list(self.by_name.values()))
        return [node for node in nodes if node["metadata"]["labels"].get(key) == value]

    async def node(self, name: str) -> dict[str, Any] | None:
        return deepcopy(self.by_name.get(name))

    async def patch(self, name: str, body: dict[str, Any]) -> None:
        _merge(self.by_name[name], body)


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


def call_handler(cluster: FakeCluster, verb: str, *args: Any) -> Any:
    handler = MigLayout(lambda inputs: cluster)  # type: ignore[arg-type, return-value]
    call = Call("urn:pulumi:d::t::gpuform:nodes:MigLayout::a", "t", "a", Engine(), asyncio.Event())
    return asyncio.run(getattr(handler, verb)(call, *args))


def test_a_node_that_was_on_its_way_elsewhere_does_not_keep_that_label() -> None:
    cluster = FakeCluster()
    cluster.add("left", pool=None, note=True)
    cluster.add("stays")
    inputs = {**INPUTS, "config": "all-disabled"}
    call_handler(cluster, "update", "a", inputs, {**inputs, "nodes": ["left"]}, INPUTS)
    assert CONFIG not in cluster.by_name["left"]["metadata"]["labels"]


def test_with_the_pool_opens_what_a_first_run_left_closed_that_no_state_knows_of() -> None:
    cluster = FakeCluster()
    cluster.add("killed", note=True)
    handler = PoolNodes(lambda inputs: cluster)  # type: ignore[arg-type, return-value]
    call = Call("urn:pulumi:d::t::gpuform:nodes:PoolNodes::a", "t", "a", Engine(), asyncio.Event())
    inputs = {"kubeconfig": "/k", "selector": f"{POOL}=a", "labels": {}}
    asyncio.run(handler.delete(call, "a", inputs, {**inputs, "nodes": ["killed"]}))
    killed = cluster.by_name["killed"]
    assert (killed["metadata"]["annotations"], killed["spec"]) == ({}, {})
    assert CONFIG not in killed["metadata"]["labels"]


def differs(cluster: FakeCluster, olds: dict[str, Any]) -> bool:
    return bool(call_handler(cluster, "diff", "a", INPUTS, olds, INPUTS).changes)


def test_a_node_that_leaves_the_pool_loses_the_layouts_label_and_is_opened() -> None:
    cluster = FakeCluster()
    cluster.add("stays")
    cluster.add("left", pool=None, note=True)  # a run was killed before it could uncordon it
    olds = {**INPUTS, "nodes": ["gone", "left", "stays"]}
    assert differs(cluster, olds)
    outputs = call_handler(cluster, "update", "a", INPUTS, olds, INPUTS)
    left = cluster.by_name["left"]
    assert outputs["nodes"] == ["stays"]
    assert CONFIG not in left["metadata"]["labels"]
    assert (left["metadata"]["annotations"], left["spec"]) == ({}, {})
    assert cluster.by_name["stays"]["metadata"]["labels"][CONFIG] == "all-3g.20gb"
    assert not differs(cluster, outputs)


def test_a_node_that_another_pool_has_is_left_to_that() -> None:
    cluster = FakeCluster()
    cluster.add("stays")
    cluster.add("moved", pool="b", note=True)
    before, olds = deepcopy(cluster.by_name["moved"]), {**INPUTS, "nodes": ["moved", "stays"]}
    assert not differs(cluster, olds)
    assert call_handler(cluster, "update", "a", INPUTS, olds, INPUTS)["nodes"] == ["stays"]
    assert cluster.by_name["moved"] == before

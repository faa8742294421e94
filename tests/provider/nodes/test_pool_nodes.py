"""PoolNodes on a real API server."""

from __future__ import annotations

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.properties import UNKNOWN

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]

TOKEN = "gpuform:nodes:PoolNodes"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
MINE = {"labels": {"gpuform.io/pool": "a"}, "taints": [TAINT]}


async def _taints(scene, name):
    return [
        item
        for item in (await scene.node(name))["spec"].get("taints") or []
        if "kubernetes.io" not in item["key"]
    ]


async def test_labels_and_taints_come_and_go_and_nothing_else(scene):
    other = {"key": "team", "value": "x", "effect": "NoExecute"}
    name = await scene.add_node("0", {"kept": "yes"}, taints=[other])
    outputs = await scene.create(**MINE)
    assert outputs["nodes"] == [name]
    assert (await scene.labels(name))["gpuform.io/pool"] == "a"
    assert await _taints(scene, name) == [other, TAINT]
    assert await scene.changes(**MINE) == set()
    writes = scene.writes()
    assert await scene.ask("read", "id", scene.inputs, scene.outputs)
    assert writes == [], "a refresh changes nothing"
    await scene.update(labels={"gpuform.io/pool": "b"}, taints=[{**TAINT, "value": "yes"}])
    assert (await scene.labels(name))["gpuform.io/pool"] == "b"
    assert await _taints(scene, name) == [other, {**TAINT, "value": "yes"}]
    await scene.ask("delete", "id", scene.inputs, scene.outputs)
    assert "gpuform.io/pool" not in await scene.labels(name)
    assert (await scene.labels(name))["kept"] == "yes"
    assert await _taints(scene, name) == [other]


async def test_a_node_that_joins_and_a_label_that_was_taken_are_changes(scene):
    first = await scene.add_node("0")
    await scene.create(**MINE)
    second = await scene.add_node("1")
    assert await scene.changes(**MINE) == {"nodes"}
    assert (await scene.update(**MINE))["nodes"] == [first, second]
    assert await _taints(scene, second) == [TAINT]
    await scene.cluster.patch(first, {"metadata": {"labels": {"gpuform.io/pool": None}}})
    assert await scene.changes(**MINE) == {"nodes"}
    found = await scene.ask("read", "id", scene.inputs, scene.outputs)
    assert found.properties["nodes"] == [second]
    await scene.update(**MINE)
    assert (await scene.labels(first))["gpuform.io/pool"] == "a"


async def test_a_node_that_is_gone_is_no_change_and_one_that_left_the_pool_is(scene):
    first, second, third = [await scene.add_node(name) for name in "012"]
    await scene.create(**MINE)
    await scene.cluster.client.request("DELETE", f"/api/v1/nodes/{third}")
    assert await scene.changes(**MINE) == set()
    await scene.cluster.patch(second, {"metadata": {"labels": {"pool": f"{scene.pool}-left"}}})
    assert await scene.changes(**MINE) == {"nodes"}
    assert (await scene.update(**MINE))["nodes"] == [first]
    assert await _taints(scene, second) == []
    assert await scene.changes(**MINE) == set()
    await scene.cluster.client.request("DELETE", f"/api/v1/nodes/{second}")
    await scene.ask("delete", "id", scene.inputs, scene.outputs)


async def test_nodes_that_match_no_longer_lose_what_was_ours(scene):
    first, second = await scene.add_node("0", {"half": "a"}), await scene.add_node("1", {"half": "b"})
    await scene.create(**MINE)
    await scene.update(**MINE, selector=f"{scene.selector},half=b")
    assert "gpuform.io/pool" not in await scene.labels(first)
    assert await _taints(scene, first) == []
    assert await _taints(scene, second) == [TAINT]


async def test_no_match_names_the_selector(scene):
    with pytest.raises(OperationError, match=rf"no node matches the selector 'pool={scene.pool}'"):
        await scene.create(**MINE)
    with pytest.raises(OperationError, match=r"selector 'a=b=c': .*write it as key=value"):
        await scene.create(**MINE, selector="a=b=c")


async def test_nodes_may_join_later_where_that_is_said(scene):
    assert (await scene.create(**MINE, mayBeEmpty=True))["nodes"] == []
    assert await scene.changes(**MINE, mayBeEmpty=True) == set()
    name = await scene.add_node("0")
    assert await scene.changes(**MINE, mayBeEmpty=True) == {"nodes"}
    assert (await scene.update(**MINE, mayBeEmpty=True))["nodes"] == [name]
    assert await _taints(scene, name) == [TAINT]


async def test_what_somebody_else_set_is_not_overwritten(scene):
    name = await scene.add_node("0", {"gpuform.io/pool": "theirs"})
    with pytest.raises(
        OperationError, match=r"set to another value by another manager \(\.metadata\.labels\.gpuform"
    ):
        await scene.create(**MINE)
    assert await _taints(scene, name) == []
    await scene.cluster.patch(name, {"metadata": {"labels": {"gpuform.io/pool": None}}})
    await scene.cluster.patch(name, {"spec": {"taints": [{**TAINT, "value": "theirs"}]}})
    with pytest.raises(
        OperationError, match=r"taint nvidia\.com/gpu=theirs:NoSchedule was not set by this pool"
    ):
        await scene.create(**MINE)
    assert "gpuform.io/pool" not in await scene.labels(name)


async def test_a_preview_says_which_nodes_and_changes_none(scene):
    name = await scene.add_node("0")
    news = await scene.checked(**MINE)
    id, outputs = await scene.ask("create", news, preview=True)
    assert (id, outputs["nodes"]) == ("", [name])
    assert scene.log.lines == [f"gets labels and taints: {name}"]
    assert "gpuform.io/pool" not in await scene.labels(name)
    _, outputs = await scene.ask("create", {**news, "selector": UNKNOWN}, preview=True)
    assert outputs["nodes"] is UNKNOWN


STARTUP = {"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}
PROOF, REASON = "gpuform.io/gpu-ready", "gpuform.io/gpu-waits-for"
UNPROVEN = {**MINE, "startup": {"taints": [STARTUP], "proof": PROOF, "reason": REASON}}


async def _lift(scene, name, **notes):
    """As the readiness gate does: remove the startup taint and add the proof."""
    taints = [item for item in (await scene.node(name))["spec"]["taints"] if item != STARTUP]
    body = {"spec": {"taints": taints}, "metadata": {"annotations": {PROOF: "{}", **notes}}}
    await scene.cluster.patch(name, body)


async def test_a_node_waits_until_it_is_proven_and_then_no_more(scene):
    name = await scene.add_node("0")
    await scene.create(**MINE)
    assert await scene.changes(**UNPROVEN) == {"startup", "nodes"}
    await scene.update(**UNPROVEN)
    assert await _taints(scene, name) == [TAINT, STARTUP]
    assert await scene.changes(**UNPROVEN) == set()
    await _lift(scene, name)
    assert await scene.changes(**UNPROVEN) == set()
    await scene.update(**UNPROVEN)
    assert await _taints(scene, name) == [TAINT]


async def test_a_node_that_joins_and_one_that_lost_its_proof_are_changes(scene):
    first = await scene.add_node("0")
    await scene.create(**UNPROVEN)
    await _lift(scene, first)
    second = await scene.add_node("1")
    await scene.update(**UNPROVEN)
    assert await _taints(scene, first) == [TAINT]
    assert await _taints(scene, second) == [TAINT, STARTUP]
    await scene.cluster.patch(first, {"metadata": {"annotations": {PROOF: None}}})
    assert await scene.changes(**UNPROVEN) == {"nodes"}


async def test_a_taint_that_was_put_back_by_hand_stays_until_the_gate_lifts_it(scene):
    name = await scene.add_node("0")
    await scene.create(**UNPROVEN)
    await _lift(scene, name)
    await scene.cluster.patch(name, {"spec": {"taints": [TAINT, STARTUP]}})
    assert await scene.changes(**UNPROVEN) == set()
    changed = {**UNPROVEN, "labels": {"gpuform.io/pool": "b"}}
    await scene.update(**changed)
    assert await _taints(scene, name) == [TAINT, STARTUP]


async def test_with_the_pool_go_the_taint_and_the_proof(scene):
    proven, waiting = await scene.add_node("0"), await scene.add_node("1")
    await scene.create(**UNPROVEN)
    await _lift(scene, proven)
    await scene.cluster.patch(waiting, {"metadata": {"annotations": {REASON: "no driver"}}})
    await scene.ask("delete", "id", scene.inputs, scene.outputs)
    for name in (proven, waiting):
        assert await _taints(scene, name) == []
        assert not {PROOF, REASON} & set((await scene.node(name))["metadata"]["annotations"])


KEY = "nvidia.com/device-plugin.config"
SHARED = "nvidia.com/gpu.shared"


def _shared(replicas):
    sharing = {"label": KEY, "offers": {SHARED: replicas}}
    return {"labels": {KEY: f"slice-{replicas}"}, "taints": [], "sharing": sharing}


async def test_a_node_does_not_come_to_offer_less_than_its_pods_hold(scene):
    first, second = await scene.add_node("0"), await scene.add_node("1")
    await scene.create(**_shared(4))
    for number in range(3):
        await scene.pod(f"p{number}-{scene.pool}", second, SHARED)
    said = f"node {second}: its pods would use 3 {SHARED} of 2, once it is shared as slice-2"
    news = await scene.checked(**_shared(2))
    await scene.ask("update", "id", scene.inputs, scene.outputs, news, preview=True)
    assert any(said in line for line in scene.log.lines)
    with pytest.raises(OperationError, match=said):
        await scene.update(**_shared(2))
    assert [(await scene.labels(name))[KEY] for name in (first, second)] == ["slice-4", "slice-4"]


async def test_more_shares_come_while_pods_run_and_the_preview_says_who_keeps_what(scene):
    name = await scene.add_node("0")
    await scene.create(**_shared(4))
    await scene.pod(f"p-{scene.pool}", name, SHARED)
    news = await scene.checked(**_shared(8))
    await scene.ask("update", "id", scene.inputs, scene.outputs, news, preview=True)
    said = f"node {name}: shared as slice-4 -> slice-8; running pods keep their devices"
    assert any(said in line and f"default/p-{scene.pool}" in line for line in scene.log.lines)
    await scene.update(**_shared(8))
    assert (await scene.labels(name))[KEY] == "slice-8"


async def test_where_slices_are_given_up_the_relayout_drains_and_nothing_is_asked(scene):
    name = await scene.add_node("0", {"nvidia.com/mig.config": "all-1g.5gb"})
    await scene.create(labels={KEY: "default"})
    await scene.pod(f"p-{scene.pool}", name, "nvidia.com/mig-1g.5gb")
    await scene.update(**_shared(2))
    assert (await scene.labels(name))[KEY] == "slice-2"


async def test_a_pool_that_was_never_shared_is_not_shared_under_a_pod_that_has_a_whole_gpu(scene):
    name = await scene.add_node("0")
    await scene.pod(f"p-{scene.pool}", name, "nvidia.com/gpu")
    with pytest.raises(OperationError, match=r"its pods would use 1 nvidia\.com/gpu of 0, once"):
        await scene.create(**_shared(4))
    await scene.create(labels={}, sharing={"label": KEY, "offers": {"nvidia.com/gpu": 1}})

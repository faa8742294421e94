"""PoolNodes on a real API server."""

from __future__ import annotations

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.properties import UNKNOWN

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]

TOKEN = "gpuform:nodes:PoolNodes"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
INPUTS = {"labels": {"gpuform.io/pool": "a"}, "taints": [TAINT]}


async def _taints(pool, name):
    return [
        taint
        for taint in (await pool.node(name))["spec"].get("taints") or []
        if "kubernetes.io" not in taint["key"]
    ]


async def test_labels_and_taints_come_and_go_and_nothing_else(pool):
    other = {"key": "team", "value": "x", "effect": "NoExecute"}
    name = await pool.add_node("0", {"kept": "yes"}, taints=[other])
    outputs = await pool.create(**INPUTS)
    assert outputs["nodes"] == [name]
    assert (await pool.labels(name))["gpuform.io/pool"] == "a"
    assert await _taints(pool, name) == [other, TAINT]
    assert await pool.changes(**INPUTS) == set()
    writes = pool.writes()
    assert await pool.invoke("read", "id", pool.inputs, pool.outputs)
    assert writes == [], "a refresh changes nothing"
    await pool.update(labels={"gpuform.io/pool": "b"}, taints=[{**TAINT, "value": "yes"}])
    assert (await pool.labels(name))["gpuform.io/pool"] == "b"
    assert await _taints(pool, name) == [other, {**TAINT, "value": "yes"}]
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)
    assert "gpuform.io/pool" not in await pool.labels(name)
    assert (await pool.labels(name))["kept"] == "yes"
    assert await _taints(pool, name) == [other]


async def test_a_node_that_joins_and_a_label_that_was_taken_are_changes(pool):
    first = await pool.add_node("0")
    await pool.create(**INPUTS)
    second = await pool.add_node("1")
    assert await pool.changes(**INPUTS) == {"nodes"}
    assert (await pool.update(**INPUTS))["nodes"] == [first, second]
    assert await _taints(pool, second) == [TAINT]
    await pool.cluster.patch(first, {"metadata": {"labels": {"gpuform.io/pool": None}}})
    assert await pool.changes(**INPUTS) == {"nodes"}
    found = await pool.invoke("read", "id", pool.inputs, pool.outputs)
    assert found.properties["nodes"] == [second]
    await pool.update(**INPUTS)
    assert (await pool.labels(first))["gpuform.io/pool"] == "a"


async def test_a_node_that_is_gone_is_no_change_and_one_that_left_the_pool_is(pool):
    first, second, third = [await pool.add_node(name) for name in "012"]
    await pool.create(**INPUTS)
    await pool.cluster.client.request("DELETE", f"/api/v1/nodes/{third}")
    assert await pool.changes(**INPUTS) == set()
    await pool.cluster.patch(second, {"metadata": {"labels": {"pool": f"{pool.name}-left"}}})
    assert await pool.changes(**INPUTS) == {"nodes"}
    assert (await pool.update(**INPUTS))["nodes"] == [first]
    assert await _taints(pool, second) == []
    assert await pool.changes(**INPUTS) == set()
    await pool.cluster.client.request("DELETE", f"/api/v1/nodes/{second}")
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)


async def test_nodes_that_match_no_longer_lose_what_was_ours(pool):
    first, second = await pool.add_node("0", {"half": "a"}), await pool.add_node("1", {"half": "b"})
    await pool.create(**INPUTS)
    await pool.update(**INPUTS, selector=f"{pool.selector},half=b")
    assert "gpuform.io/pool" not in await pool.labels(first)
    assert await _taints(pool, first) == []
    assert await _taints(pool, second) == [TAINT]


async def test_no_match_names_the_selector(pool):
    with pytest.raises(OperationError, match=rf"no node matches the selector 'pool={pool.name}'"):
        await pool.create(**INPUTS)
    with pytest.raises(OperationError, match=r"selector 'a=b=c': .*write it as key=value"):
        await pool.create(**INPUTS, selector="a=b=c")


async def test_nodes_may_join_later_where_that_is_said(pool):
    assert (await pool.create(**INPUTS, mayBeEmpty=True))["nodes"] == []
    assert await pool.changes(**INPUTS, mayBeEmpty=True) == set()
    name = await pool.add_node("0")
    assert await pool.changes(**INPUTS, mayBeEmpty=True) == {"nodes"}
    assert (await pool.update(**INPUTS, mayBeEmpty=True))["nodes"] == [name]
    assert await _taints(pool, name) == [TAINT]


async def test_what_somebody_else_set_is_not_overwritten(pool):
    name = await pool.add_node("0", {"gpuform.io/pool": "theirs"})
    with pytest.raises(
        OperationError, match=r"set to another value by another manager \(\.metadata\.labels\.gpuform"
    ):
        await pool.create(**INPUTS)
    assert await _taints(pool, name) == []
    await pool.cluster.patch(name, {"metadata": {"labels": {"gpuform.io/pool": None}}})
    await pool.cluster.patch(name, {"spec": {"taints": [{**TAINT, "value": "theirs"}]}})
    with pytest.raises(
        OperationError, match=r"taint nvidia\.com/gpu=theirs:NoSchedule was not set by this pool"
    ):
        await pool.create(**INPUTS)
    assert "gpuform.io/pool" not in await pool.labels(name)


async def test_a_preview_says_which_nodes_and_changes_none(pool):
    name = await pool.add_node("0")
    news = await pool.check(**INPUTS)
    id, outputs = await pool.invoke("create", news, preview=True)
    assert (id, outputs["nodes"]) == ("", [name])
    assert pool.log.lines == [f"gets labels and taints: {name}"]
    assert "gpuform.io/pool" not in await pool.labels(name)
    _, outputs = await pool.invoke("create", {**news, "selector": UNKNOWN}, preview=True)
    assert outputs["nodes"] is UNKNOWN


STARTUP = {"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}
PROOF, REASON = "gpuform.io/gpu-ready", "gpuform.io/gpu-waits-for"


async def test_gkes_value_of_the_gpu_taint_stays(pool):
    gkes = {**TAINT, "value": "present"}
    name = await pool.add_node("0", taints=[gkes])
    await pool.create(**INPUTS)
    assert await _taints(pool, name) == [gkes]
    assert await pool.changes(**INPUTS) == set()
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)
    assert await _taints(pool, name) == [gkes]


WITH_STARTUP = {**INPUTS, "startup": {"taints": [STARTUP], "proof": PROOF, "reason": REASON}}


async def _lift_taint(pool, name, **annotations):
    """As the readiness gate does: remove the startup taint and add the proof."""
    taints = [taint for taint in (await pool.node(name))["spec"]["taints"] if taint != STARTUP]
    body = {"spec": {"taints": taints}, "metadata": {"annotations": {PROOF: "{}", **annotations}}}
    await pool.cluster.patch(name, body)


async def test_a_node_waits_until_it_is_proven_and_then_no_more(pool):
    name = await pool.add_node("0")
    await pool.create(**INPUTS)
    assert await pool.changes(**WITH_STARTUP) == {"startup", "nodes"}
    await pool.update(**WITH_STARTUP)
    assert await _taints(pool, name) == [TAINT, STARTUP]
    assert await pool.changes(**WITH_STARTUP) == set()
    await _lift_taint(pool, name)
    assert await pool.changes(**WITH_STARTUP) == set()
    await pool.update(**WITH_STARTUP)
    assert await _taints(pool, name) == [TAINT]


async def test_a_node_that_joins_and_one_that_lost_its_proof_are_changes(pool):
    first = await pool.add_node("0")
    await pool.create(**WITH_STARTUP)
    await _lift_taint(pool, first)
    second = await pool.add_node("1")
    await pool.update(**WITH_STARTUP)
    assert await _taints(pool, first) == [TAINT]
    assert await _taints(pool, second) == [TAINT, STARTUP]
    await pool.cluster.patch(first, {"metadata": {"annotations": {PROOF: None}}})
    assert await pool.changes(**WITH_STARTUP) == {"nodes"}


async def test_a_taint_that_was_put_back_by_hand_stays_until_the_gate_lifts_it(pool):
    name = await pool.add_node("0")
    await pool.create(**WITH_STARTUP)
    await _lift_taint(pool, name)
    await pool.cluster.patch(name, {"spec": {"taints": [TAINT, STARTUP]}})
    assert await pool.changes(**WITH_STARTUP) == set()
    changed = {**WITH_STARTUP, "labels": {"gpuform.io/pool": "b"}}
    await pool.update(**changed)
    assert await _taints(pool, name) == [TAINT, STARTUP]


async def test_with_the_pool_go_the_taint_and_the_proof(pool):
    proven, waiting = await pool.add_node("0"), await pool.add_node("1")
    await pool.create(**WITH_STARTUP)
    await _lift_taint(pool, proven)
    await pool.cluster.patch(waiting, {"metadata": {"annotations": {REASON: "no driver"}}})
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)
    for name in (proven, waiting):
        assert await _taints(pool, name) == []
        assert not {PROOF, REASON} & set((await pool.node(name))["metadata"]["annotations"])


KEY = "nvidia.com/device-plugin.config"
SHARED = "nvidia.com/gpu.shared"


def _sharing_inputs(replicas):
    sharing = {"label": KEY, "offers": {SHARED: replicas}}
    return {"labels": {KEY: f"slice-{replicas}"}, "taints": [], "sharing": sharing}


async def test_a_node_does_not_come_to_offer_less_than_its_pods_hold(pool):
    first, second = await pool.add_node("0"), await pool.add_node("1")
    await pool.create(**_sharing_inputs(4))
    for number in range(3):
        await pool.pod(f"p{number}-{pool.name}", second, SHARED)
    message = f"node {second}: its pods would use 3 {SHARED} of 2, once it is shared as slice-2"
    news = await pool.check(**_sharing_inputs(2))
    await pool.invoke("update", "id", pool.inputs, pool.outputs, news, preview=True)
    assert any(message in line for line in pool.log.lines)
    with pytest.raises(OperationError, match=message):
        await pool.update(**_sharing_inputs(2))
    assert [(await pool.labels(name))[KEY] for name in (first, second)] == ["slice-4", "slice-4"]


async def test_more_shares_come_while_pods_run_and_the_preview_says_who_keeps_what(pool):
    name = await pool.add_node("0")
    await pool.create(**_sharing_inputs(4))
    await pool.pod(f"p-{pool.name}", name, SHARED)
    news = await pool.check(**_sharing_inputs(8))
    await pool.invoke("update", "id", pool.inputs, pool.outputs, news, preview=True)
    message = f"node {name}: shared as slice-4 -> slice-8; running pods keep their devices"
    assert any(message in line and f"default/p-{pool.name}" in line for line in pool.log.lines)
    await pool.update(**_sharing_inputs(8))
    assert (await pool.labels(name))[KEY] == "slice-8"


async def test_where_slices_are_given_up_the_relayout_drains_and_nothing_is_asked(pool):
    name = await pool.add_node("0", {"nvidia.com/mig.config": "all-1g.5gb"})
    await pool.create(labels={KEY: "default"})
    await pool.pod(f"p-{pool.name}", name, "nvidia.com/mig-1g.5gb")
    await pool.update(**_sharing_inputs(2))
    assert (await pool.labels(name))[KEY] == "slice-2"


async def test_a_pool_that_was_never_shared_is_not_shared_under_a_pod_that_has_a_whole_gpu(pool):
    name = await pool.add_node("0")
    await pool.pod(f"p-{pool.name}", name, "nvidia.com/gpu")
    with pytest.raises(OperationError, match=r"its pods would use 1 nvidia\.com/gpu of 0, once"):
        await pool.create(**_sharing_inputs(4))
    await pool.create(labels={}, sharing={"label": KEY, "offers": {"nvidia.com/gpu": 1}})

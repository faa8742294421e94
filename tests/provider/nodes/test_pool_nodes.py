"""PoolNodes on a real API server; nodes made elsewhere are waited for, then configured."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled, InitFailed
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
    assert await pool.read()
    assert writes == [], "a refresh changes nothing"
    await pool.update(labels={"gpuform.io/pool": "b"}, taints=[{**TAINT, "value": "yes"}])
    assert (await pool.labels(name))["gpuform.io/pool"] == "b"
    assert await _taints(pool, name) == [other, {**TAINT, "value": "yes"}]
    await pool.delete()
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
    found = await pool.read()
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
    await pool.delete()


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
    with pytest.raises(OperationError, match=r"set to another value by another manager \(\.metadata\.labels"):
        await pool.create(**INPUTS)
    assert await _taints(pool, name) == []
    await pool.cluster.patch(name, {"metadata": {"labels": {"gpuform.io/pool": None}}})
    await pool.cluster.patch(name, {"spec": {"taints": [{**TAINT, "value": "theirs"}]}})
    with pytest.raises(OperationError, match=r"taint nvidia\.com/gpu=theirs:NoSchedule was not set by"):
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
    await pool.delete()
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
    await pool.delete()
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
    await pool.preview(**_sharing_inputs(2))
    assert any(message in line for line in pool.log.lines)
    with pytest.raises(OperationError, match=message):
        await pool.update(**_sharing_inputs(2))
    assert [(await pool.labels(name))[KEY] for name in (first, second)] == ["slice-4", "slice-4"]


async def test_more_shares_come_while_pods_run_and_the_preview_says_who_keeps_what(pool):
    name = await pool.add_node("0")
    await pool.create(**_sharing_inputs(4))
    await pool.pod(f"p-{pool.name}", name, SHARED)
    await pool.preview(**_sharing_inputs(8))
    message = f"node {name}: shared as slice-4 -> slice-8; running pods keep their devices"
    assert any(message in line and f"default/p-{pool.name}" in line for line in pool.log.lines)
    await pool.update(**_sharing_inputs(8))
    assert (await pool.labels(name))[KEY] == "slice-8"


LABELS = {"gpuform.io/pool": "a"}
MANAGER = "gpuform-pool-a"


def _inputs(nodes, seconds=20, **more):
    joining = {"nodes": nodes, "timeoutSeconds": seconds, "look": "`openstack server list`"}
    return {"labels": LABELS, "taints": [TAINT], "joining": joining, **more}


async def _is_set_up(pool, name):
    node = await pool.node(name)
    taints = [taint for taint in node["spec"].get("taints") or [] if taint["key"] == TAINT["key"]]
    return node["metadata"]["labels"].get("gpuform.io/pool") == "a" and taints == [TAINT]


async def _says(pool, line):
    return line in pool.log.lines


async def test_each_gets_what_is_its_own_while_the_others_are_waited_for(pool):
    first = await pool.add_node("0")
    creating = asyncio.create_task(pool.create(**_inputs(3)))
    await pool.until(lambda: _is_set_up(pool, first))
    await pool.until(lambda: _says(pool, "waiting for nodes: 1 of 3 nodes have joined"))
    assert not creating.done()
    others = [await pool.add_node(name) for name in "12"]
    assert (await creating)["nodes"] == [first, *others]
    assert all([await _is_set_up(pool, name) for name in others])
    assert await pool.changes(**_inputs(3)) == set()


async def test_too_few_are_an_error_that_says_how_many_and_where_to_look(pool):
    missing = rf"0 of 2 nodes have joined after 1 s \(selector 'pool={pool.name}'\); look at `openstack"
    with pytest.raises(OperationError, match=missing):
        await pool.create(**_inputs(2, seconds=1))
    name = await pool.add_node("0")
    with pytest.raises(InitFailed, match=f"1 of 2 nodes have joined after 1 s, which are {name} ") as failure:
        await pool.create(**_inputs(2, seconds=1))
    assert failure.value.properties["nodes"] == [name]  # or a destroy would skip it
    assert await _is_set_up(pool, name)


async def test_a_node_that_is_missing_later_and_another_number_are_changes(pool):
    names = [await pool.add_node(name) for name in "01"]
    await pool.create(**_inputs(2))
    assert await pool.changes(**_inputs(3)) == {"joining", "nodes"}
    await pool.cluster.client.request("DELETE", f"/api/v1/nodes/{names[1]}")
    assert await pool.changes(**_inputs(2)) == {"nodes"}
    await pool.preview(**_inputs(2))
    assert pool.log.lines[-1] == "waits for nodes: 1 of 2 have joined"
    updating = asyncio.create_task(pool.update(**_inputs(2)))
    third = await pool.add_node("2")
    assert (await updating)["nodes"] == [names[0], third]


async def test_who_cancels_waits_no_longer(pool):
    call = pool.call()
    handler = pool.provider.handler("gpuform:nodes:PoolNodes")
    creating = asyncio.create_task(handler.create(call, await pool.check(**_inputs(1))))

    async def waits() -> bool:
        return any(line.startswith("waiting for nodes") for line in pool.log.lines)

    await pool.until(waits)
    call.cancelled.set()
    with pytest.raises(Cancelled):
        await creating


async def test_labels_of_a_state_without_a_keeper_are_handed_over_to_its_manager(pool):
    name = await pool.add_node("0")
    await pool.create(labels=LABELS)
    kept = {"labels": LABELS, "manager": MANAGER}
    assert await pool.changes(**kept) == set()
    await pool.update(**{**kept, "labels": {"gpuform.io/pool": "b"}})
    assert (await pool.labels(name))["gpuform.io/pool"] == "b"
    await pool.delete()
    assert "gpuform.io/pool" not in await pool.labels(name)
    # Without a change there is no update, but the state has the manager.
    await pool.create(labels=LABELS)
    pool.inputs = await pool.check(**kept)
    await pool.delete()
    assert "gpuform.io/pool" not in await pool.labels(name)


async def test_what_a_keeper_gave_under_the_same_name_is_no_change_and_can_be_changed_and_taken(pool):
    kept = _inputs(1, manager=MANAGER)
    await pool.add_node("0")
    await pool.create(**kept)
    joined = await pool.add_node("1")
    assert await pool.changes(**kept) == {"nodes"}  # the keeper has not handled it
    await pool.cluster.patch(joined, {"spec": {"taints": [TAINT]}})
    uid = (await pool.node(joined))["metadata"]["uid"]
    own = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": joined, "uid": uid, "labels": LABELS}}
    await pool.cluster.client.apply(f"/api/v1/nodes/{joined}", own, manager=MANAGER)
    assert await pool.changes(**kept) == set()
    await pool.update(**{**kept, "labels": {"gpuform.io/pool": "b"}})
    assert (await pool.labels(joined))["gpuform.io/pool"] == "b"
    await pool.delete()
    assert "gpuform.io/pool" not in await pool.labels(joined)

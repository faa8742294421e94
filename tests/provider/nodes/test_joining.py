"""Nodes made elsewhere, on a real API server: the provider waits for them, then configures them."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled, InitFailed

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]

TOKEN = "gpuform:nodes:PoolNodes"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
LABELS = {"gpuform.io/pool": "a"}
MANAGER = "gpuform-pool-a"


def _of(nodes, seconds=20, **more):
    joining = {"nodes": nodes, "timeoutSeconds": seconds, "look": "`openstack server list`"}
    return {"labels": LABELS, "taints": [TAINT], "joining": joining, **more}


async def _has(scene, name):
    node = await scene.node(name)
    found = [one for one in node["spec"].get("taints") or [] if one["key"] == TAINT["key"]]
    return node["metadata"]["labels"].get("gpuform.io/pool") == "a" and found == [TAINT]


async def test_each_gets_what_is_its_own_while_the_others_are_waited_for(scene):
    first = await scene.add_node("0")
    creating = asyncio.create_task(scene.create(**_of(3)))
    await scene.until(lambda: _has(scene, first))
    assert not creating.done()
    assert "waiting for nodes: 1 of 3 nodes have joined" in scene.log.lines
    others = [await scene.add_node(name) for name in "12"]
    assert (await creating)["nodes"] == [first, *others]
    assert all([await _has(scene, name) for name in others])
    assert await scene.changes(**_of(3)) == set()


async def test_too_few_are_an_error_that_says_how_many_and_where_to_look(scene):
    missing = rf"0 of 2 nodes have joined after 1 s \(selector 'pool={scene.pool}'\); look at `openstack"
    with pytest.raises(OperationError, match=missing):
        await scene.create(**_of(2, seconds=1))
    name = await scene.add_node("0")
    with pytest.raises(InitFailed, match=rf"1 of 2 nodes have joined after 1 s, which are {name} ") as had:
        await scene.create(**_of(2, seconds=1))
    assert had.value.properties["nodes"] == [name]  # or a destroy would skip it
    assert await _has(scene, name)


async def test_a_node_that_is_missing_later_and_another_number_are_changes(scene):
    names = [await scene.add_node(name) for name in "01"]
    await scene.create(**_of(2))
    assert await scene.changes(**_of(3)) == {"joining", "nodes"}
    await scene.cluster.client.request("DELETE", f"/api/v1/nodes/{names[1]}")
    assert await scene.changes(**_of(2)) == {"nodes"}
    news = await scene.checked(**_of(2))
    await scene.ask("update", "id", scene.inputs, scene.outputs, news, preview=True)
    assert scene.log.lines[-1] == "waits for nodes: 1 of 2 have joined"
    updating = asyncio.create_task(scene.update(**_of(2)))
    third = await scene.add_node("2")
    assert (await updating)["nodes"] == [names[0], third]


async def test_who_cancels_waits_no_longer(scene):
    call = scene.call()
    handler = scene.provider.handler("gpuform:nodes:PoolNodes")
    creating = asyncio.create_task(handler.create(call, await scene.checked(**_of(1))))

    async def waits() -> bool:
        return any(line.startswith("waiting for nodes") for line in scene.log.lines)

    await scene.until(waits)
    call.cancelled.set()
    with pytest.raises(Cancelled):
        await creating


async def test_labels_of_a_state_without_a_keeper_are_handed_over_to_its_manager(scene):
    name = await scene.add_node("0")
    await scene.create(labels=LABELS)
    kept = {"labels": LABELS, "manager": MANAGER}
    assert await scene.changes(**kept) == set()
    await scene.update(**{**kept, "labels": {"gpuform.io/pool": "b"}})
    assert (await scene.labels(name))["gpuform.io/pool"] == "b"
    await scene.ask("delete", "id", scene.inputs, scene.outputs)
    assert "gpuform.io/pool" not in await scene.labels(name)
    # Without a change there is no update, but the state has the manager.
    await scene.create(labels=LABELS)
    scene.inputs = await scene.checked(**kept)
    await scene.ask("delete", "id", scene.inputs, scene.outputs)
    assert "gpuform.io/pool" not in await scene.labels(name)


async def test_what_a_keeper_gave_under_the_same_name_is_no_change_and_can_be_changed_and_taken(scene):
    kept = _of(1, manager=MANAGER)
    await scene.add_node("0")
    await scene.create(**kept)
    joined = await scene.add_node("1")
    assert await scene.changes(**kept) == {"nodes"}  # the keeper has not handled it
    await scene.cluster.patch(joined, {"spec": {"taints": [TAINT]}})
    uid = (await scene.node(joined))["metadata"]["uid"]
    own = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": joined, "uid": uid, "labels": LABELS}}
    await scene.cluster.client.apply(f"/api/v1/nodes/{joined}", own, manager=MANAGER)
    assert await scene.changes(**kept) == set()
    await scene.update(**{**kept, "labels": {"gpuform.io/pool": "b"}})
    assert (await scene.labels(joined))["gpuform.io/pool"] == "b"
    await scene.ask("delete", "id", scene.inputs, scene.outputs)
    assert "gpuform.io/pool" not in await scene.labels(joined)

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


def _inputs(nodes, seconds=20, **more):
    joining = {"nodes": nodes, "timeoutSeconds": seconds, "look": "`openstack server list`"}
    return {"labels": LABELS, "taints": [TAINT], "joining": joining, **more}


async def _is_set_up(pool, name):
    node = await pool.node(name)
    taints = [taint for taint in node["spec"].get("taints") or [] if taint["key"] == TAINT["key"]]
    return node["metadata"]["labels"].get("gpuform.io/pool") == "a" and taints == [TAINT]


async def test_each_gets_what_is_its_own_while_the_others_are_waited_for(pool):
    first = await pool.add_node("0")
    creating = asyncio.create_task(pool.create(**_inputs(3)))
    await pool.until(lambda: _is_set_up(pool, first))
    assert not creating.done()
    assert "waiting for nodes: 1 of 3 nodes have joined" in pool.log.lines
    others = [await pool.add_node(name) for name in "12"]
    assert (await creating)["nodes"] == [first, *others]
    assert all([await _is_set_up(pool, name) for name in others])
    assert await pool.changes(**_inputs(3)) == set()


async def test_too_few_are_an_error_that_says_how_many_and_where_to_look(pool):
    missing = rf"0 of 2 nodes have joined after 1 s \(selector 'pool={pool.name}'\); look at `openstack"
    with pytest.raises(OperationError, match=missing):
        await pool.create(**_inputs(2, seconds=1))
    name = await pool.add_node("0")
    with pytest.raises(
        InitFailed, match=rf"1 of 2 nodes have joined after 1 s, which are {name} "
    ) as failure:
        await pool.create(**_inputs(2, seconds=1))
    assert failure.value.properties["nodes"] == [name]  # or a destroy would skip it
    assert await _is_set_up(pool, name)


async def test_a_node_that_is_missing_later_and_another_number_are_changes(pool):
    names = [await pool.add_node(name) for name in "01"]
    await pool.create(**_inputs(2))
    assert await pool.changes(**_inputs(3)) == {"joining", "nodes"}
    await pool.cluster.client.request("DELETE", f"/api/v1/nodes/{names[1]}")
    assert await pool.changes(**_inputs(2)) == {"nodes"}
    news = await pool.check(**_inputs(2))
    await pool.invoke("update", "id", pool.inputs, pool.outputs, news, preview=True)
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
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)
    assert "gpuform.io/pool" not in await pool.labels(name)
    # Without a change there is no update, but the state has the manager.
    await pool.create(labels=LABELS)
    pool.inputs = await pool.check(**kept)
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)
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
    await pool.invoke("delete", "id", pool.inputs, pool.outputs)
    assert "gpuform.io/pool" not in await pool.labels(joined)

"""MigLayout killed after each of its writes, or interrupted otherwise, and the order of nodes."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Cancelled, InitFailed
from gpuform.provider.nodes.layout import CONFIG, NOTE, STATE
from gpuform.provider.own.provider import GpuformProvider
from tests.provider.nodes.mig_manager import LARGE, LAYOUTS, SMALL, TO_LARGE, TO_SMALL, MigManager

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]
TOKEN = "gpuform:nodes:MigLayout"


class Killed(BaseException):
    """Not caught by any handler, as SIGKILL is not."""


async def killed_after(pool, writes):
    """A run with its own connection, killed after so many writes; False if it makes fewer."""
    provider = GpuformProvider(pool.log)
    client = provider._shared().get({"kubeconfig": pool.kubeconfig}).client
    send, remaining = client.request, writes

    async def request(method, path, **more):
        nonlocal remaining
        answer = await send(method, path, **more)
        remaining -= method != "GET"
        if remaining == 0:  # the last write has reached the server
            raise Killed
        return answer

    client.request = request
    news = await pool.check(**TO_LARGE)
    handler = provider.handler("gpuform:nodes:MigLayout")
    try:
        await handler.update(pool.call(), "id", pool.inputs, pool.outputs, news)
    except Killed:
        return True
    finally:
        await provider.close()
    return False


async def test_killed_after_any_write_the_same_again_comes_through(pool):
    name = await pool.add_node("0")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL)
        await pool.run(name, SMALL)
        seen = []
        while await killed_after(pool, len(seen) + 1):
            seen.append(await _read_state(pool, name))
            await pool.update(**TO_LARGE)
            assert await pool.layout(name) == "large"
            assert not await pool.changes(**TO_LARGE)
            await pool.update(**TO_SMALL)
            await pool.until(lambda: pool.running(name))
    # It had cordoned the node, evicted the pod, set the label, and uncordoned the node.
    assert seen == [
        (True, True, "small"),
        (True, True, "small"),
        (True, True, "large"),
        (False, False, "large"),
    ]


async def _read_state(pool, name):
    """State after a killed run: whether the node is cordoned, whether it has the annotation, its label."""
    node = await pool.node(name)
    has_note = NOTE in node["metadata"]["annotations"]
    return bool(node["spec"].get("unschedulable")), has_note, node["metadata"]["labels"][CONFIG]


@pytest.mark.nightly
async def test_a_node_that_reboots_and_a_cluster_that_is_away_are_waited_for(pool):
    name = await pool.add_node("0")
    manager = MigManager(pool, LAYOUTS)
    manager.absent.add(name)
    client = pool.cluster.client
    send, away = client.request, []

    async def request(method, path, **more):
        if away:
            raise away.pop()
        return await send(method, path, **more)

    client.request = request
    news = await pool.check(**TO_LARGE)
    run = asyncio.ensure_future(pool.invoke("create", news))
    await pool.until(lambda: _is_labelled(pool, name))
    await manager.state(name, "rebooting")
    away += [ApiError(503, {"message": "starting"}), Unreachable("refused")]
    await pool.until(lambda: _is_empty(away))
    await pool.offers(name, {LARGE: 2})
    await manager.state(name, "success")
    await run
    assert await pool.is_open(name)


async def _is_labelled(pool, name):
    return (await pool.labels(name)).get(CONFIG) == "large"


async def _is_empty(away):
    return not away


@pytest.mark.nightly
async def test_another_layout_under_the_same_name_is_told_and_pods_leave_for_it(pool):
    """The MIG manager reacts only to a change of the label: the update waited until its timeout."""
    name = await pool.add_node("0")
    manager = MigManager(pool, dict(LAYOUTS))
    first = {**TO_SMALL, "config": "ours", "layout": "a"}
    async with manager.working():
        manager.layouts["ours"] = LAYOUTS["small"]
        await pool.create(**first)
        assert await pool.changes(**first) == set()
        await pool.run(name, SMALL)
        manager.layouts["ours"] = LAYOUTS["large"]
        second = {**TO_LARGE, "config": "ours", "layout": "b"}
        assert await pool.changes(**second) == {"layout", "offers", "nodes"}
        await pool.update(**second)
        assert manager.busy == []
        assert await pool.changes(**second) == set()
        assert await pool.layout(name) == "ours"


@pytest.mark.nightly
async def test_a_killed_run_that_had_only_cordoned_is_taken_up_even_by_another_layout(pool):
    note = '{"cordoned": true, "source": "small", "target": "large"}'
    name = await pool.add_node("0", {CONFIG: "small", STATE: "success"}, unschedulable=True)
    await pool.cluster.patch(name, {"metadata": {"annotations": {NOTE: note}}})
    await pool.offers(name, {SMALL: 7})
    await pool.create(**TO_SMALL)
    assert await pool.layout(name) == "small"


@pytest.mark.nightly
async def test_a_node_that_was_closed_before_stays_closed(pool):
    name = await pool.add_node("0", unschedulable=True)
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL)
    node = await pool.node(name)
    assert node["spec"]["unschedulable"] is True
    assert NOTE not in node["metadata"]["annotations"]


@pytest.mark.nightly
async def test_a_cancel_before_the_label_is_set_leaves_the_node_as_it_was(pool):
    name = await pool.add_node("0")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL)
        await pool.run(name, SMALL)
        await pool.budget(1)
        call = pool.call()
        news = await pool.check(**TO_LARGE)
        handler = pool.provider.handler("gpuform:nodes:MigLayout")
        run = asyncio.ensure_future(handler.update(call, "id", pool.inputs, pool.outputs, news))
        await pool.until(lambda: _has_note(pool, name))
        call.cancelled.set()
        with pytest.raises(Cancelled):
            await run
        assert await pool.layout(name) == "small"


async def _has_note(pool, name):
    return NOTE in (await pool.node(name))["metadata"]["annotations"]


@pytest.mark.nightly
@pytest.mark.parametrize(("rolling", "max_closed"), [({}, 1), ({"maxUnavailable": "70%"}, 2)])
async def test_nodes_go_within_their_budget_and_what_was_done_is_kept(pool, rolling, max_closed):
    names = [await pool.add_node(str(number)) for number in range(3)]
    manager = MigManager(pool, LAYOUTS)
    closed = []

    async def watch():
        while True:
            nodes = await pool.cluster.nodes(pool.selector)
            closed.append(sum(bool(node["spec"].get("unschedulable")) for node in nodes))
            await asyncio.sleep(0.05)

    manager.absent.add(names[2])
    async with manager.working():
        watcher = asyncio.ensure_future(watch())
        with pytest.raises(InitFailed, match=f"node {names[2]}: layout large not applied after") as failure:
            await pool.create(**{**TO_LARGE, "timeoutSeconds": 2, **rolling})
        watcher.cancel()
    assert failure.value.properties["nodes"] == names[:2]
    assert max(closed) == max_closed

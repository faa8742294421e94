"""MigLayout killed after each of its writes, or interrupted otherwise, and the order of nodes."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Cancelled, InitFailed
from gpuform.provider.nodes.layout import CONFIG, NOTE, STATE
from gpuform.provider.own.provider import Own
from tests.provider.nodes.mig_manager import LARGE, LAYOUTS, SMALL, TO_LARGE, TO_SMALL, MigManager

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]
TOKEN = "gpuform:nodes:MigLayout"


class Killed(BaseException):
    """Not caught by any handler, as SIGKILL is not."""


async def killed_after(scene, writes):
    """A run with its own connection, killed after so many writes; False if it makes fewer."""
    other = Own(scene.log)
    client = other._shared().of({"kubeconfig": scene.kubeconfig}).client
    send, left = client.request, writes

    async def request(method, path, **more):
        nonlocal left
        answer = await send(method, path, **more)
        left -= method != "GET"
        if left == 0:  # the last write has reached the server
            raise Killed
        return answer

    client.request = request
    news = await scene.checked(**TO_LARGE)
    handler = other.handler("gpuform:nodes:MigLayout")
    try:
        await handler.update(scene.call(), "id", scene.inputs, scene.outputs, news)
    except Killed:
        return True
    finally:
        await other.close()
    return False


async def test_killed_after_any_write_the_same_again_comes_through(scene):
    name = await scene.add_node("0")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
        await scene.deploy(SMALL)
        await scene.until(lambda: scene.running(name))
        seen = []
        while await killed_after(scene, len(seen) + 1):
            seen.append(await _left(scene, name))
            await scene.update(**TO_LARGE)
            assert await scene.is_open(name)
            assert (await scene.labels(name))[CONFIG] == "large"
            assert not await scene.changes(**TO_LARGE)
            await scene.update(**TO_SMALL)
            await scene.until(lambda: scene.running(name))
    # It had cordoned the node, evicted the pod, set the label, and uncordoned the node.
    assert seen == [
        (True, True, "small"),
        (True, True, "small"),
        (True, True, "large"),
        (False, False, "large"),
    ]


async def _left(scene, name):
    """State after a killed run: whether the node is cordoned, whether it has the annotation, its label."""
    node = await scene.node(name)
    noted = NOTE in node["metadata"]["annotations"]
    return bool(node["spec"].get("unschedulable")), noted, node["metadata"]["labels"][CONFIG]


@pytest.mark.nightly
async def test_a_node_that_reboots_and_a_cluster_that_is_away_are_waited_for(scene):
    name = await scene.add_node("0")
    manager = MigManager(scene, LAYOUTS)
    manager.absent.add(name)
    client = scene.cluster.client
    send, away = client.request, []

    async def request(method, path, **more):
        if away:
            raise away.pop()
        return await send(method, path, **more)

    client.request = request
    news = await scene.checked(**TO_LARGE)
    run = asyncio.ensure_future(scene.ask("create", news))
    await scene.until(lambda: _told(scene, name))
    await manager.state(name, "rebooting")
    away += [ApiError(503, {"message": "starting"}), Unreachable("refused")]
    await scene.until(lambda: _empty(away))
    await scene.offers(name, {LARGE: 2})
    await manager.state(name, "success")
    await run
    assert await scene.is_open(name)


async def _told(scene, name):
    return (await scene.labels(name)).get(CONFIG) == "large"


async def _empty(away):
    return not away


@pytest.mark.nightly
async def test_another_layout_under_the_same_name_is_told_and_pods_leave_for_it(scene):
    """The MIG manager reacts only to a change of the label: the update waited until its timeout."""
    name = await scene.add_node("0")
    manager = MigManager(scene, dict(LAYOUTS))
    first = {**TO_SMALL, "config": "ours", "layout": "a"}
    async with manager.working():
        manager.layouts["ours"] = LAYOUTS["small"]
        await scene.create(**first)
        assert await scene.changes(**first) == set()
        await scene.deploy(SMALL)
        await scene.until(lambda: scene.running(name))
        manager.layouts["ours"] = LAYOUTS["large"]
        second = {**TO_LARGE, "config": "ours", "layout": "b"}
        assert await scene.changes(**second) == {"layout", "offers", "nodes"}
        await scene.update(**second)
        assert manager.busy == []
        assert await scene.changes(**second) == set()
        assert await scene.is_open(name)
        assert (await scene.labels(name))[CONFIG] == "ours"


@pytest.mark.nightly
async def test_a_killed_run_that_had_only_cordoned_is_taken_up_even_by_another_layout(scene):
    note = '{"cordoned": true, "source": "small", "target": "large"}'
    name = await scene.add_node("0", {CONFIG: "small", STATE: "success"}, unschedulable=True)
    await scene.cluster.patch(name, {"metadata": {"annotations": {NOTE: note}}})
    await scene.offers(name, {SMALL: 7})
    await scene.create(**TO_SMALL)
    assert await scene.is_open(name)
    assert (await scene.labels(name))[CONFIG] == "small"


@pytest.mark.nightly
async def test_a_node_that_was_closed_before_stays_closed(scene):
    name = await scene.add_node("0", unschedulable=True)
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
    node = await scene.node(name)
    assert node["spec"]["unschedulable"] is True
    assert NOTE not in node["metadata"]["annotations"]


@pytest.mark.nightly
async def test_a_cancel_before_the_label_is_set_leaves_the_node_as_it_was(scene):
    name = await scene.add_node("0")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
        await scene.deploy(SMALL)
        await scene.until(lambda: scene.running(name))
        await scene.budget(1)
        call = scene.call()
        news = await scene.checked(**TO_LARGE)
        handler = scene.provider.handler("gpuform:nodes:MigLayout")
        run = asyncio.ensure_future(handler.update(call, "id", scene.inputs, scene.outputs, news))
        await scene.until(lambda: _noted(scene, name))
        call.cancelled.set()
        with pytest.raises(Cancelled):
            await run
        assert await scene.is_open(name)
        assert (await scene.labels(name))[CONFIG] == "small"


async def _noted(scene, name):
    return NOTE in (await scene.node(name))["metadata"]["annotations"]


@pytest.mark.nightly
@pytest.mark.parametrize(("rolling", "most"), [({}, 1), ({"maxUnavailable": "70%"}, 2)])
async def test_nodes_go_within_their_budget_and_what_was_done_is_kept(scene, rolling, most):
    names = [await scene.add_node(str(number)) for number in range(3)]
    manager = MigManager(scene, LAYOUTS)
    closed = []

    async def watch():
        while True:
            nodes = await scene.cluster.nodes(scene.selector)
            closed.append(sum(bool(node["spec"].get("unschedulable")) for node in nodes))
            await asyncio.sleep(0.05)

    manager.absent.add(names[2])
    async with manager.working():
        watcher = asyncio.ensure_future(watch())
        with pytest.raises(
            InitFailed, match=f"node {names[2]}: layout large not applied after 2 s"
        ) as failure:
            await scene.create(**{**TO_LARGE, "timeoutSeconds": 2, **rolling})
        watcher.cancel()
    assert failure.value.properties["nodes"] == names[:2]
    assert max(closed) == most

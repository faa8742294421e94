"""MigLayout when it is interrupted, and the order of nodes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gpuform.provider.handler import Cancelled, InitFailed
from gpuform.provider.nodes.layout import CONFIG, NOTE, STATE
from tests.provider.nodes.mig_manager import MigManager

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
LAYOUTS = {"small": {SMALL: 7, "nvidia.com/gpu": 0}, "large": {LARGE: 2}}
TO_SMALL = {"config": "small", "offers": {SMALL: 7}, "timeoutSeconds": 15}
TO_LARGE = {"config": "large", "offers": {LARGE: 2}, "timeoutSeconds": 15}


def test_a_relayout_that_was_killed_is_finished_by_the_next_run(play):
    async def act(scene):
        name = await scene.add_node("0")
        manager = MigManager(scene, LAYOUTS)
        async with manager.working():
            await scene.create("MigLayout", **TO_SMALL)
            await scene.deploy(SMALL)
            await scene.until(lambda: scene.running(name))
            manager.hold.clear()
            news = await scene.checked("MigLayout", **TO_LARGE)
            run = asyncio.ensure_future(
                scene.ask("MigLayout", "update", "id", scene.inputs, scene.outputs, news)
            )
            await scene.until(lambda: _in_state(scene, name, "pending"))
            run.cancel()  # as SIGKILL: no code after the current await runs
            with contextlib.suppress(asyncio.CancelledError):
                await run
            assert not await scene.is_open(name)
            assert "nodes" in await scene.changes("MigLayout", **TO_LARGE)
            manager.hold.set()
            await scene.update("MigLayout", **TO_LARGE)
            assert await scene.is_open(name)
            assert (await scene.labels(name))[CONFIG] == "large"

    play(act)


def test_another_layout_under_the_same_name_is_told_and_pods_leave_for_it(play):
    """The MIG manager reacts only to a change of the label: the update waited until its timeout."""

    async def act(scene):
        name = await scene.add_node("0")
        manager = MigManager(scene, dict(LAYOUTS))
        first = {**TO_SMALL, "config": "ours", "layout": "a"}
        async with manager.working():
            manager.layouts["ours"] = LAYOUTS["small"]
            await scene.create("MigLayout", **first)
            assert await scene.changes("MigLayout", **first) == set()
            await scene.deploy(SMALL)
            await scene.until(lambda: scene.running(name))
            manager.layouts["ours"] = LAYOUTS["large"]
            second = {**TO_LARGE, "config": "ours", "layout": "b"}
            assert await scene.changes("MigLayout", **second) == {"layout", "offers", "nodes"}
            await scene.update("MigLayout", **second)
            assert manager.busy == []
            assert await scene.changes("MigLayout", **second) == set()
            assert await scene.is_open(name)
            assert (await scene.labels(name))[CONFIG] == "ours"

    play(act)


async def _in_state(scene, name, state):
    return (await scene.labels(name)).get(STATE) == state


def test_a_killed_run_that_had_only_cordoned_is_taken_up_even_by_another_layout(play):
    async def act(scene):
        note = '{"cordoned": true, "source": "small", "target": "large"}'
        name = await scene.add_node("0", {CONFIG: "small", STATE: "success"}, unschedulable=True)
        await scene.cluster.patch(name, {"metadata": {"annotations": {NOTE: note}}})
        await scene.offers(name, {SMALL: 7})
        await scene.create("MigLayout", **TO_SMALL)
        assert await scene.is_open(name)
        assert (await scene.labels(name))[CONFIG] == "small"

    play(act)


def test_a_node_that_was_closed_before_stays_closed(play):
    async def act(scene):
        name = await scene.add_node("0", unschedulable=True)
        async with MigManager(scene, LAYOUTS).working():
            await scene.create("MigLayout", **TO_SMALL)
        node = await scene.node(name)
        assert node["spec"]["unschedulable"] is True
        assert NOTE not in node["metadata"]["annotations"]

    play(act)


def test_a_cancel_before_the_label_is_set_leaves_the_node_as_it_was(play):
    async def act(scene):
        name = await scene.add_node("0")
        async with MigManager(scene, LAYOUTS).working():
            await scene.create("MigLayout", **TO_SMALL)
            await scene.deploy(SMALL)
            await scene.until(lambda: scene.running(name))
            await scene.budget(1)
            call = scene.call("MigLayout")
            news = await scene.checked("MigLayout", **TO_LARGE)
            handler = scene.provider.handler("gpuform:nodes:MigLayout")
            run = asyncio.ensure_future(handler.update(call, "id", scene.inputs, scene.outputs, news))
            await scene.until(lambda: _noted(scene, name))
            call.cancelled.set()
            with pytest.raises(Cancelled):
                await run
            assert await scene.is_open(name)
            assert (await scene.labels(name))[CONFIG] == "small"

    play(act)


async def _noted(scene, name):
    return NOTE in (await scene.node(name))["metadata"]["annotations"]


@pytest.mark.parametrize(("rolling", "most"), [({}, 1), ({"maxUnavailable": "70%"}, 2)])
def test_nodes_go_within_their_budget_and_what_was_done_is_kept(play, rolling, most):
    async def act(scene):
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
                await scene.create("MigLayout", **{**TO_LARGE, "timeoutSeconds": 2, **rolling})
            watcher.cancel()
        assert failure.value.properties["nodes"] == names[:2]
        assert max(closed) == most

    play(act)

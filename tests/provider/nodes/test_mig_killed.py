"""MigLayout killed after each of its writes: a second run completes, and no node stays cordoned."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.nodes.layout import CONFIG, NOTE
from gpuform.provider.own.provider import Own
from tests.provider.nodes.mig_manager import MigManager

pytestmark = pytest.mark.cluster

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
LAYOUTS = {"small": {SMALL: 7, "nvidia.com/gpu": 0}, "large": {LARGE: 2}}
TO_SMALL = {"config": "small", "offers": {SMALL: 7}, "timeoutSeconds": 15}
TO_LARGE = {"config": "large", "offers": {LARGE: 2}, "timeoutSeconds": 15}
ROOT = Path(__file__).resolve().parents[3]


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
    news = await scene.checked("MigLayout", **TO_LARGE)
    handler = other.handler("gpuform:nodes:MigLayout")
    try:
        await handler.update(scene.call("MigLayout"), "id", scene.inputs, scene.outputs, news)
    except Killed:
        return True
    finally:
        await other.close()
    return False


def test_killed_after_any_write_the_same_again_comes_through(play):
    async def act(scene):
        name = await scene.add_node("0")
        async with MigManager(scene, LAYOUTS).working():
            await scene.create("MigLayout", **TO_SMALL)
            await scene.deploy(SMALL)
            await scene.until(lambda: scene.running(name))
            seen = []
            while await killed_after(scene, len(seen) + 1):
                seen.append(await _left(scene, name))
                await scene.update("MigLayout", **TO_LARGE)
                assert await scene.is_open(name)
                assert (await scene.labels(name))[CONFIG] == "large"
                assert not await scene.changes("MigLayout", **TO_LARGE)
                await scene.update("MigLayout", **TO_SMALL)
                await scene.until(lambda: scene.running(name))
        # It had cordoned the node, evicted the pod, set the label, and uncordoned the node.
        assert seen == [
            (True, True, "small"),
            (True, True, "small"),
            (True, True, "large"),
            (False, False, "large"),
        ]

    play(act)


async def _left(scene, name):
    """State after a killed run: whether the node is cordoned, whether it has the annotation, its label."""
    node = await scene.node(name)
    noted = NOTE in node["metadata"]["annotations"]
    return bool(node["spec"].get("unschedulable")), noted, node["metadata"]["labels"][CONFIG]


@pytest.mark.nightly
def test_a_process_that_was_killed_while_a_budget_held_it_is_followed_by_another(play, control_plane):
    async def act(scene):
        name = await scene.add_node("0")
        async with MigManager(scene, LAYOUTS).working():
            await scene.create("MigLayout", **TO_SMALL)
            await scene.deploy(SMALL)
            await scene.until(lambda: scene.running(name))
            await scene.budget(1)
            program = [sys.executable, "-m", "tests.provider.nodes.other_process"]
            other = subprocess.Popen(
                [*program, str(control_plane.kubeconfig), scene.selector],
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT)},
            )
            try:
                await scene.until(lambda: _closed(scene, name))
            finally:
                os.kill(other.pid, signal.SIGKILL)
                other.wait()
            assert (await scene.labels(name))[CONFIG] == "small"
            where = {"labelSelector": scene.selector}
            budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
            await scene.cluster.client.request("DELETE", budgets, params=where)
            await scene.update("MigLayout", **TO_LARGE)
            assert await scene.is_open(name)
            assert (await scene.labels(name))[CONFIG] == "large"

    play(act)


async def _closed(scene, name):
    return (await scene.node(name))["spec"].get("unschedulable")


@pytest.mark.nightly
def test_a_node_that_reboots_and_a_cluster_that_is_away_are_waited_for(play):
    async def act(scene):
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
        news = await scene.checked("MigLayout", **TO_LARGE)
        run = asyncio.ensure_future(scene.ask("MigLayout", "create", news))
        await scene.until(lambda: _told(scene, name))
        await manager.state(name, "rebooting")
        away += [ApiError(503, {"message": "starting"}), Unreachable("refused")]
        await scene.until(lambda: _empty(away))
        await scene.offers(name, {LARGE: 2})
        await manager.state(name, "success")
        await run
        assert await scene.is_open(name)

    play(act)


async def _told(scene, name):
    return (await scene.labels(name)).get(CONFIG) == "large"


async def _empty(away):
    return not away

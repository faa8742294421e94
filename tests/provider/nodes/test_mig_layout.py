"""MigLayout on a real API server with a real scheduler; the tests play NVIDIA's MIG manager."""

from __future__ import annotations

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.nodes.layout import CONFIG, STATE
from tests.provider.nodes.mig_manager import LARGE, LAYOUTS, SMALL, TO_LARGE, TO_SMALL, MigManager

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]
TOKEN = "gpuform:nodes:MigLayout"


async def test_a_fresh_node_gets_its_layout_and_is_then_left_alone(scene):
    name = await scene.add_node("0")
    manager = MigManager(scene, LAYOUTS)
    async with manager.working():
        outputs = await scene.create(**TO_SMALL)
        assert outputs["nodes"] == [name]
        assert await scene.changes(**TO_SMALL) == set()
    writes = scene.writes()  # not the node's resourceVersion, which node controllers change as well
    await scene.update(**TO_SMALL)
    assert writes == []
    node = await scene.node(name)
    assert node["status"]["allocatable"][SMALL] == "7"
    assert node["metadata"]["labels"][CONFIG] == "small"
    assert await scene.is_open(name)


async def test_a_node_that_is_gone_is_no_change_and_one_that_comes_is(scene):
    await scene.add_node("0")
    second = await scene.add_node("1")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
        await scene.cluster.client.request("DELETE", f"/api/v1/nodes/{second}")
        assert await scene.changes(**TO_SMALL) == set()
        await scene.add_node("1")  # the same name, but no layout yet
        assert await scene.changes(**TO_SMALL) == {"nodes"}


async def test_pods_are_evicted_before_the_change_and_come_back_after_it(scene):
    name = await scene.add_node("0")
    manager = MigManager(scene, {**LAYOUTS, "both": {SMALL: 3, LARGE: 1}})
    async with manager.working():
        await scene.create(**TO_SMALL)
        await scene.deploy(SMALL, replicas=2)
        before = await scene.until(lambda: _two(scene, name))
        both = {"config": "both", "offers": {SMALL: 3, LARGE: 1}, "timeoutSeconds": 20}
        assert await scene.changes(**both) == {"config", "nodes", "offers"}
        await scene.update(**both)
        after = await scene.until(lambda: _two(scene, name))
    assert manager.busy == []
    assert not set(before) & set(after)


async def _two(scene, name):
    running = await scene.running(name)
    return running if len(running) == 2 else []


async def test_a_disruption_budget_holds_and_is_named(scene):
    name = await scene.add_node("0")
    manager = MigManager(scene, LAYOUTS)
    async with manager.working():
        await scene.create(**TO_SMALL)
        await scene.deploy(SMALL, replicas=2)
        await scene.until(lambda: _two(scene, name))
        await scene.budget(2)
        with pytest.raises(OperationError) as failure:
            await scene.update(**{**TO_LARGE, "timeoutSeconds": 3})
    message = str(failure.value)
    assert f"node {name}: 2 pods still use its GPUs after 3 s: default/{scene.pool}-" in message
    assert f"disruption budget budget-{scene.pool} needs 2 healthy pods" in message
    assert len(await scene.running(name)) == 2
    assert (await scene.labels(name))[CONFIG] == "small"
    assert await scene.is_open(name)


async def test_a_pod_that_would_not_come_back_is_named_and_nothing_is_changed(scene):
    first, second = await scene.add_node("0"), await scene.add_node("1")
    await scene.offers(second, {SMALL: 7})
    await scene.pod(f"bare-{scene.pool}", second, SMALL)
    before = [(await scene.node(name))["metadata"]["labels"] for name in (first, second)]
    with pytest.raises(
        OperationError, match=f"node {second}: .*pod default/bare-{scene.pool} has no controller"
    ):
        await scene.create(**TO_LARGE)
    assert [(await scene.node(name))["metadata"]["labels"] for name in (first, second)] == before
    assert await scene.is_open(first)
    assert await scene.is_open(second)
    assert len(await scene.users(second)) == 1


async def test_a_failed_change_puts_the_label_back_and_says_why(scene):
    name = await scene.add_node("0")
    manager = MigManager(scene, LAYOUTS)
    async with manager.working():
        await scene.create(**TO_SMALL)
        wanted = rf"node {name}: layout no-such failed .*there is no layout no-such.*its label is small again"
        with pytest.raises(OperationError, match=wanted):
            await scene.update(config="no-such", offers={SMALL: 1}, timeoutSeconds=15)
        assert await scene.is_open(name)
        assert (await scene.labels(name))[CONFIG] == "small"
        assert (await scene.labels(name))[
            STATE
        ] == "success"  # the old layout is back before the node is uncordoned
        await scene.update(**TO_LARGE)
        assert (await scene.labels(name))[CONFIG] == "large"


async def test_a_layout_that_offers_something_else_is_a_failure(scene):
    name = await scene.add_node("0")
    manager = MigManager(scene, {"large": {LARGE: 2, SMALL: 1}})
    async with manager.working():
        wanted = (
            r"layout large not applied after 2 s: .* success, it offers nvidia\.com/mig-1g\.5gb 1 instead"
        )
        with pytest.raises(OperationError, match=wanted):
            await scene.create(**{**TO_LARGE, "timeoutSeconds": 2})
    assert CONFIG not in await scene.labels(name)
    assert await scene.is_open(name)


async def test_a_label_that_failed_before_is_set_anew(scene):
    name = await scene.add_node("0", {CONFIG: "small", STATE: "failed"})
    manager = MigManager(scene, LAYOUTS)
    manager.seen[name] = "small"
    async with manager.working():
        await scene.create(**TO_SMALL)
    assert (await scene.labels(name))[STATE] == "success"


async def test_delete_takes_the_label_off_and_leaves_the_layout(scene):
    name = await scene.add_node("0")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_LARGE)
        await scene.ask("delete", "id", scene.inputs, scene.outputs)
    node = await scene.node(name)
    assert CONFIG not in node["metadata"]["labels"]
    assert node["status"]["allocatable"][LARGE] == "2"


async def test_a_preview_says_what_would_be_evicted_and_does_nothing(scene):
    name = await scene.add_node("0")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
        await scene.deploy(SMALL)
        (pod,) = await scene.until(lambda: scene.running(name))
        await scene.pod(f"bare-{scene.pool}", name, SMALL)
        scene.log.lines.clear()
        news = await scene.checked(**TO_LARGE)
        await scene.ask("update", "id", scene.inputs, scene.outputs, news, preview=True)
    assert scene.log.lines[0] == f"node {name}: layout small -> large; would evict default/{pod}"
    assert f"pod default/bare-{scene.pool} has no controller" in scene.log.lines[1]
    assert (await scene.labels(name))[CONFIG] == "small"
    assert await scene.is_open(name)


async def test_no_match_names_the_selector(scene):
    with pytest.raises(OperationError, match=f"no node matches the selector 'pool={scene.pool}'"):
        await scene.create(**TO_SMALL)


async def test_nodes_may_join_later_where_that_is_said(scene):
    assert (await scene.create(**TO_SMALL, mayBeEmpty=True))["nodes"] == []
    assert await scene.changes(**TO_SMALL, mayBeEmpty=True) == set()
    found = await scene.ask("read", "id", scene.inputs, scene.outputs)
    assert found.properties["nodes"] == []
    await scene.add_node("0")
    assert await scene.changes(**TO_SMALL, mayBeEmpty=True) == {"nodes"}


async def test_where_pods_are_not_evicted_they_are_named_and_nothing_is_changed(scene):
    first, second = await scene.add_node("0"), await scene.add_node("1")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
    await scene.cluster.patch(
        first, {"spec": {"unschedulable": True}}
    )  # so that the pod goes to the other node
    await scene.deploy(SMALL)
    (pod,) = await scene.until(lambda: scene.running(second))
    await scene.cluster.patch(first, {"spec": {"unschedulable": None}})
    wanted = {**TO_LARGE, "inUse": "refuse", "maxUnavailable": "100%"}
    news = await scene.checked(**wanted)
    said = f"node {second}: its GPUs are in use by default/{pod}, but the pool has relayout.in_use: refuse"
    await scene.ask("update", "id", scene.inputs, scene.outputs, news, preview=True)
    assert any(said in line for line in scene.log.lines)
    assert not any("evict" in line for line in scene.log.lines)
    with pytest.raises(OperationError, match=said):
        await scene.update(**wanted)
    for name in (first, second):
        assert await scene.is_open(name)
        assert (await scene.labels(name))[CONFIG] == "small"
    assert await scene.running(second) == [pod]


async def test_a_pod_that_comes_while_the_node_is_closed_is_not_evicted_either(scene):
    name = await scene.add_node("0")
    async with MigManager(scene, LAYOUTS).working():
        await scene.create(**TO_SMALL)
    patch, came = scene.cluster.client.request, []

    async def request(method, path, **more):
        answer = await patch(method, path, **more)
        if method == "PATCH" and not came:  # the node has just been cordoned; the pod was bound before
            came.append(name)
            await scene.pod(f"late-{scene.pool}", name, SMALL)
        return answer

    scene.cluster.client.request = request
    with pytest.raises(
        OperationError, match=f"node {name}: its GPUs are in use by default/late-{scene.pool}"
    ):
        await scene.update(**{**TO_LARGE, "inUse": "refuse"})
    assert await scene.is_open(name)
    assert (await scene.labels(name))[CONFIG] == "small"

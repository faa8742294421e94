"""MigLayout on a real API server with a real scheduler; the tests play NVIDIA's MIG manager."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.nodes import relayout
from gpuform.provider.nodes.layout import CONFIG, STATE
from tests.provider.nodes.mig_manager import (
    LARGE,
    LAYOUTS,
    OPERAND,
    PAUSED,
    SMALL,
    TO_LARGE,
    TO_SMALL,
    MigManager,
)

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]
TOKEN = "gpuform:nodes:MigLayout"


async def test_a_fresh_node_gets_its_layout_and_is_then_left_alone(pool):
    name = await pool.add_node("0")
    manager = MigManager(pool, LAYOUTS)
    async with manager.working():
        outputs = await pool.create(**TO_SMALL, expected=1)
        assert outputs["nodes"] == [name]
        assert await pool.changes(**TO_SMALL, expected=1) == set()
        assert await pool.changes(**TO_SMALL, expected=2) == {"nodes"}, "a node joins with this update"
    writes = pool.writes()  # not the node's resourceVersion, which node controllers change as well
    await pool.update(**TO_SMALL)
    assert writes == []
    node = await pool.node(name)
    assert node["status"]["allocatable"][SMALL] == "7"
    assert node["metadata"]["labels"][CONFIG] == "small"
    assert await pool.is_open(name)


async def test_the_label_waits_for_a_mig_manager_with_the_layouts(pool):
    """One with the ConfigMap of earlier layouts, which the operator has not replaced yet, would refuse it."""
    name = await pool.add_node("0")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL, configMap="old")
        old = await pool.mig_manager(name, config_map="old")
        change = asyncio.ensure_future(pool.update(**TO_LARGE, configMap="new"))
        await asyncio.sleep(1.5)
        node = await pool.node(name)
        assert node["metadata"]["labels"][CONFIG] == "small"
        assert await pool.is_open(name), "its pods need not go yet"
        await pool.cluster.client.request("DELETE", old, body={"gracePeriodSeconds": 0})
        await pool.mig_manager(name, config_map="new")
        await change
    assert (await pool.node(name))["metadata"]["labels"][CONFIG] == "large"


async def test_pods_are_evicted_before_the_change_and_come_back_after_it(pool):
    name = await pool.add_node("0")
    manager = MigManager(pool, {**LAYOUTS, "both": {SMALL: 3, LARGE: 1}})
    async with manager.working():
        await pool.create(**TO_SMALL)
        before = await pool.run(name, SMALL, 2)
        both = {"config": "both", "offers": {SMALL: 3, LARGE: 1}, "timeoutSeconds": 20}
        assert await pool.changes(**both) == {"config", "nodes", "offers"}
        await pool.update(**both)
        after = await pool.all_running(name, 2)
    assert manager.busy == []
    assert not set(before) & set(after)


async def test_a_disruption_budget_holds_and_is_named(pool):
    name = await pool.add_node("0")
    manager = MigManager(pool, LAYOUTS)
    async with manager.working():
        await pool.create(**TO_SMALL)
        await pool.run(name, SMALL, 2)
        await pool.budget(2)
        with pytest.raises(OperationError) as failure:
            await pool.update(**{**TO_LARGE, "timeoutSeconds": 1})
    message = str(failure.value)
    assert f"node {name}: 2 pods still use its GPUs after 1 s: default/{pool.name}-" in message
    assert f"disruption budget budget-{pool.name} needs 2 healthy pods" in message
    assert len(await pool.running(name)) == 2
    assert await pool.layout(name) == "small"


async def test_a_pod_that_would_not_come_back_is_named_and_nothing_is_changed(pool):
    first, second = await pool.add_node("0"), await pool.add_node("1")
    await pool.offers(second, {SMALL: 7})
    await pool.pod(f"bare-{pool.name}", second, SMALL)
    before = [(await pool.node(name))["metadata"]["labels"] for name in (first, second)]
    message = f"node {second}: .*pod default/bare-{pool.name} has no controller"
    with pytest.raises(OperationError, match=message):
        await pool.create(**TO_LARGE)
    assert [(await pool.node(name))["metadata"]["labels"] for name in (first, second)] == before
    assert await pool.is_open(first)
    assert await pool.is_open(second)
    assert len(await pool.gpu_pods(second)) == 1


async def test_a_failed_change_puts_the_label_back_and_says_why(pool):
    name = await pool.add_node("0")
    manager = MigManager(pool, LAYOUTS)
    async with manager.working():
        await pool.create(**TO_SMALL)
        message = "layout no-such failed .*there is no layout no-such.*its label is small again"
        with pytest.raises(OperationError, match=message):
            await pool.update(config="no-such", offers={SMALL: 1}, timeoutSeconds=15)
        assert await pool.layout(name) == "small"
        assert (await pool.labels(name))[STATE] == "success", "the old layout is back"
        await pool.update(**TO_LARGE)
        assert (await pool.labels(name))[CONFIG] == "large"


async def test_a_layout_that_offers_something_else_is_a_failure(pool):
    name = await pool.add_node("0")
    manager = MigManager(pool, {"large": {LARGE: 2, SMALL: 1}})
    async with manager.working():
        message = r"layout large not applied after 2 s: .* it offers nvidia\.com/mig-1g\.5gb 1 instead"
        with pytest.raises(OperationError, match=message):
            await pool.create(**{**TO_LARGE, "timeoutSeconds": 2})
    assert await pool.layout(name) is None


async def test_a_label_over_which_the_operator_writes_its_default_is_set_again(pool):
    """gpu-operator patches labels from its cache, in which a label just set may be missing."""
    name = await pool.add_node("0")
    send, overwritten = pool.cluster.client.request, []

    async def request(method, path, **more):
        answer = await send(method, path, **more)
        if CONFIG in more.get("body", {}).get("metadata", {}).get("labels", {}) and not overwritten:
            overwritten.append(path)
            await pool.cluster.patch(name, {"metadata": {"labels": {CONFIG: "all-disabled"}}})
        return answer

    pool.cluster.client.request = request
    async with MigManager(pool, {**LAYOUTS, "all-disabled": {"nvidia.com/gpu": 1}}).working():
        await pool.create(**TO_SMALL)
    assert overwritten
    assert await pool.layout(name) == "small"


async def test_a_label_that_failed_before_is_set_anew(pool):
    name = await pool.add_node("0", {CONFIG: "small", STATE: "failed"})
    manager = MigManager(pool, LAYOUTS)
    manager.seen[name] = "small"
    async with manager.working():
        await pool.create(**TO_SMALL)
    assert (await pool.labels(name))[STATE] == "success"


@pytest.mark.parametrize("state", ["pending", "rebooting"])
async def test_a_mig_manager_that_gave_up_is_started_by_the_label(pool, state, monkeypatch):
    """It waits for another label, and the node would offer nothing for ever [NVIDIA/gpu-operator#2833]."""
    if state == "rebooting":  # the other waits for a third of its time limit
        monkeypatch.setattr(relayout, "_GIVES_UP_S", 0.5)
    first = await pool.add_node("0")
    earlier = await pool.add_node("1", {CONFIG: "small", STATE: state, OPERAND: PAUSED})  # before this run
    manager = MigManager(pool, LAYOUTS, gives_up=1, stops_at=state)
    manager.seen[earlier] = "small"
    async with manager.working():
        await pool.create(**{**TO_SMALL, "timeoutSeconds": 6, "maxUnavailable": 2})
    for name in (first, earlier):
        labels = await pool.labels(name)
        assert (labels[CONFIG], labels[STATE], labels[OPERAND]) == ("small", "success", "true")
        assert await pool.is_open(name)
    assert any(f"node {first}: setting {CONFIG} again" in line for line in pool.log.lines)


async def test_a_mig_manager_that_always_gives_up_is_tried_three_times(pool, monkeypatch):
    monkeypatch.setattr(relayout, "_GIVES_UP_S", 0.5)
    name = await pool.add_node("0")
    manager = MigManager(pool, LAYOUTS, gives_up=9)
    pod = f"-l app=nvidia-mig-manager --field-selector spec.nodeName={name}"
    async with manager.working():
        with pytest.raises(OperationError) as failure:
            await pool.create(**{**TO_SMALL, "timeoutSeconds": 5})
    assert str(failure.value).endswith(
        "its label is unset again, and it accepts pods; "
        f"restart its MIG manager: `kubectl delete pod -A {pod}`, and run again"
    )
    assert manager.attempts == 3
    labels = await pool.labels(name)
    assert CONFIG not in labels
    assert STATE not in labels
    assert labels[OPERAND] == "true", "without a layout, nothing else starts it again"


async def test_a_mig_manager_is_not_started_while_a_pod_has_a_gpu_or_the_node_is_away(pool):
    held = await pool.add_node("0", {CONFIG: "small", STATE: "pending"})
    away = await pool.add_node("1", {CONFIG: "small", STATE: "rebooting"}, ready=False)
    await pool.offers(held, {SMALL: 7})
    await pool.pod(f"bare-{pool.name}", held, SMALL)
    with pytest.raises(OperationError) as failure:
        await pool.create(**{**TO_SMALL, "timeoutSeconds": 2, "maxUnavailable": 2})
    message = str(failure.value)
    stays = "the label was set before this run and stays as it is"
    assert f"{stays}; its GPUs are in use by default/bare-{pool.name}: end them, and run again" in message
    assert f"{stays}; the node is not Ready: look at its console, and run again" in message
    assert (await pool.labels(held))[STATE] == "pending"
    assert (await pool.labels(away))[STATE] == "rebooting"


async def test_operands_left_paused_after_a_change_are_started(pool):
    """A MIG manager that fails after a success restores no label, and a killed one may not, either."""
    name = await pool.add_node("0", {CONFIG: "small", STATE: "success", OPERAND: PAUSED})
    await pool.offers(name, {SMALL: 7})
    await pool.create(**TO_SMALL)
    assert (await pool.labels(name))[OPERAND] == "true"


async def test_delete_takes_the_label_off_and_leaves_the_layout(pool):
    name = await pool.add_node("0")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_LARGE)
        await pool.delete()
    node = await pool.node(name)
    assert CONFIG not in node["metadata"]["labels"]
    assert node["status"]["allocatable"][LARGE] == "2"


async def test_delete_starts_what_a_change_in_progress_has_paused(pool):
    name = await pool.add_node("0", {CONFIG: "small", STATE: "pending", OPERAND: PAUSED})
    await pool.invoke("delete", "id", await pool.check(**TO_SMALL), {})
    labels = await pool.labels(name)
    assert CONFIG not in labels
    assert STATE not in labels
    assert labels[OPERAND] == "true"


async def test_a_preview_says_what_would_be_evicted_and_does_nothing(pool):
    name = await pool.add_node("0")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL)
        (pod,) = await pool.run(name, SMALL)
        await pool.pod(f"bare-{pool.name}", name, SMALL)
        pool.log.lines.clear()
        await pool.preview(**TO_LARGE)
    assert pool.log.lines[0] == f"node {name}: layout small -> large; would evict default/{pod}"
    assert f"pod default/bare-{pool.name} has no controller" in pool.log.lines[1]
    assert await pool.layout(name) == "small"


async def test_no_match_names_the_selector(pool):
    with pytest.raises(OperationError, match=f"no node matches the selector 'pool={pool.name}'"):
        await pool.create(**TO_SMALL)


async def test_nodes_may_join_later_where_that_is_said(pool):
    assert (await pool.create(**TO_SMALL, mayBeEmpty=True))["nodes"] == []
    assert await pool.changes(**TO_SMALL, mayBeEmpty=True) == set()
    found = await pool.read()
    assert found.properties["nodes"] == []
    await pool.add_node("0")
    assert await pool.changes(**TO_SMALL, mayBeEmpty=True) == {"nodes"}


async def test_where_pods_are_not_evicted_they_are_named_and_nothing_is_changed(pool):
    first, second = await pool.add_node("0"), await pool.add_node("1")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL)
    # So that the pod goes to the other node.
    await pool.cluster.patch(first, {"spec": {"unschedulable": True}})
    (pod,) = await pool.run(second, SMALL)
    await pool.cluster.patch(first, {"spec": {"unschedulable": None}})
    inputs = {**TO_LARGE, "inUse": "refuse", "maxUnavailable": "100%"}
    message = f"node {second}: its GPUs are in use by default/{pod}, but the pool has relayout.in_use: refuse"
    await pool.preview(**inputs)
    assert any(message in line for line in pool.log.lines)
    assert not any("evict" in line for line in pool.log.lines)
    with pytest.raises(OperationError, match=message):
        await pool.update(**inputs)
    for name in (first, second):
        assert await pool.layout(name) == "small"
    assert await pool.running(second) == [pod]


async def test_a_pod_that_comes_while_the_node_is_closed_is_not_evicted_either(pool):
    name = await pool.add_node("0")
    async with MigManager(pool, LAYOUTS).working():
        await pool.create(**TO_SMALL)
    patch, created = pool.cluster.client.request, []

    async def request(method, path, **more):
        answer = await patch(method, path, **more)
        if method == "PATCH" and not created:  # the node has just been cordoned; the pod was bound before
            created.append(name)
            await pool.pod(f"late-{pool.name}", name, SMALL)
        return answer

    pool.cluster.client.request = request
    with pytest.raises(OperationError, match=f"node {name}: its GPUs are in use by default/late-{pool.name}"):
        await pool.update(**{**TO_LARGE, "inUse": "refuse"})
    assert await pool.layout(name) == "small"

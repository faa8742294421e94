"""NV18's blue-green update with no spare GPU (FACTS 1, row 23), on a real API server and scheduler."""

from __future__ import annotations

import re

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Change, InitFailed

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]


async def test_two_gpus_are_enough_for_an_update_of_two_replicas(workload):
    assert (await workload.create(image="a:1"))["colour"] == "blue"
    assert await workload.images() == ["a:1", "a:1"]
    assert await workload.changes(image="a:1") == set()
    async with workload.watched() as seen:
        assert await workload.changes(image="a:2") == {"deployment.spec.template", "colour"}
        assert (await workload.update(image="a:2"))["colour"] == "green"
    assert seen.max_pods == 2, "never a pod more than there are GPUs"
    assert seen.min_ready >= 1, "a ready pod serves at all times"
    assert await workload.images() == ["a:2", "a:2"]
    assert await workload.replicas() == {"blue": 0, "green": 2}
    assert await workload.changes(image="a:2") == set()
    await workload.update(image="a:3")
    assert await workload.colour() == "blue", "and back again"
    assert await workload.images() == ["a:3", "a:3"]


@pytest.mark.nightly
async def test_pods_that_do_not_get_ready_make_it_go_back(workload):
    await workload.create(image="a:1")
    async with workload.watched() as seen:
        with pytest.raises(OperationError) as failure:
            await workload.update(image="broken:1", ready=False, deadlineSeconds=2)
    message = str(failure.value)
    short = rf"Deployment default/{workload.name}: green: 0 of 2 are ready, blue has \d, no progress for 2 s"
    assert re.search(short, message)
    assert f"pod {workload.name}-green-" in message
    assert message.endswith("blue has its 2 replicas again, and the Service points to it")
    assert seen.max_pods <= 2
    assert seen.min_ready >= 1
    assert await workload.images() == ["a:1", "a:1"]
    assert await workload.colour() == "blue"
    assert await workload.changes(image="a:1") == set(), "the stack's old declaration holds"
    await workload.update(image="a:2")
    assert await workload.images() == ["a:2", "a:2"]


@pytest.mark.nightly
@pytest.mark.parametrize("workload", [3], indirect=True)
async def test_another_number_alone_changes_no_colour(workload):
    await workload.create(replicas=2)
    before = {pod["metadata"]["uid"] for pod in await workload.pods()}
    assert await workload.changes(replicas=3) == {"deployment.spec.replicas", "colour"}
    assert (await workload.update(replicas=3))["colour"] == "blue"
    assert before < {pod["metadata"]["uid"] for pod in await workload.pods()}
    await workload.update(replicas=2)
    assert len(await workload.pods()) == 2
    with pytest.raises(OperationError, match=r"Unschedulable.*nothing was reverted, and the next update"):
        await workload.update(replicas=4, deadlineSeconds=2)


@pytest.mark.nightly
async def test_a_first_create_that_fails_is_kept_and_goes_on(workload):
    with pytest.raises(InitFailed) as failure:
        await workload.create(image="broken:1", ready=False, deadlineSeconds=1)
    assert failure.value.properties["colour"] == "blue"
    workload.inputs = await workload.check(image="broken:1", ready=False)
    workload.outputs = failure.value.properties
    await workload.update(image="a:1")
    assert await workload.images() == ["a:1", "a:1"]


@pytest.mark.nightly
async def test_what_somebody_else_made_is_left_alone(workload):
    body = {**workload.declare()["service"], "spec": {"ports": [{"port": 80}]}}
    await workload.client.request("POST", "/api/v1/namespaces/default/services", body=body)
    with pytest.raises(OperationError, match=r"Service default/.*: it exists already"):
        await workload.create()
    assert await workload.pods() == []


@pytest.mark.nightly
async def test_a_service_that_somebody_turned_elsewhere_is_turned_back(workload):
    await workload.create()
    body = {"spec": {"selector": {"gpuform.io/colour": "red"}}}
    path = f"/api/v1/namespaces/default/services/{workload.name}"
    await workload.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    assert await workload.changes() == {"colour"}
    assert (await workload.update())["colour"] == "blue"
    assert await workload.colour() == "blue"
    assert await workload.changes() == set()


@pytest.mark.nightly
async def test_delete_takes_all_three_away_and_waits_for_the_pods(workload):
    await workload.create()
    await workload.update(image="a:2")
    await workload.invoke("delete", "id", workload.inputs, workload.outputs)
    assert await workload.pods() == []
    assert await workload.replicas() == {"blue": None, "green": None}
    assert await workload.invoke("read", "id", workload.inputs, workload.outputs) is None
    await workload.invoke("delete", "id", workload.inputs, workload.outputs)


@pytest.mark.nightly
async def test_a_preview_says_from_where_to_where_and_changes_nothing(workload):
    await workload.create()
    news = await workload.check(image="a:2")
    outputs = await workload.invoke("update", "id", workload.inputs, workload.outputs, news, preview=True)
    assert outputs["colour"] == "green"
    message = f"Deployment default/{workload.name}: blue -> green, 1 of 2 pods at a time"
    assert workload.log.lines[-1] == message
    assert await workload.images() == ["a:1", "a:1"]


@pytest.mark.nightly
async def test_another_name_is_another_one(workload):
    await workload.create()
    news = await workload.check()
    meta = {**news["deployment"]["metadata"], "name": "other"}
    moved = {**news, "deployment": {**news["deployment"], "metadata": meta}}
    found = await workload.invoke("diff", "id", workload.inputs, workload.outputs, moved)
    assert found.changes == {"deployment.metadata": Change.UPDATE}
    assert found.replaces == ["deployment.metadata"]
    assert found.delete_before_replace, "there is no GPU for both"

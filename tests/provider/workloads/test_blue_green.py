"""NV18's blue-green update with no spare GPU (FACTS 1, row 23), on a real API server and scheduler."""

from __future__ import annotations

import re

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Change, InitFailed

pytestmark = [pytest.mark.cluster, pytest.mark.anyio]


async def test_two_gpus_are_enough_for_an_update_of_two_replicas(stage):
    assert (await stage.create(image="a:1"))["colour"] == "blue"
    assert await stage.images() == ["a:1", "a:1"]
    assert await stage.changes(image="a:1") == set()
    async with stage.watched() as seen:
        assert await stage.changes(image="a:2") == {"deployment.spec.template", "colour"}
        assert (await stage.update(image="a:2"))["colour"] == "green"
    assert seen.most == 2, "never a pod more than there are GPUs"
    assert seen.fewest >= 1, "a ready pod serves at all times"
    assert await stage.images() == ["a:2", "a:2"]
    assert await stage.replicas() == {"blue": 0, "green": 2}
    assert await stage.changes(image="a:2") == set()
    await stage.update(image="a:3")
    assert await stage.colour() == "blue", "and back again"
    assert await stage.images() == ["a:3", "a:3"]


@pytest.mark.nightly
async def test_pods_that_do_not_get_ready_make_it_go_back(stage):
    await stage.create(image="a:1")
    async with stage.watched() as seen:
        with pytest.raises(OperationError) as failure:
            await stage.update(image="broken:1", ready=False, deadlineSeconds=2)
    said = str(failure.value)
    short = rf"Deployment default/{stage.name}: green: 0 of 2 are ready, blue has \d, no progress for 2 s"
    assert re.search(short, said)
    assert f"pod {stage.name}-green-" in said
    assert said.endswith("blue has its 2 replicas again, and the Service points to it")
    assert seen.most <= 2
    assert seen.fewest >= 1
    assert await stage.images() == ["a:1", "a:1"]
    assert await stage.colour() == "blue"
    assert await stage.changes(image="a:1") == set(), "the stack's old declaration holds"
    await stage.update(image="a:2")
    assert await stage.images() == ["a:2", "a:2"]


@pytest.mark.nightly
@pytest.mark.parametrize("stage", [3], indirect=True)
async def test_another_number_alone_changes_no_colour(stage):
    await stage.create(replicas=2)
    before = {pod["metadata"]["uid"] for pod in await stage.pods()}
    assert await stage.changes(replicas=3) == {"deployment.spec.replicas", "colour"}
    assert (await stage.update(replicas=3))["colour"] == "blue"
    assert before < {pod["metadata"]["uid"] for pod in await stage.pods()}
    await stage.update(replicas=2)
    assert len(await stage.pods()) == 2
    with pytest.raises(
        OperationError, match=r"Unschedulable.*nothing was reverted, and the next update continues"
    ):
        await stage.update(replicas=4, deadlineSeconds=2)


@pytest.mark.nightly
async def test_a_first_create_that_fails_is_kept_and_goes_on(stage):
    with pytest.raises(InitFailed) as failure:
        await stage.create(image="broken:1", ready=False, deadlineSeconds=1)
    assert failure.value.properties["colour"] == "blue"
    stage.inputs = await stage.checked(image="broken:1", ready=False)
    stage.outputs = failure.value.properties
    await stage.update(image="a:1")
    assert await stage.images() == ["a:1", "a:1"]


@pytest.mark.nightly
async def test_what_somebody_else_made_is_left_alone(stage):
    body = {**stage.wanted()["service"], "spec": {"ports": [{"port": 80}]}}
    await stage.client.request("POST", "/api/v1/namespaces/default/services", body=body)
    with pytest.raises(OperationError, match=r"Service default/.*: it exists already"):
        await stage.create()
    assert await stage.pods() == []


@pytest.mark.nightly
async def test_a_service_that_somebody_turned_elsewhere_is_turned_back(stage):
    await stage.create()
    body = {"spec": {"selector": {"gpuform.io/colour": "red"}}}
    path = f"/api/v1/namespaces/default/services/{stage.name}"
    await stage.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    assert await stage.changes() == {"colour"}
    assert (await stage.update())["colour"] == "blue"
    assert await stage.colour() == "blue"
    assert await stage.changes() == set()


@pytest.mark.nightly
async def test_delete_takes_all_three_away_and_waits_for_the_pods(stage):
    await stage.create()
    await stage.update(image="a:2")
    await stage.ask("delete", "id", stage.inputs, stage.outputs)
    assert await stage.pods() == []
    assert await stage.replicas() == {"blue": None, "green": None}
    assert await stage.ask("read", "id", stage.inputs, stage.outputs) is None
    await stage.ask("delete", "id", stage.inputs, stage.outputs)


@pytest.mark.nightly
async def test_a_preview_says_from_where_to_where_and_changes_nothing(stage):
    await stage.create()
    news = await stage.checked(image="a:2")
    outputs = await stage.ask("update", "id", stage.inputs, stage.outputs, news, preview=True)
    assert outputs["colour"] == "green"
    assert stage.log.lines[-1] == f"Deployment default/{stage.name}: blue -> green, 1 of 2 pods at a time"
    assert await stage.images() == ["a:1", "a:1"]


@pytest.mark.nightly
async def test_another_name_is_another_one(stage):
    await stage.create()
    news = await stage.checked()
    meta = {**news["deployment"]["metadata"], "name": "other"}
    moved = {**news, "deployment": {**news["deployment"], "metadata": meta}}
    found = await stage.ask("diff", "id", stage.inputs, stage.outputs, moved)
    assert found.changes == {"deployment.metadata": Change.UPDATE}
    assert found.replaces == ["deployment.metadata"]
    assert found.delete_before_replace, "there is no GPU for both"

"""What fails or takes too long: what is said, what is kept, and what the next run makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.plugins.handler import InitFailed, PluginError
from tests.plugins.openstack.conductor import NO_HOST, OFFERED
from tests.plugins.openstack.driving import CLUSTER, GROUP, WANTED, Driver
from tests.plugins.openstack.fake import Fake

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]


def test_a_failed_create_says_why_is_kept_and_is_replaced_by_the_next_up(fake: Fake) -> None:
    fake.reason = NO_HOST
    driver = Driver(CLUSTER)
    with pytest.raises(InitFailed) as raised:
        driver.up(**WANTED)
    [why] = raised.value.reasons
    assert why.startswith(f"cluster research: CREATE_FAILED: {NO_HOST}")
    assert "the next up deletes it and makes it anew" in why
    first = driver.id
    made = driver.up(**WANTED)
    assert driver.steps == ["create", "delete", "create"]
    assert driver.id != first
    assert list(fake.clusters) == [driver.id]
    assert made["apiAddress"]


def test_the_reasons_of_the_groups_are_in_the_error(fake: Fake) -> None:
    fake.reason, fake.group_reason = "Failed to create the stack", "Quota exceeded"
    with pytest.raises(InitFailed) as raised:
        Driver(CLUSTER).up(**WANTED)
    for words in ("Failed to create", "default-master: Quota exceeded", "default-worker: Quota exceeded"):
        assert words in str(raised.value)


def test_one_that_an_operator_repaired_is_kept(fake: Fake) -> None:
    fake.reason = NO_HOST
    driver = Driver(CLUSTER)
    with pytest.raises(InitFailed):
        driver.up(**WANTED)
    kept = driver.id
    fake.clusters[kept].update(status="CREATE_COMPLETE", api_address="https://10.0.0.5:6443")
    driver.up(**WANTED)
    assert (driver.id, driver.steps) == (kept, ["create", "update"])


def test_a_failed_group_is_replaced_by_the_next_up(fake: Fake) -> None:
    cluster = fake.ready()["uuid"]
    fake.reason = "Quota exceeded for instances"
    driver = Driver(GROUP)
    group = {"clusterId": cluster, "name": "gpu-t4", "flavorId": "g2.5xlarge"}
    with pytest.raises(InitFailed, match="node group gpu-t4: CREATE_FAILED: Quota exceeded for instances"):
        driver.up(**group)
    driver.up(**group)
    assert driver.steps == ["create", "delete", "create"]
    assert sum(one["name"] == "gpu-t4" for one in fake.groups.values()) == 1


@pytest.mark.parametrize("token", [CLUSTER, GROUP])
def test_a_failed_resize_is_tried_again_by_the_next_up(fake: Fake, token: str) -> None:
    inputs = WANTED if token == CLUSTER else {"clusterId": fake.ready()["uuid"], "name": "gpu-t4"}
    driver = Driver(token)
    driver.up(**inputs)
    fake.reason = "Quota exceeded for instances"
    with pytest.raises(PluginError, match=r"UPDATE_FAILED: Quota exceeded.*the next up tries again"):
        driver.up(**inputs, nodeCount=3)
    assert driver.inputs["nodeCount"] == 1  # the state still has what was
    assert driver.up(**inputs, nodeCount=3)["nodeCount"] == 3
    assert fake.posts("/actions/resize") == 2


def test_a_resize_that_goes_on_is_waited_for_and_not_asked_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.looks = 1000
    driver.timeout = 0.2
    with pytest.raises(PluginError, match=r"still UPDATE_IN_PROGRESS after .*the same command waits on"):
        driver.up(**WANTED, nodeCount=3)
    for moves in fake._moves.values():
        moves[0] = 1
    driver.timeout = 20
    assert driver.up(**WANTED, nodeCount=3)["nodeCount"] == 3
    assert fake.posts("/actions/resize") == 1


def test_a_create_that_takes_too_long_is_waited_for_by_the_next_up(fake: Fake) -> None:
    fake.looks = 1000
    driver = Driver(CLUSTER, timeout=0.2)
    with pytest.raises(InitFailed, match=r"still CREATE_IN_PROGRESS after .*the same command waits on"):
        driver.up(**WANTED)
    fake._moves[driver.id][0] = 1
    driver.timeout = 20
    made = driver.up(**WANTED)
    assert made["kubeconfig"]["host"] == "https://10.0.0.5:6443"
    assert (driver.steps, fake.posts()) == (["create", "update"], 1)


def test_one_that_fails_after_the_bound_is_replaced_by_the_next_up(fake: Fake) -> None:
    fake.looks, fake.reason = 1000, NO_HOST
    driver = Driver(CLUSTER, timeout=0.2)
    with pytest.raises(InitFailed):
        driver.up(**WANTED)
    fake._moves[driver.id][0] = 0
    fake.looks, driver.timeout = 2, 20
    fake.look(fake.clusters[driver.id])
    driver.up(**WANTED)
    assert driver.steps == ["create", "delete", "create"]


def test_reading_one_that_is_being_made_keeps_it_as_unfinished(fake: Fake) -> None:
    made = fake.make_cluster({"name": "research", "cluster_template_id": OFFERED})
    fake._moves[made["uuid"]][0] = 1000
    driver = Driver(CLUSTER, id=made["uuid"], inputs={**WANTED, "nodeCount": 1})
    with pytest.raises(InitFailed, match="cluster research: CREATE_IN_PROGRESS") as raised:
        driver.refresh()
    driver.outputs, driver.inputs = raised.value.properties, dict(raised.value.inputs or {})
    fake._moves[made["uuid"]][0] = 1
    assert driver.up(**WANTED)["kubeconfig"]
    assert driver.steps == ["update"]


@pytest.mark.usefixtures("impatient")
def test_a_conductor_that_never_begins_is_told_and_the_state_keeps_the_uuid(fake: Fake) -> None:
    fake.appears_after = 1000
    driver = Driver(CLUSTER)
    for _ in range(2):
        with pytest.raises(InitFailed, match="shows nothing of it; is its conductor running") as raised:
            driver.up(**WANTED)
    assert "The next up looks for it again and makes no second one" in str(raised.value)
    assert list(fake.clusters) == [driver.id]
    said = "cluster research: Magnum took the request and does not show it yet (0 s of at most 0 s)"
    assert said in driver.log.lines


def test_a_cluster_that_shows_late_is_waited_for(fake: Fake) -> None:
    fake.appears_after = 3
    assert Driver(CLUSTER).up(**WANTED)["apiAddress"]


def test_a_cloud_that_does_not_answer_for_a_while_is_forgiven(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, failures = Fake.get_cluster, iter([503, 502, 400])

    def flaky(self: Fake, body: Any, key: str) -> Any:
        status = next(failures, None) if key in self.clusters else None
        return (status, {"errors": [{"title": "x", "detail": "busy"}]}) if status else get(self, body, key)

    from tests.plugins.openstack import fake as module

    routes = [(verb, path, flaky if do is Fake.get_cluster else do) for verb, path, do in module._ROUTES]
    monkeypatch.setattr(module, "_ROUTES", routes)
    assert Driver(CLUSTER).up(**WANTED)["apiAddress"]

"""What fails, what hangs, what is killed: what is said, what is kept, what the next run makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.plugins.handler import InitFailed, PluginError
from gpuform.plugins.openstack import begun
from tests.plugins.openstack.driving import CLUSTER, GROUP, TEMPLATE, Driver
from tests.plugins.openstack.fake import Fake

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("quick")]
NAME = "kubernetes-1.30.2-2"
WANTED: dict[str, Any] = {"name": "research", "clusterTemplateId": NAME}
NO_HOST = "ResourceInError: resources.kube_masters: No valid host was found"


def posts(fake: Fake, end: str = "/clusters") -> int:
    return sum(method == "POST" and path.endswith(end) for method, path, _ in fake.requests)


def ready(fake: Fake) -> str:
    made = fake.make_cluster({"name": "research", "cluster_template_id": NAME})
    fake._moves.clear()
    made.update(status="CREATE_COMPLETE", api_address="https://10.0.0.5:6443")
    return str(made["uuid"])


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
    cluster = ready(fake)
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
    inputs = WANTED if token == CLUSTER else {"clusterId": ready(fake), "name": "gpu-t4"}
    driver = Driver(token)
    driver.up(**inputs)
    fake.reason = "Quota exceeded for instances"
    with pytest.raises(PluginError, match=r"UPDATE_FAILED: Quota exceeded.*the next up tries again"):
        driver.up(**inputs, nodeCount=3)
    assert driver.inputs["nodeCount"] == 1  # the state still has what was
    assert driver.up(**inputs, nodeCount=3)["nodeCount"] == 3
    assert posts(fake, "/actions/resize") == 2


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
    assert posts(fake, "/actions/resize") == 1


def test_a_create_that_takes_too_long_is_waited_for_by_the_next_up(fake: Fake) -> None:
    fake.looks = 1000
    driver = Driver(CLUSTER, timeout=0.2)
    with pytest.raises(InitFailed, match=r"still CREATE_IN_PROGRESS after .*the same command waits on"):
        driver.up(**WANTED)
    fake._moves[driver.id][0] = 1
    driver.timeout = 20
    made = driver.up(**WANTED)
    assert made["kubeconfig"]["host"] == "https://10.0.0.5:6443"
    assert (driver.steps, posts(fake)) == (["create", "update"], 1)


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
    made = fake.make_cluster({"name": "research", "cluster_template_id": NAME})
    fake._moves[made["uuid"]][0] = 1000
    driver = Driver(CLUSTER, id=made["uuid"], inputs={**WANTED, "nodeCount": 1})
    with pytest.raises(InitFailed, match="cluster research: CREATE_IN_PROGRESS") as raised:
        driver.refresh()
    driver.outputs, driver.inputs = raised.value.properties, dict(raised.value.inputs or {})
    fake._moves[made["uuid"]][0] = 1
    assert driver.up(**WANTED)["kubeconfig"]
    assert driver.steps == ["update"]


def test_a_conductor_that_never_begins_is_told_and_the_state_keeps_the_uuid(fake: Fake) -> None:
    fake.appears_after = 1000
    driver = Driver(CLUSTER)
    with pytest.raises(InitFailed, match="shows nothing of it; is its conductor running"):
        driver.up(**WANTED)
    assert driver.id in fake.clusters


def test_a_cluster_that_shows_late_is_waited_for(fake: Fake) -> None:
    fake.appears_after = 3
    assert Driver(CLUSTER).up(**WANTED)["apiAddress"]


# Killed.


def test_a_create_whose_answer_the_engine_lost_is_gone_on_with(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    first = driver.id
    driver.lost()
    driver.up(**WANTED)
    assert (driver.id, posts(fake)) == (first, 1)
    assert any("goes on with" in line for line in driver.log.lines)


@pytest.mark.parametrize("token", [CLUSTER, GROUP, TEMPLATE])
def test_a_request_whose_answer_was_lost_is_gone_on_with(fake: Fake, token: str) -> None:
    cluster = ready(fake) if token == GROUP else ""
    inputs = {
        CLUSTER: WANTED,
        GROUP: {"clusterId": cluster, "name": "gpu-t4"},
        TEMPLATE: {"name": "own", "coe": "kubernetes", "image": "fedora-coreos-40"},
    }[token]
    fake.drops_answer = True
    driver = Driver(token)
    with pytest.raises(PluginError, match="no answer"):
        driver.up(**inputs)
    driver.up(**inputs)
    made = {CLUSTER: fake.clusters, GROUP: fake.groups, TEMPLATE: fake.templates}[token]
    assert sum(one["name"] == inputs["name"] for one in made.values()) == 1


def test_one_that_failed_meanwhile_is_made_anew_in_the_same_run(fake: Fake) -> None:
    fake.reason = NO_HOST
    driver = Driver(CLUSTER)
    with pytest.raises(InitFailed):
        driver.up(**WANTED)
    driver.lost()
    driver.up(**WANTED)
    assert list(fake.clusters) == [driver.id]
    assert posts(fake) == 2


@pytest.mark.parametrize("token", [CLUSTER, TEMPLATE])
def test_what_is_not_ours_is_never_taken_over_nor_made_twice(fake: Fake, token: str) -> None:
    inputs = WANTED if token == CLUSTER else {"name": NAME, "coe": "kubernetes", "image": "i"}
    if token == CLUSTER:
        ready(fake)
    before = (dict(fake.clusters), dict(fake.templates))
    with pytest.raises(PluginError, match=r"one of this name already.*gpuform recover.*another name"):
        Driver(token).up(**inputs)
    assert (fake.clusters, fake.templates, fake.changes()) == (*before, [])


def test_the_note_of_another_attempt_is_no_proof(fake: Fake, no_openstack: Path) -> None:
    """Somebody made one of that name days after our request was lost."""
    urn = f"urn:pulumi:dev::t::{CLUSTER}::thing"
    noted = begun.begin(urn, "research")
    [file] = (no_openstack / "state").rglob("*.json")
    file.write_text(json.dumps({**vars(noted), "at": "2026-01-01T00:00:00+00:00"}))
    ready(fake)
    with pytest.raises(PluginError, match="one of this name already"):
        Driver(CLUSTER).up(**WANTED)


def test_what_the_state_has_is_no_orphan(fake: Fake) -> None:
    """A replacement that creates first, as `pulumi up --replace` may, must not get the old cluster."""
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    news = driver.ask("check", driver.inputs, WANTED).inputs
    with pytest.raises(PluginError, match="one of this name already"):
        driver.ask("create", news)


def test_the_same_stack_on_another_backend_is_another_stack(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Driver(CLUSTER).up(**WANTED)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://elsewhere")
    with pytest.raises(PluginError, match="one of this name already"):
        Driver(CLUSTER).up(**WANTED)


def test_a_refused_request_leaves_no_note(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    with pytest.raises(PluginError, match="ClusterTemplate none could not be found"):
        driver.up(name="research", clusterTemplateId="none")
    assert begun.note(f"urn:pulumi:dev::t::{CLUSTER}::thing") is None


# Deletions.


def test_a_stuck_delete_is_bounded_and_names_what_blocks(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    uuid = driver.id
    fake.hangs = True
    fake.blocking = {
        "octavia": [
            {
                "id": "lb-1",
                "name": f"kube_service_{uuid}_default_web",
                "provisioning_status": "ERROR",
                "description": f"Kubernetes external service default/web from cluster {uuid}",
            },
            {"id": "lb-2", "name": "somebody's", "description": "", "provisioning_status": "ACTIVE"},
        ],
        "neutron": [
            {"id": "port-1", "name": "research-abc-node-0", "device_owner": "compute:nova"},
            {"id": "port-2", "name": "researchers", "device_owner": ""},
        ],
        "heat": [
            {
                "resource_name": "fixed_subnet",
                "resource_type": "OS::Neutron::Subnet",
                "resource_status": "DELETE_FAILED",
                "resource_status_reason": "Conflict: ports still in use",
                "physical_resource_id": "sub-1",
            },
            {"resource_name": "api", "resource_status": "CREATE_COMPLETE"},
        ],
    }
    driver.timeout = 0.2
    with pytest.raises(PluginError, match="cluster research: still DELETE_IN_PROGRESS after") as raised:
        driver.down()
    said = str(raised.value)
    for words in (
        f"load balancer kube_service_{uuid}_default_web (lb-1, ERROR)",
        "openstack loadbalancer delete --cascade lb-1",
        "port research-abc-node-0 (port-1, of compute:nova): openstack port delete port-1",
        "resource fixed_subnet (OS::Neutron::Subnet sub-1): DELETE_FAILED Conflict: ports still in use",
        "run the same command again, which goes on",
    ):
        assert words in said
    assert not any(other in said for other in ("lb-2", "port-2", "resource api"))


def test_the_next_run_waits_for_a_deletion_and_does_not_ask_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.hangs, driver.timeout = True, 0.2
    with pytest.raises(PluginError, match="no load balancer, port or stack is named"):
        driver.down()
    fake._moves[driver.id] = [1, "DELETE_COMPLETE", None]
    driver.timeout = 20
    driver.down()
    assert fake.clusters == {}
    assert sum(method == "DELETE" for method, _, _ in fake.requests) == 1


def test_a_failed_deletion_is_asked_for_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.refuses_delete = "Timeout waiting for the load balancers to be deleted"
    with pytest.raises(PluginError, match="DELETE_FAILED: Timeout waiting for the load balancers"):
        driver.down()
    fake.refuses_delete = ""
    driver.down()
    assert fake.clusters == {}


def test_a_deletion_that_fails_again_with_the_same_words_is_told_again(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.refuses_delete = "Subnet in use"
    for _ in range(2):
        with pytest.raises(PluginError, match="DELETE_FAILED: Subnet in use"):
            driver.down()


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

"""A cluster: what is sent, what comes back, what changes in place, and what nothing is asked for."""

from __future__ import annotations

import base64

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gpuform.plugins.handler import PluginError
from gpuform.plugins.openstack.clouds import Clouds
from gpuform.plugins.properties import UNKNOWN, Secret, reveal
from tests.plugins.openstack import serving
from tests.plugins.openstack.driving import CLUSTER, Driver
from tests.plugins.openstack.fake import PROJECT, Fake

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]
TEMPLATE = "kubernetes-1.30.2-2"
WANTED = {
    "name": "research",
    "clusterTemplateId": TEMPLATE,
    "labels": {"nvidia_gpu_enabled": "true"},
    "mergeLabels": True,
}


def test_what_is_asked_for_is_what_the_program_says(fake: Fake) -> None:
    Driver(CLUSTER).up(**WANTED, keypair="gpu-admins", masterLbEnabled=False, fixedNetwork="")
    body = {
        "name": "research",
        "cluster_template_id": TEMPLATE,
        "labels": {"nvidia_gpu_enabled": "true"},
        "merge_labels": True,
        "node_count": 1,
        "keypair": "gpu-admins",
        "master_lb_enabled": False,
    }
    [(method, path, sent), signed] = fake.changes()
    assert (method, path, sent) == ("POST", "/magnum/v1/clusters", body)
    assert signed[:2] == ("POST", "/magnum/v1/certificates")


def test_outputs_and_the_kubeconfig(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    made = driver.up(**WANTED, nodeCount=3)
    assert driver.id == next(iter(fake.clusters))
    assert made["clusterTemplateId"] == next(iter(fake.templates))
    assert (made["nodeCount"], made["masterCount"]) == (3, 1)
    assert (made["apiAddress"], made["projectId"]) == ("https://10.0.0.5:6443", PROJECT)
    assert made["labels"] == {"nvidia_gpu_enabled": "true", "kube_dashboard_enabled": "false"}
    assert (made["region"], made["mergeLabels"], made["dockerVolumeSize"]) == ("cern", True, 0)
    assert isinstance(driver.outputs["kubeconfig"], Secret)
    document = yaml.safe_load(made["kubeconfig"]["raw_config"])
    assert document["clusters"][0]["cluster"]["server"] == made["kubeconfig"]["host"] == made["apiAddress"]
    user = document["users"][0]["user"]
    assert "SIGNED" in base64.b64decode(user["client-certificate-data"]).decode()
    load_pem_private_key(base64.b64decode(user["client-key-data"]), None)


def test_the_same_again_asks_nothing(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.requests.clear()
    driver.up(**WANTED)
    assert fake.requests == []
    assert driver.steps == ["create"]


def test_a_preview_asks_nothing(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    inputs = driver.ask("check", {}, WANTED).inputs
    id, planned = driver.ask("create", inputs, preview=True)
    assert (id, reveal(planned)["kubeconfig"], planned["name"]) == ("", UNKNOWN, "research")
    driver.up(**WANTED)
    asked = len(fake.requests)
    planned = driver.ask(
        "update", driver.id, driver.inputs, driver.outputs, {**inputs, "nodeCount": 2}, preview=True
    )
    assert (planned["nodeCount"], planned["kubeconfig"]) == (2, driver.outputs["kubeconfig"])
    assert len(fake.requests) == asked


def test_what_magnum_adds_is_no_difference_after_a_refresh(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    before = dict(driver.shown)
    fake.clusters[driver.id]["labels"]["kube_tag"] = "v1.30.4"
    assert driver.refresh()
    assert driver.inputs["labels"] == {"nvidia_gpu_enabled": "true"}
    assert driver.inputs["clusterTemplateId"] == TEMPLATE  # not the uuid that Magnum makes of it
    driver.up(**WANTED)
    assert driver.steps == ["create"]
    assert driver.shown["kubeconfig"] == before["kubeconfig"]  # no certificate without need


def test_what_really_differs_is_read(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    cluster = fake.clusters[driver.id]
    worker = next(one for one in fake.groups.values() if one["name"] == "default-worker")
    worker["node_count"] = 5
    cluster["labels"]["nvidia_gpu_enabled"] = cluster["labels_added"]["nvidia_gpu_enabled"] = "false"
    driver.refresh()
    assert driver.inputs["nodeCount"] == 5
    assert driver.inputs["labels"] == {"nvidia_gpu_enabled": "false"}


def test_a_cluster_that_is_gone_is_read_as_such(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.clusters.clear()
    assert not driver.refresh()


def test_the_number_of_nodes_changes_in_place(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.requests.clear()
    assert driver.up(**WANTED, nodeCount=3)["nodeCount"] == 3
    assert fake.changes() == [("POST", f"/magnum/v1/clusters/{driver.id}/actions/resize", {"node_count": 3})]
    assert any("UPDATE_IN_PROGRESS" in line for line in driver.log.lines)


def test_another_template_is_an_upgrade(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    other = fake.template("kubernetes-1.31.1-1")
    fake.requests.clear()
    driver.up(**{**WANTED, "clusterTemplateId": "kubernetes-1.31.1-1"})
    [(_, path, body)] = fake.changes()
    assert path.endswith("/actions/upgrade")
    assert body["cluster_template"] == other["uuid"]
    assert driver.steps == ["create", "update"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"labels": {"nvidia_gpu_enabled": "false"}}, "labels.nvidia_gpu_enabled"),
        ({"masterCount": 3}, "masterCount"),
        ({"keypair": "other"}, "keypair"),
        ({"flavor": "m2.large"}, "flavor"),
        ({"region": "other"}, "region"),
        ({"mergeLabels": False}, "mergeLabels"),
    ],
)
def test_what_magnum_cannot_change_needs_a_new_cluster(
    fake: Fake, change: dict[str, object], path: str
) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    found = driver.ask("diff", driver.id, driver.inputs, driver.outputs, {**driver.inputs, **change})
    assert list(found.replaces) == [path]
    assert found.delete_before_replace  # the name is the same


def test_the_region_that_the_credentials_imply_may_be_written_down(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    clouds = Clouds({"cloud": "cern"})
    assert clouds.of() is clouds.of("cern"), "one login is enough"
    fake.logins = 0
    driver.config = {"cloud": "cern", "region": "cern"}
    driver.up(**WANTED, region="cern")
    driver.up(**WANTED, nodeCount=2, region="cern")
    driver.config = {"cloud": "cern"}
    driver.up(**WANTED, nodeCount=2)
    assert driver.steps == ["create", "update"]
    assert fake.logins == 1


def test_what_is_there_is_looked_for_where_it_was_made(fake: Fake) -> None:
    """Else a cluster that moves to another region would stay behind in the old one, and nobody know of it."""
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    id, driver.config = driver.id, {"cloud": "cern", "region": "other"}
    driver.down()
    assert id not in fake.clusters


@pytest.mark.parametrize("verb", ["refresh", "down", "up"])
def test_what_another_project_does_not_see_is_not_gone(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.clusters.clear()
    monkeypatch.setattr(serving, "PROJECT", "another")
    said = f"cluster research: is in project {PROJECT}, and the credentials are of project another, which"
    with pytest.raises(PluginError, match=said):
        driver.up(**WANTED, nodeCount=2) if verb == "up" else getattr(driver, verb)()
    monkeypatch.undo()


def test_taking_out_what_magnum_fills_in_changes_nothing(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED, keypair="gpu-admins")
    driver.up(**WANTED)
    assert driver.steps == ["create"]


def test_importing_by_id_takes_what_is_there(fake: Fake) -> None:
    made = fake.ready(name="old", keypair="k", labels={"a": "b"})
    driver = Driver(CLUSTER, id=made["uuid"])
    assert driver.refresh()
    assert driver.inputs["name"] == "old"
    assert driver.inputs["keypair"] == "k"
    assert driver.inputs["nodeCount"] == 1
    assert "apiAddress" not in driver.inputs


def test_deleting_waits_until_it_is_gone(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    driver.down()
    assert (fake.clusters, fake.groups) == ({}, {})


def test_deleting_what_is_gone_is_success(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    fake.clusters.clear()
    driver.down()


def test_the_default_name_and_what_is_missing(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(CLUSTER)
    found = driver.ask("check", {}, {"colour": "blue"})
    assert found.inputs["name"].startswith("thing-")
    reasons = dict(found.failures)
    assert "known are clusterTemplateId" in reasons["colour"]
    assert reasons["clusterTemplateId"] == "is required (or OS_MAGNUM_CLUSTER_TEMPLATE)"
    monkeypatch.setenv("OS_MAGNUM_CLUSTER_TEMPLATE", TEMPLATE)
    assert driver.ask("check", {}, {}).inputs["clusterTemplateId"] == TEMPLATE


def test_without_credentials_both_places_are_named(fake: Fake) -> None:
    driver = Driver(CLUSTER, config={"cloud": "elsewhere"})
    with pytest.raises(PluginError, match=r"clouds\.yaml.*OS_AUTH_URL"):
        driver.up(**WANTED)


def test_a_magnum_that_is_too_old(fake: Fake) -> None:
    fake.newest = "1.7"
    with pytest.raises(PluginError, match=r"goes up to 1\.7, .* need 1\.10"):
        Driver(CLUSTER).up(**WANTED)

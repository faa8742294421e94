"""What was killed on its way is gone on with, and what is not ours is never taken over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.plugins.handler import InitFailed, PluginError
from gpuform.plugins.openstack import begun, waiting
from tests.plugins.openstack.conductor import NO_HOST, OFFERED
from tests.plugins.openstack.driving import CLUSTER, GROUP, TEMPLATE, WANTED, Driver
from tests.plugins.openstack.fake import Fake

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("quick")]


def test_a_create_whose_answer_the_engine_lost_is_gone_on_with(fake: Fake) -> None:
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    first = driver.id
    driver.lost()
    driver.up(**WANTED)
    assert (driver.id, fake.posts()) == (first, 1)
    assert any("goes on with" in line for line in driver.log.lines)


@pytest.mark.parametrize("token", [CLUSTER, GROUP, TEMPLATE])
def test_a_request_whose_answer_was_lost_is_gone_on_with(fake: Fake, token: str) -> None:
    cluster = fake.ready()["uuid"] if token == GROUP else ""
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


@pytest.mark.parametrize("change", [{"nodeCount": 3}, {"keypair": "other"}])
def test_what_was_begun_otherwise_is_not_taken_for_what_is_declared_now(
    fake: Fake, change: dict[str, Any]
) -> None:
    """The engine would write down that it is as declared, and never look again."""
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    first = driver.id
    driver.lost()
    with pytest.raises(
        PluginError, match=rf"{first}.*interrupted.*another {next(iter(change))}.*put it back"
    ):
        driver.up(**WANTED, **change)
    driver.up(**WANTED)
    driver.up(**WANTED, nodeCount=3)
    assert (driver.id, fake.posts(), driver.shown["nodeCount"]) == (first, 1, 3)


@pytest.mark.usefixtures("impatient")
def test_one_that_failed_meanwhile_is_made_anew_in_the_same_run(fake: Fake) -> None:
    fake.reason = NO_HOST
    driver = Driver(CLUSTER)
    with pytest.raises(InitFailed):
        driver.up(**WANTED)
    driver.lost()
    driver.up(**WANTED, keypair="other")
    assert list(fake.clusters) == [driver.id]
    assert fake.posts() == 2


def test_what_was_asked_for_just_now_is_ended_though_magnum_does_not_show_it_yet(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its conductor makes it later; then the state has forgotten it, and it would be nobody's."""
    fake.appears_after = 9
    driver = Driver(CLUSTER)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(waiting, "BEGINS_S", 0.0)
        with pytest.raises(InitFailed, match="shows nothing of it"):
            driver.up(**WANTED)
    driver.down()
    assert fake.clusters == {}


@pytest.mark.parametrize("token", [CLUSTER, TEMPLATE])
def test_what_is_not_ours_is_never_taken_over_nor_made_twice(fake: Fake, token: str) -> None:
    inputs = WANTED if token == CLUSTER else {"name": OFFERED, "coe": "kubernetes", "image": "i"}
    if token == CLUSTER:
        fake.ready()["uuid"]
    before = (dict(fake.clusters), dict(fake.templates))
    with pytest.raises(PluginError, match=r"one of this name already.*gpuform recover.*another name"):
        Driver(token).up(**inputs)
    assert (fake.clusters, fake.templates, fake.changes()) == (*before, [])


def test_the_note_of_another_attempt_is_no_proof(fake: Fake, no_openstack: Path) -> None:
    """Somebody made one of that name days after our request was lost."""
    urn = f"urn:pulumi:dev::t::{CLUSTER}::thing"
    noted = begun.begin(urn, WANTED)
    [file] = (no_openstack / "state").rglob("*.json")
    file.write_text(json.dumps({**vars(noted), "at": "2026-01-01T00:00:00+00:00"}))
    fake.ready()["uuid"]
    with pytest.raises(PluginError, match="one of this name already"):
        Driver(CLUSTER).up(**WANTED)


def test_what_the_state_has_is_no_orphan(fake: Fake) -> None:
    """A replacement that creates first, as `pulumi up --replace` may, must not get the old cluster."""
    driver = Driver(CLUSTER)
    driver.up(**WANTED)
    news = driver.ask("check", driver.inputs, WANTED).inputs
    driver.ask("diff", driver.id, driver.inputs, driver.outputs, news)
    with pytest.raises(PluginError, match="one of this name already"):
        driver.ask("create", news)


@pytest.mark.parametrize("token", [CLUSTER, GROUP])
def test_a_replacement_whose_answer_the_engine_lost_is_gone_on_with(fake: Fake, token: str) -> None:
    """The engine's state has the old one, which is gone, and asks with that one's inputs."""
    inputs = WANTED if token == CLUSTER else {"clusterId": fake.ready()["uuid"], "name": "gpu-t4"}
    driver = Driver(token)
    driver.up(**inputs)
    old_id, old, outputs = driver.id, driver.inputs, driver.outputs
    driver.down()
    driver.up(**inputs)
    new_id = driver.id
    news = driver.ask("check", old, inputs).inputs
    driver.ask("diff", old_id, old, outputs, news)
    assert driver.ask("create", news)[0] == new_id
    assert fake.posts("/clusters" if token == CLUSTER else "/nodegroups/") == 2


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

"""What a killed run was creating at Magnum: matched only by properties that prove it is ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.clouds import RECOVERIES
from gpuform.clouds.openstack import recover as openstack
from gpuform.engine.pending import CREATING, GIVEN_UP, UPDATING, Operation
from gpuform.stack.recover import Stack, UserDecisions, find
from tests.fakes.openstack import PROJECT, USER, FakeCloud, serve

pytestmark = pytest.mark.unit
RECOVERY = openstack.MagnumRecovery()

CLUSTER, GROUP = (
    f"openstack:containerinfra/{word[0].lower()}{word[1:]}:{word}" for word in ("Cluster", "NodeGroup")
)
PROVIDER = "urn:pulumi:s::gpuform::pulumi:providers:openstack::openstack"
INPUTS: dict[str, Any] = {
    "name": "research", "clusterTemplateId": "t-1", "masterCount": 1, "nodeCount": 1,
    "labels": {"nvidia_gpu_enabled": "true"},
}  # fmt: skip
LIVE: dict[str, Any] = {
    "uuid": "c-1", "name": "research", "status": "CREATE_COMPLETE", "cluster_template_id": "t-1",
    "master_count": 1, "node_count": 1, "labels": {"nvidia_gpu_enabled": "true", "kube_tag": "v1.30.2"},
    "user_id": USER, "created_at": "2026-11-22T10:00:05+00:00",
}  # fmt: skip
FROM_PROVIDER = {
    "urn": f"{PROVIDER.partition('pulumi:p')[0]}{CLUSTER}::x",
    "id": "c-1",
    "provider": f"{PROVIDER}::p",
}


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """The cloud "made-up" of clouds.yaml; a missing resource is polled once."""
    monkeypatch.setattr(openstack, "_START_WAIT_S", 0.0)
    monkeypatch.setattr(openstack, "_POLL_S", 0.1)
    with serve(FakeCloud()) as found:
        who = {"username": "someone", "password": "right", "project_name": "gpus"}
        domains = {"user_domain_id": "default", "project_domain_id": "default"}
        auth = {"auth_url": f"{found.url}/keystone/v3", **who, **domains}
        file = tmp_path / "clouds.yaml"
        file.write_text(json.dumps({"clouds": {"made-up": {"auth": auth}}}))
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
        yield found


def state(*more: dict[str, Any]) -> dict[str, Any]:
    provider = {"urn": PROVIDER, "type": "pulumi:providers:openstack", "created": "2026-11-22T10:00:00Z"}
    provider |= {"id": "p", "inputs": {"cloud": "made-up"}}
    return {"deployment": {"resources": [provider, *more]}}


def pending_create(type: str, inputs: dict[str, Any]) -> Operation:
    urn = f"urn:pulumi:s::gpuform::{type}::{inputs.get('name', 'x')}"
    return Operation(CREATING, {"urn": urn, "type": type, "inputs": inputs, "provider": f"{PROVIDER}::p"})


def test_own_cluster_is_imported_and_a_missing_one_cleared(cloud: FakeCloud) -> None:
    cloud.clusters = [LIVE]
    step = RECOVERY.lookup(pending_create(CLUSTER, INPUTS), state())
    assert (step.does, step.id) == ("import", "c-1")
    assert not [one for one in cloud.requests if not one.startswith(("GET ", "POST keystone"))], "only asked"
    step = RECOVERY.lookup(pending_create(CLUSTER, INPUTS | {"name": "another"}), state())
    assert (step.does, step.why) == ("clear", "Magnum has none with this name")
    step = RECOVERY.reread(given_up_operation(CLUSTER, "c-2"), state())
    assert (step.does, step.why) == ("refresh", "Magnum no longer has it")


@pytest.mark.parametrize(
    ("live", "why"),
    [
        ({"user_id": "v" * 32}, f"user {'v' * 32} created it"),
        ({"created_at": "2026-11-20T08:00:00+00:00"},
         "it was created before this stack (2026-11-20 08:00 UTC)"),
        ({"cluster_template_id": "t-2"}, "its cluster_template_id is t-2, ours is t-1"),
        ({"master_count": 3}, "its master_count is 3, ours is 1"),
        ({"labels": {}}, "its label nvidia_gpu_enabled is None, ours is true"),
    ],
)  # fmt: skip
def test_foreign_cluster_of_the_same_name_is_left(cloud: FakeCloud, live: dict[str, Any], why: str) -> None:
    cloud.clusters = [LIVE | live]
    step = RECOVERY.lookup(pending_create(CLUSTER, INPUTS), state())
    assert step.does == "leave"
    assert f"c-1 has its name, but {why}, so it is not ours" in step.why
    assert "--import research=ID or --clear research" in step.why


def test_ambiguous_clusters_are_named(cloud: FakeCloud) -> None:
    cloud.clusters = [LIVE, LIVE | {"uuid": "c-2"}]
    why = "could be any of c-1 and c-2; find out which it is, give --import research=ID"
    with pytest.raises(Failure, match=why):
        RECOVERY.lookup(pending_create(CLUSTER, INPUTS), state())
    known = {"urn": "u", "type": CLUSTER, "id": "c-2"}
    found = RECOVERY.lookup(pending_create(CLUSTER, INPUTS), state(known))
    assert found.id == "c-1", "the state has the other one"


def test_a_node_group_is_ours_by_its_cluster(cloud: FakeCloud) -> None:
    cloud.clusters = [LIVE]
    cloud.node_groups = [{"uuid": "g-1", "name": "gpu-t4", "flavor_id": "g2.5xlarge", "node_count": 2}]
    wanted = {"name": "gpu-t4", "clusterId": "c-1", "flavorId": "g2.5xlarge"}
    step = RECOVERY.lookup(pending_create(GROUP, wanted), state())
    assert (step.does, step.id) == ("import", "c-1/g-1")
    other = RECOVERY.lookup(pending_create(GROUP, wanted | {"flavorId": "g4.p1.40g"}), state())
    assert (other.does, "its flavor_id is g2.5xlarge, ours is g4.p1.40g" in other.why) == ("leave", True)


def test_another_project_is_refused_before_anything_is_looked_for(cloud: FakeCloud) -> None:
    ours, other = (
        state(FROM_PROVIDER | {"type": CLUSTER, "outputs": {"projectId": project}})
        for project in (PROJECT, "x")
    )
    RECOVERY.require_account("research", ours)
    why = f"stack research: is in project x, but the credentials are for project {PROJECT}"
    with pytest.raises(Failure, match=why):
        RECOVERY.require_account("research", other)


def given_up_operation(type: str, id: str, **outputs: Any) -> Operation:
    found = pending_create(type, {"name": "research"}).resource
    return Operation(GIVEN_UP, {**found, "id": id, "outputs": outputs, "customTimeouts": {"create": 600}})


@pytest.mark.parametrize(
    ("status", "does", "busy_s"),
    [
        ("CREATE_IN_PROGRESS", "leave", 600),
        ("CREATE_COMPLETE", "refresh", 0),
        ("UPDATE_FAILED", "refresh", 0),
        ("CREATE_FAILED", "recreate", 0),
    ],
)
def test_operation_that_the_provider_gave_up_is_judged_by_magnum(
    cloud: FakeCloud, status: str, does: str, busy_s: float
) -> None:
    cloud.clusters = [LIVE | {"status": status, "status_reason": "no valid host"}]
    step = RECOVERY.reread(given_up_operation(CLUSTER, "c-1"), state())
    assert (step.does, step.busy_s) == (does, busy_s)
    assert "no valid host" in step.why or does != "recreate"
    pending = RECOVERY.lookup(pending_create(CLUSTER, INPUTS), state())
    assert pending.does == {"refresh": "import"}.get(does, does)


@pytest.mark.parametrize("kind", [GIVEN_UP, UPDATING])
def test_a_resize_that_magnum_has_not_begun_is_waited_for(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A killed run leaves the request in the inputs, and the values before it in the outputs."""
    cloud.clusters = [LIVE]
    group = {"uuid": "g-1", "name": "gpu-t4", "node_count": 1, "status": "CREATE_COMPLETE"}
    cloud.node_groups = [group]
    monkeypatch.setattr(openstack, "_START_WAIT_S", 30.0)
    begun = threading.Timer(0.3, lambda: group.update(node_count=3, status="UPDATE_IN_PROGRESS"))
    begun.start()
    resize = given_up_operation(GROUP, "c-1/g-1", nodeCount=3 if kind == GIVEN_UP else 1)
    resize.resource["inputs"]["nodeCount"] = 3
    pending = {key: value for key, value in resize.resource.items() if kind == GIVEN_UP or key != "id"}
    step = RECOVERY.reread(Operation(kind, pending), state(resize.resource))
    begun.join()
    assert "UPDATE_IN_PROGRESS" in step.why


def test_kubeconfig_is_renewed_once_magnum_is_at_rest(cloud: FakeCloud) -> None:
    """A kubeconfig read earlier has no address, and the provider keeps it."""
    there = state(FROM_PROVIDER | {"type": CLUSTER})
    [cluster] = RECOVERY.renewable(there)
    for status, does in (("UPDATE_IN_PROGRESS", "leave"), ("UPDATE_COMPLETE", "renew")):
        cloud.clusters = [LIVE | {"status": status}]
        assert RECOVERY.reread(cluster, there, "renew").does == does
    assert not RECOVERY.renewable(state())
    here = Stack("s", cast(Any, None), cast(Any, None), RECOVERIES, at_cloud=False)
    with pytest.raises(InputError, match="run without --offline"):
        find(here, UserDecisions(renew_kubeconfig=True))


@pytest.mark.parametrize(("status", "said"), [("", ""), ("DELETE_FAILED", "x: DELETE_FAILED: ports in use")])
def test_a_deletion_that_the_provider_gave_up_is_waited_for(cloud: FakeCloud, status: str, said: str) -> None:
    cloud.clusters = [LIVE | {"status": "DELETE_IN_PROGRESS"}]

    def end() -> None:
        cloud.clusters = [LIVE | {"status": status, "status_reason": "ports in use"}] if status else []

    ending = threading.Timer(0.3, end)
    ending.start()
    heard: list[str] = []
    assert RECOVERY.wait_deleted(FROM_PROVIDER, state(), heard.append) == said
    ending.join()
    assert heard == ["x: DELETE_IN_PROGRESS; waits up to 3600 s"]

"""What a killed run was making at Magnum: found by what only ours can be, never somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.engine.pending import CREATING, Operation
from gpuform.errors import Failure
from gpuform.recover.openstack import LOOKS, look, require_project
from tests.preflight.made_up_cloud import PROJECT, USER, MadeUp, served

pytestmark = pytest.mark.unit

CLUSTER, GROUP, TEMPLATE = (
    f"openstack:containerinfra/{word[0].lower()}{word[1:]}:{word}"
    for word in ("Cluster", "NodeGroup", "ClusterTemplate")
)
PROVIDER = "urn:pulumi:s::gpuform::pulumi:providers:openstack::openstack"
INPUTS: dict[str, Any] = {
    "name": "research",
    "clusterTemplateId": "t-1",
    "masterCount": 1,
    "nodeCount": 1,
    "labels": {"nvidia_gpu_enabled": "true"},
}
LIVE: dict[str, Any] = {
    "uuid": "c-1",
    "name": "research",
    "status": "CREATE_IN_PROGRESS",
    "cluster_template_id": "t-1",
    "master_count": 1,
    "node_count": 1,
    "labels": {"nvidia_gpu_enabled": "true", "kube_tag": "v1.30.2"},
    "user_id": USER,
    "created_at": "2026-11-22T10:00:05+00:00",
}


@pytest.fixture
def cloud() -> Iterator[MadeUp]:
    with served(MadeUp()) as found:
        yield found


def state(cloud: MadeUp, *more: dict[str, Any]) -> dict[str, Any]:
    inputs = {
        "authUrl": f"{cloud.url}/keystone/v3",
        "userName": "someone",
        "password": "right",
        "tenantName": "gpus",
        "defaultDomain": "default",
    }
    provider = {"urn": PROVIDER, "type": "pulumi:providers:openstack", "id": "p", "inputs": inputs}
    return {"deployment": {"resources": [{**provider, "created": "2026-11-22T10:00:00Z"}, *more]}}


def making(type: str, inputs: dict[str, Any]) -> Operation:
    urn = f"urn:pulumi:s::gpuform::{type}::{inputs.get('name', 'x')}"
    return Operation(CREATING, {"urn": urn, "type": type, "inputs": inputs, "provider": f"{PROVIDER}::p"})


def test_a_cluster_that_is_ours_is_taken_over_as_it_is(cloud: MadeUp) -> None:
    cloud.clusters = [LIVE]
    step = look(making(CLUSTER, INPUTS), state(cloud))
    assert (step.does, step.id) == ("import", "c-1")
    assert not [one for one in cloud.asked if not one.startswith(("GET ", "POST keystone"))], "only asked"


def test_one_that_was_never_made_is_cleared(cloud: MadeUp) -> None:
    cloud.clusters = [LIVE | {"name": "another"}]
    step = look(making(CLUSTER, INPUTS), state(cloud))
    assert (step.does, step.why) == ("clear", "Magnum has none of this name")


@pytest.mark.parametrize(
    ("live", "why"),
    [
        ({"user_id": "v" * 32}, f"user {'v' * 32} made it"),
        (
            {"created_at": "2026-11-20T08:00:00+00:00"},
            "it was there before this stack (2026-11-20 08:00 UTC)",
        ),
        ({"cluster_template_id": "t-2"}, "its cluster_template_id is t-2, ours t-1"),
        ({"master_count": 3}, "its master_count is 3, ours 1"),
        ({"labels": {}}, "its label nvidia_gpu_enabled is None, ours true"),
    ],
)
def test_somebody_else_s_of_the_same_name_is_left_alone(
    cloud: MadeUp, live: dict[str, Any], why: str
) -> None:
    cloud.clusters = [LIVE | live]
    step = look(making(CLUSTER, INPUTS), state(cloud))
    assert step.does == "leave"
    assert f"c-1 has its name, and {why}: it is not ours" in step.why
    assert "--import research=ID or --clear research" in step.why


def test_two_that_could_be_it_are_named(cloud: MadeUp) -> None:
    cloud.clusters = [LIVE, LIVE | {"uuid": "c-2"}]
    with pytest.raises(
        Failure, match="could be any of c-1 and c-2; see which it is, give --import research=ID"
    ):
        look(making(CLUSTER, INPUTS), state(cloud))
    known = {"urn": "u", "type": CLUSTER, "id": "c-2"}
    assert look(making(CLUSTER, INPUTS), state(cloud, known)).id == "c-1", "the state has the other one"


def test_a_node_group_is_ours_by_its_cluster(cloud: MadeUp) -> None:
    cloud.clusters = [LIVE]
    cloud.node_groups = [{"uuid": "g-1", "name": "gpu-t4", "flavor_id": "g2.5xlarge", "node_count": 2}]
    wanted = {"name": "gpu-t4", "clusterId": "c-1", "flavorId": "g2.5xlarge"}
    step = look(making(GROUP, wanted), state(cloud))
    assert (step.does, step.id) == ("import", "c-1/g-1")
    other = look(making(GROUP, wanted | {"flavorId": "g4.p1.40g"}), state(cloud))
    assert (other.does, "its flavor_id is g2.5xlarge, ours g4.p1.40g" in other.why) == ("leave", True)


def test_a_template_is_found_too(cloud: MadeUp) -> None:
    made = {"coe": "kubernetes", "user_id": USER, "created_at": LIVE["created_at"], "labels": {}}
    cloud.templates = [{"uuid": "t-9", "name": "research-0a1b2c", **made}]
    step = look(making(TEMPLATE, {"name": "research-0a1b2c", "coe": "kubernetes"}), state(cloud))
    assert (step.does, step.id) == ("import", "t-9")


def test_another_project_is_refused_before_anything_is_looked_for(cloud: MadeUp) -> None:
    def of(project: str) -> dict[str, Any]:
        made = {"urn": "u", "type": CLUSTER, "id": "c", "provider": f"{PROVIDER}::p"}
        return state(cloud, made | {"outputs": {"projectId": project}})

    require_project("research", of(PROJECT))
    with pytest.raises(
        Failure, match=f"stack research: lies in project x, and the credentials are of project {PROJECT}"
    ):
        require_project("research", of("x"))


def test_every_type_that_the_program_makes_has_its_row() -> None:
    from gpuform.plugins.openstack import table

    for token, columns in (
        (CLUSTER, table.CLUSTER),
        (GROUP, table.NODE_GROUP),
        (TEMPLATE, table.CLUSTER_TEMPLATE),
    ):
        named = {ours: columns[ours].api for ours in LOOKS[token].same}
        assert named == LOOKS[token].same, "names of inputs and of Magnum's are the provider's own"

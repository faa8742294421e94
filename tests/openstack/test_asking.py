"""gpuform's queries to a cloud before a run and after a kill: against a real Magnum API."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gpuform.clients.openstack.cloud import connect
from gpuform.clouds.openstack.preflight import checks_of
from gpuform.clouds.openstack.preflight.project import Project
from gpuform.clouds.openstack.preflight.state_resources import StateClusters
from gpuform.clouds.openstack.recover import MagnumRecovery
from gpuform.engine.pending import CREATING, Operation
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from tests.openstack import settings
from tests.openstack.world import TEMPLATE, World

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

CLUSTER, GROUP = "openstack:containerinfra/cluster:Cluster", "openstack:containerinfra/nodeGroup:NodeGroup"
PROVIDER = "urn:pulumi:s::gpuform::pulumi:providers:openstack::openstack"


def looked(world: World, *ours: str, **cluster: Any) -> dict[str, Finding]:
    kind = {"kind": "openstack", "cloud": world.cloud, "template": TEMPLATE, "version": "1.30"}
    pools = [
        {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 2},
        {"name": "gpu-a100", "machine": "g4.p1.40g", "elastic": {"min": 1, "max": {"nodes": 3}}},
    ]
    off = {"labels": {"nvidia_gpu_enabled": "false"}}
    given = {**kind, "keypair": "gpu-admins", "region": settings.REGION, **off, **cluster}
    env = parse({"name": "research", "cluster": given, "pools": pools, "gpu_operator": {"driver": "host"}})
    state = StateClusters(frozenset(ours), creating=False)
    here = partial(connect, world.cloud, settings.REGION)
    project = Project(here, env.name, state)
    return {one.subject: one for one in checks_of(env, "research", project)}


def failed(found: dict[str, Finding]) -> dict[str, str]:
    return {one.subject: one.fact for one in found.values() if one.verdict == "FAIL"}


def test_a_preflight_asks_a_real_magnum_and_changes_nothing(world: World) -> None:
    world.template()
    world.forget()
    found = looked(world)
    assert {one.subject for one in found.values() if one.verdict != "PASS"} == {"quota of GPUs"}
    assert found["Magnum's API"].fact.split(";")[0].startswith("1.")
    assert found["quota of Magnum's clusters"].fact == "1 more at most (the cluster 1); 0 of 20 taken"
    assert world.requests(changes=True) == []
    assert world.neighbours.unknown == []


def test_what_magnum_itself_would_take_and_fail_at_later_is_found_before(world: World) -> None:
    world.template()
    tables = world.neighbours.tables
    tables["flavors"] = [one for one in tables["flavors"] if one["name"] != "g4.p1.40g"]
    world.neighbours.set_quota("compute", cores=60, used_cores=10)
    found = failed(looked(world, template="kubernetes-1.99"))
    assert set(found) == {"flavor g4.p1.40g", "template kubernetes-1.99"}
    assert found["template kubernetes-1.99"].endswith(f"it has {TEMPLATE}")
    assert failed(looked(world))["flavor g4.p1.40g"].startswith("nova has no such flavor for the project")
    tables.update(type(world.neighbours)().tables)
    assert "10 of 60 taken" in failed(looked(world))["quota of vCPUs"]


def test_a_cluster_that_is_there_needs_no_more_and_is_known_by_the_state(world: World) -> None:
    world.template()
    magnum = world.magnum()
    made = magnum.clusters.create(name="research", cluster_template_id=TEMPLATE, node_count=1, master_count=1)
    world.settled(made.uuid)
    group = {"name": "gpu-t4", "flavor_id": "g2.5xlarge", "node_count": 2}
    magnum.nodegroups.create(made.uuid, **group)
    world.settled(made.uuid)
    found = looked(world, made.uuid)
    assert found["quota of instances"].fact == "3 more at most (gpu-a100 3); 0 of 100 taken"
    assert found["cluster research"].fact.endswith(", 3 node groups")
    assert f"{made.uuid} already has this name" in failed(looked(world))["cluster research"]


def making(type: str, **inputs: Any) -> Operation:
    urn = f"urn:pulumi:s::gpuform::{type}::{inputs['name']}"
    return Operation(CREATING, {"urn": urn, "type": type, "inputs": inputs, "provider": f"{PROVIDER}::p"})


def test_what_a_killed_run_made_is_found_again(world: World) -> None:
    template = world.template()
    provider = {"urn": PROVIDER, "type": "pulumi:providers:openstack", "id": "p"}
    state = {"deployment": {"resources": [{**provider, "inputs": {"cloud": world.cloud}}]}}
    wanted = {"name": "research", "clusterTemplateId": template.uuid, "masterCount": 1, "nodeCount": 1}
    cluster = partial(making, CLUSTER, **wanted)
    assert MagnumRecovery().lookup(cluster(), state).does == "clear"
    magnum = world.magnum()
    body = {"cluster_template_id": template.uuid, "node_count": 1, "master_count": 1}
    made = magnum.clusters.create(name="research", labels={"kube_tag": "v1.30.2"}, **body)
    world.settled(made.uuid)
    step = MagnumRecovery().lookup(cluster(), state)
    assert (step.does, step.id) == ("import", made.uuid)
    assert MagnumRecovery().lookup(cluster(masterCount=3), state).does == "leave", "another one of that name"
    magnum.nodegroups.create(made.uuid, name="gpu-t4", flavor_id="g2.5xlarge", node_count=1)
    world.settled(made.uuid)
    [group] = [one for one in magnum.nodegroups.list(made.uuid) if one.name == "gpu-t4"]
    found = MagnumRecovery().lookup(
        making(GROUP, name="gpu-t4", clusterId=made.uuid, flavorId="g2.5xlarge"), state
    )
    assert (found.does, found.id) == ("import", f"{made.uuid}/{group.uuid}")

"""A small program for Magnum through the real engine and the stand-in, with no credentials at all."""

from __future__ import annotations

import json

import pytest

from gpuform.engine import EngineFailure
from gpuform.plugins.offline.openstack.provider import NOTICE
from tests.plugins.offline.conftest import Project, project, touched

pytestmark = pytest.mark.engine

__all__ = ["project"]

PROGRAM = """
import pulumi
import pulumi_openstack as openstack
from pulumi_openstack import containerinfra as magnum

config = pulumi.Config()
provider = openstack.Provider("cern", cloud="cern", region="cern")
o = pulumi.ResourceOptions(provider=provider)
template = magnum.get_cluster_template_output(
    name="kubernetes-1.30.2-2", opts=pulumi.InvokeOutputOptions(provider=provider))
cluster = magnum.Cluster(
    "research", name="research", cluster_template_id=template.id, keypair="gpu-admins", merge_labels=True,
    labels={"nvidia_gpu_enabled": config.get("gpu") or "true"}, opts=o)
group = magnum.NodeGroup(
    "gpu-t4", name="gpu-t4", cluster_id=cluster.id, flavor_id="g2.5xlarge", merge_labels=True,
    node_count=config.get_int("nodes") or 2, max_node_count=config.get_int("most"), opts=o)
pulumi.export("kubeconfig", cluster.kubeconfig["raw_config"])
pulumi.export("id", group.id)
pulumi.export("region", cluster.region)
"""


def test_a_cluster_is_made_resized_replaced_and_ended(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    project.program(PROGRAM)
    assert touched(project.engine.up()) >= {("create", "research"), ("create", "gpu-t4")}
    assert NOTICE in project.said
    outputs = project.engine.outputs()
    assert outputs["region"] == "cern"
    assert outputs["kubeconfig"] == "[secret]"
    assert not project.engine.preview().changed
    assert touched(project.up(nodes="3")) == {("update", "gpu-t4")}
    assert project.engine.outputs()["id"] == outputs["id"], "a group stays the same one when it is resized"
    project.configure(nodes="3", gpu="false")
    planned = {(step.op, step.name) for step in project.engine.preview().steps if step.op == "replace"}
    assert planned == {("replace", "research"), ("replace", "gpu-t4")}, "a label replaces the cluster"
    assert project.engine.destroy().changes["delete"] >= 3


def test_what_magnum_refuses_ends_the_preview(project: Project) -> None:
    project.program(PROGRAM)
    project.configure(nodes="3", most="2")
    with pytest.raises(EngineFailure) as caught:
        project.engine.preview()
    said = json.dumps([*caught.value.result.errors, str(caught.value)])
    assert "property maxNodeCount value {2} has a problem: 2 is less than nodeCount, 3" in said

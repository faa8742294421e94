"""Small programs through the real engine and the stand-ins of AWS's and OpenStack's providers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from gpuform.engine import Engine, EngineFailure
from infra.model.openstack import changes
from lab.offline.aws.provider import NOTICE
from lab.toolchain import Toolchain
from tests.lab.offline.aws.conftest import Offline, touched

ALL = {"net", "s-a", "s-b", "role", "eks", "lt", "nodes"}


@pytest.mark.engine
@pytest.mark.nightly
def test_a_cluster_is_planned_made_kept_refreshed_changed_and_ended(project: Offline) -> None:
    planned = project.engine.preview()
    assert touched(planned) >= {("create", name) for name in ALL}
    assert {step.phase for step in planned.steps} == {"planned"}
    assert NOTICE in project.said
    made = project.engine.up()
    assert made.changes == {"create": len(ALL)}
    outputs = project.engine.outputs()
    assert outputs["account"] == "123456789012"
    assert re.fullmatch("vpc-.{17}", outputs["vpc"])
    assert outputs["tags"] == {"Name": "net", "owner": "ml"}
    assert outputs["arn"] == "arn:aws:eks:eu-central-1:123456789012:cluster/tried"
    assert outputs["endpoint"].endswith(".gr7.eu-central-1.eks.amazonaws.com")
    assert outputs["vpc_config"]["cluster_security_group_id"].startswith("sg-")
    assert outputs["name"].startswith("role-")
    assert not project.engine.up().changed
    assert not project.engine.refresh().changed
    assert project.engine.outputs() == outputs

    project.configure(cidr="10.30.0.0/16")
    planned = touched(project.engine.preview())
    replaced = ("net", "s-a", "s-b", "nodes")
    assert {name for _, name in planned} == {*replaced, "eks"}
    ops = ("create-replacement", "replace", "delete-replaced")
    assert touched(project.engine.up()) == {
        *((op, name) for op in ops for name in replaced),
        ("update", "eks"),
    }
    assert not project.engine.up().changed
    gone = project.engine.destroy()
    assert gone.changes == {"delete": len(ALL)}


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "aws.ec2.Vpc('x', cidr_block='10.0.0.0/99')",
            "property cidrBlock value {10.0.0.0/99} has a problem: is not an IPv4 block",
        ),
        ("aws.sns.Topic('x')", "the offline stand-in of the aws provider does not know this type"),
        ("aws.get_availability_zones()", "answers getCallerIdentity, getParameter, getPartition,"),
        ("aws.ec2.Vpc('x', cidr_block='10.0.0.0/16')  # in eu-x", "'eu-x' is not an AWS region"),
    ],
)
def test_bad_input_ends_the_preview(project: Offline, program: str, message: str) -> None:
    project.program(f"import pulumi_aws as aws\n{program}\n")
    region = "eu-x" if program.endswith("eu-x") else "eu-central-1"
    project.stack_file(f"config: {{aws:region: {region}}}\n")
    with pytest.raises(EngineFailure) as caught:
        project.engine.preview()
    assert message in json.dumps([*caught.value.result.errors, str(caught.value)])


@pytest.mark.engine
@pytest.mark.nightly
def test_offline_state_is_kept_apart(project: Offline) -> None:
    project.up()
    assert project.engine.export()["deployment"]["resources"]
    real = Engine(project.paths, project.toolchain, say=project.said.append)
    assert not real.export()["deployment"].get("resources")


OPENSTACK = """
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
    node_count=config.get_int("nodes"), max_node_count=config.get_int("most"), opts=o)
pulumi.export("kubeconfig", cluster.kubeconfig["raw_config"])
pulumi.export("id", group.id)
pulumi.export("region", cluster.region)
pulumi.export("kube_tag", template.labels["kube_tag"])
"""


@pytest.mark.engine
@pytest.mark.nightly
def test_an_openstack_cluster_is_made_resized_replaced_and_ended(
    project: Offline, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    project.program(OPENSTACK)
    project.configure(kind="openstack", nodes="-1")
    with pytest.raises(EngineFailure, match=r"expected node_count to be at least \(0\), got -1"):
        project.engine.preview()
    assert touched(project.up(kind="openstack", nodes="2")) >= {("create", "research"), ("create", "gpu-t4")}
    notice = "gpuform: offline stand-in for pulumi-resource-openstack: nothing is created at OpenStack"
    assert notice in project.said
    outputs = project.engine.outputs()
    assert (outputs["region"], outputs["kube_tag"]) == ("cern", "v1.30.2")
    assert outputs["kubeconfig"] == "[secret]"
    assert "https://198.51.100.1:6443" in project.engine.outputs(show_secrets=True)["kubeconfig"]
    assert not project.engine.preview().changed
    assert touched(project.up(kind="openstack", nodes="3")) == {("update", "gpu-t4")}
    assert project.engine.outputs()["id"] == outputs["id"], "a group stays the same one when it is resized"
    project.configure(kind="openstack", nodes="3", gpu="false")
    planned = {(step.op, step.name) for step in project.engine.preview().steps if step.op == "replace"}
    assert planned == {("replace", "research"), ("replace", "gpu-t4")}, "a label replaces the cluster"
    assert project.engine.destroy().changes["delete"] == 2


@pytest.mark.engine
def test_an_openstack_cluster_stands_for_the_embedded_control_plane_of_the_run(project: Offline) -> None:
    own = {"server": "https://127.0.0.1:7443", "certificate-authority-data": "Y2E="}
    user = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    document = {"clusters": [{"name": "c", "cluster": own}], "users": [{"name": "u", "user": user}]}
    project.paths.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    project.paths.kubeconfig.write_text(yaml.safe_dump(document))
    project.program(OPENSTACK)
    project.up(kind="openstack", nodes="1")
    given = yaml.safe_load(project.engine.outputs(show_secrets=True)["kubeconfig"])
    assert (given["clusters"][0]["cluster"], given["users"][0]["user"]) == (own, user)
    assert given["current-context"] == "research"


FIELDS: Mapping[str, dict[str, str]] = {
    "cluster": {
        "docker_volume_size": "docker_volume_gib",
        "fixed_network": "network.fixed_network",
        "fixed_subnet": "network.fixed_subnet",
        "flavor": "workers.flavor",
        "floating_ip_enabled": "network.floating_ip",
        "keypair": "keypair",
        "labels": "labels",
        "master_count": "masters.nodes",
        "master_flavor": "masters.flavor",
        "master_lb_enabled": "masters.lb",
        "merge_labels": "merge_labels",
        "node_count": "workers.nodes",
        "region": "region",
    },
    "nodegroup": {
        "docker_volume_size": "openstack.docker_volume_gib",
        "flavor_id": "machine",
        "image_id": "openstack.image",
        "labels": "openstack.labels",
        "max_node_count": "elastic",
        "merge_labels": "openstack.merge_labels",
        "min_node_count": "elastic",
        "node_count": "nodes",
        "role": "openstack.role",
    },
}


@pytest.mark.tools
def test_what_replaces_openstacks_objects_is_what_the_provider_says(toolchain: Toolchain) -> None:
    provider = toolchain.path("pulumi-openstack-offline")
    document = json.loads(subprocess.check_output([provider, "-get-provider-info"], text=True))
    tables = {"cluster": changes.CLUSTER, "nodegroup": changes.POOL}
    for kind, fields in FIELDS.items():
        schema: dict[str, Any] = document["provider"]["resources"][f"openstack_containerinfra_{kind}_v1"]
        forced = {name for name, field in schema.items() if field.get("forceNew")}
        assert {name: tables[kind][at].mode == "replace" for name, at in fields.items()} == {
            name: name in forced for name in fields
        }

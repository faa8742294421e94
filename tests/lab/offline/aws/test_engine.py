"""Small programs through the real engine and the stand-in: resources planned, created, updated, replaced."""

from __future__ import annotations

import json

import pytest

from gpuform.engine import EngineFailure
from lab.offline.aws.provider import NOTICE
from tests.lab.offline.aws.conftest import Project, touched
from tests.tiers import nightly_but

pytestmark = pytest.mark.engine

ALL = {"net", "s-a", "s-b", "role", "eks", "lt", "nodes"}


def test_a_cluster_is_planned_made_kept_refreshed_and_ended(project: Project) -> None:
    planned = project.engine.preview()
    assert touched(planned) >= {("create", name) for name in ALL}
    assert {step.phase for step in planned.steps} == {"planned"}
    assert NOTICE in project.said
    made = project.engine.up()
    assert made.changes == {"create": len(ALL) + 2}
    outputs = project.engine.outputs()
    assert outputs["account"] == "123456789012"
    assert outputs["vpc"].startswith("vpc-")
    assert len(outputs["vpc"]) == len("vpc-") + 17
    assert outputs["tags"] == {"Name": "net", "owner": "ml"}
    assert outputs["arn"] == "arn:aws:eks:eu-central-1:123456789012:cluster/tried"
    assert outputs["endpoint"].endswith(".gr7.eu-central-1.eks.amazonaws.com")
    assert outputs["vpc_config"]["cluster_security_group_id"].startswith("sg-")
    assert outputs["name"].startswith("role-")
    assert not project.engine.up().changed
    assert not project.engine.refresh().changed
    assert project.engine.outputs() == outputs
    gone = project.engine.destroy()
    assert gone.changes == {"delete": len(ALL) + 2}


@pytest.mark.nightly
def test_outputs_are_the_same_in_another_checkout(project: Project) -> None:
    project.up()
    first = project.engine.outputs()
    project.engine.destroy()
    project.up()
    assert project.engine.outputs() == first


@pytest.mark.parametrize(
    ("config", "expected"),
    nightly_but(
        "cidr",
        {
            "tag": ({"tag": "other"}, {("update", "net")}),
            "version": ({"version": "1.34"}, {("update", "eks")}),
            "image": ({"image": "ami-00000000000000001"}, {("update", "lt"), ("update", "nodes")}),
            "cidr": (
                {"cidr": "10.30.0.0/16"},
                {
                    *(
                        (op, name)
                        for op in ("create-replacement", "replace", "delete-replaced")
                        for name in ("net", "s-a", "s-b", "nodes")
                    ),
                    ("update", "eks"),
                },
            ),
        },
    ),
)
def test_a_change_touches_what_it_must(
    project: Project, config: dict[str, str], expected: set[tuple[str, str]]
) -> None:
    project.up()
    project.configure(**config)
    planned = touched(project.engine.preview())
    assert {name for _, name in planned} == {name for _, name in expected}
    done = touched(project.engine.up())
    assert done == expected
    assert not project.engine.up().changed


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "aws.ec2.Vpc('x', cidr_block='10.0.0.0/99')",
            "property cidrBlock value {10.0.0.0/99} has a problem: is not an IPv4 block",
        ),
        ("aws.ec2.Subnet('x', vpc_id='vpc-1', cidr_block='10.0.0.1/24')", "is not an IPv4 block"),
        (
            "aws.ec2.LaunchTemplate('x', block_device_mappings=[{'ebs': {'volume_type': 'gp9'}}])",
            "property blockDeviceMappings[0].ebs.volumeType",
        ),
        ("aws.sns.Topic('x')", "the offline stand-in of the aws provider does not know this type"),
        (
            "aws.get_availability_zones()",
            "answers getCallerIdentity, getParameter, getPartition, getRegion, getSubnets only",
        ),
    ],
)
def test_bad_input_ends_the_preview(project: Project, program: str, message: str) -> None:
    project.program(f"import pulumi_aws as aws\n{program}\n")
    (project.paths.root / "Pulumi.local.yaml").write_text("config: {aws:region: eu-central-1}\n")
    with pytest.raises(EngineFailure) as caught:
        project.engine.preview()
    assert message in json.dumps([*caught.value.result.errors, str(caught.value)])


@pytest.mark.nightly
def test_an_unknown_region_is_refused(project: Project) -> None:
    (project.paths.root / "Pulumi.local.yaml").write_text("config: {aws:region: eu-centrum-1}\n")
    project.program("import pulumi_aws as aws\naws.ec2.Vpc('x', cidr_block='10.0.0.0/16')\n")
    with pytest.raises(EngineFailure, match="'eu-centrum-1' is not an AWS region"):
        project.engine.preview()


@pytest.mark.nightly
def test_offline_state_is_kept_apart(project: Project) -> None:
    project.up()
    assert project.engine.export()["deployment"]["resources"]
    from gpuform.engine import Engine

    real = Engine(project.paths, project.toolchain, say=project.said.append)
    assert not real.export()["deployment"].get("resources")

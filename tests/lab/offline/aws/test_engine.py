"""Small programs through the real engine and the stand-in: resources planned, created, updated, replaced."""

from __future__ import annotations

import json

import pytest

from gpuform.engine import Engine, EngineFailure
from lab.offline.aws.provider import NOTICE
from tests.lab.offline.aws.conftest import Offline, touched

pytestmark = pytest.mark.engine

ALL = {"net", "s-a", "s-b", "role", "eks", "lt", "nodes"}


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


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("region", "program", "message"),
    [
        (
            "eu-central-1",
            "aws.ec2.Vpc('x', cidr_block='10.0.0.0/99')",
            "property cidrBlock value {10.0.0.0/99} has a problem: is not an IPv4 block",
        ),
        (
            "eu-central-1",
            "aws.sns.Topic('x')",
            "the offline stand-in of the aws provider does not know this type",
        ),
        (
            "eu-central-1",
            "aws.get_availability_zones()",
            "answers getCallerIdentity, getParameter, getPartition,",
        ),
        ("eu-centrum-1", "aws.ec2.Vpc('x', cidr_block='10.0.0.0/16')", "'eu-centrum-1' is not an AWS region"),
    ],
)
def test_bad_input_ends_the_preview(project: Offline, region: str, program: str, message: str) -> None:
    project.program(f"import pulumi_aws as aws\n{program}\n")
    (project.paths.root / "Pulumi.local.yaml").write_text(f"config: {{aws:region: {region}}}\n")
    with pytest.raises(EngineFailure) as caught:
        project.engine.preview()
    assert message in json.dumps([*caught.value.result.errors, str(caught.value)])


@pytest.mark.nightly
def test_offline_state_is_kept_apart(project: Offline) -> None:
    project.up()
    assert project.engine.export()["deployment"]["resources"]
    real = Engine(project.paths, project.toolchain, say=project.said.append)
    assert not real.export()["deployment"].get("resources")

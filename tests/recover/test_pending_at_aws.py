"""A state that a killed run left with resources in the making, the engine that has it, and AWS (moto).

The engine's runs are offline, so nothing but this test makes anything in moto: what `up` makes is what the
engine asks its stand-in for.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuform.aws import api
from gpuform.engine import Engine
from gpuform.errors import Failure, InputError
from gpuform.recover import Told
from gpuform.recover import state as states
from tests.recover.conftest import STACK, Project
from tests.recover.seeded import REGION, pairs, spec

pytestmark = pytest.mark.engine

OURS = {"gpuform.io/environment": "labs"}
LATER = ("s-a", "s-b", "eks")


def made_vpc() -> str:
    tags = spec("vpc", {**OURS, "Name": "labs"})
    made = api.client("ec2", REGION).create_vpc(CidrBlock="10.20.0.0/16", TagSpecifications=tags)
    return str(made["Vpc"]["VpcId"])


def inputs_of(project: Project, name: str) -> dict[str, Any]:
    for one in project.state()["deployment"]["pending_operations"]:
        if one["resource"]["urn"].endswith(f"::{name}"):
            found: dict[str, Any] = one["resource"]["inputs"]
            return found
    raise AssertionError(name)


def test_what_aws_made_is_taken_over_and_the_rest_is_made(moto: str, project: Project) -> None:
    project.interrupted(["net", "role", "queue"], LATER)
    vpc = made_vpc()
    name = inputs_of(project, "role")["name"]
    api.client("iam", REGION).create_role(RoleName=name, AssumeRolePolicyDocument="{}", Tags=pairs(OURS))
    plan = project.find()
    assert {(step.name, step.does, step.id) for step in plan.steps} == {
        ("net", "import", vpc),
        ("role", "import", name),
        ("queue", "clear", None),
    }
    assert states.same(plan.state, project.state()), "looking changes nothing"
    project.carry_out(plan)
    assert f"net (aws:ec2/vpc:Vpc): imported as {vpc}" in project.said
    state = project.state()["deployment"]
    assert not state.get("pending_operations")
    have = {one["urn"].rpartition("::")[2]: one for one in state["resources"]}
    assert have["net"]["id"] == vpc
    assert have["net"]["outputs"]["arn"].endswith(f"vpc/{vpc}")
    assert not project.find().to_do
    done = project.run("up")
    assert {(step.op, step.name) for step in done.steps if step.op != "same"} == {
        ("create", "queue"),
        *(("create", name) for name in LATER),
    }
    assert not project.run("preview").changed
    ids = project.ids()
    assert (ids["net"], ids["role"]) == (vpc, name)
    assert len(ids) == len(project.state()["deployment"]["resources"])
    there = api.client("ec2", REGION).describe_vpcs(Filters=[{"Name": "tag:Name", "Values": ["labs"]}])
    assert [one["VpcId"] for one in there["Vpcs"]] == [vpc]


def test_what_the_engine_alone_would_have_forgotten(moto: str, project: Project) -> None:
    """Why the state is edited here: the engine's own import of pending creates imports nothing (3.256)."""
    project.interrupted(["net"], ("role", "queue", *LATER))
    stack = project.stack
    (urn,) = [one["resource"]["urn"] for one in project.state()["deployment"]["pending_operations"]]
    words = ("refresh", "--yes", "--skip-preview", "--import-pending-creates", urn)
    stack.engine.ask(stack.env, *words, "--import-pending-creates", "vpc-1", "--stack", STACK)
    assert "net" not in project.ids()


def test_two_that_could_be_it_and_a_name_that_is_taken(moto: str, project: Project) -> None:
    project.interrupted(["net", "queue"], ("role", *LATER))
    one, other = made_vpc(), made_vpc()
    with pytest.raises(Failure, match="could be any of") as caught:
        project.find()
    assert one in str(caught.value)
    assert other in str(caught.value)
    api.client("sqs", REGION).create_queue(QueueName="labs", tags={"team": "other"})
    with pytest.raises(InputError, match="--import: nothing was not being made; pending is: net, queue"):
        project.find(Told(made={"nothing": "x"}))
    plan = project.find(Told(made={"net": other}))
    assert {(step.name, step.does) for step in plan.steps} == {("net", "import"), ("queue", "leave")}
    assert [step.name for step in plan.left] == ["queue"]
    before = project.state()
    project.carry_out(plan)
    assert project.state() == before, "the engine writes a state as a whole: it waits for the last answer"
    project.carry_out(project.find(Told(made={"net": other}, never_made=["queue"])))
    assert project.ids()["net"] == other
    assert not project.find().to_do


def test_what_was_changing_is_read_again(moto: str, project: Project) -> None:

    def change(deployment: dict[str, Any]) -> None:
        named = {one["urn"].rpartition("::")[2]: one for one in deployment["resources"]}
        deployment["pending_operations"] = [
            {"type": "updating", "resource": named["queue"]},
            {"type": "deleting", "resource": named["eks"]},
        ]

    project.edit(change)
    plan = project.find()
    assert [(step.name, step.was, step.does) for step in plan.steps] == [
        ("queue", "updating", "refresh"),
        ("eks", "deleting", "refresh"),
    ]
    project.carry_out(plan)
    assert not project.find().to_do
    assert not project.run("preview").changed


def test_what_could_not_be_read_is_read_by_the_same_command(
    moto: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.interrupted(["net"], ("role", "queue", *LATER))
    vpc = made_vpc()
    plan = project.find()

    def failing(*args: Any, **more: Any) -> None:
        raise Failure("pulumi refresh", "failed", "see the log")

    with monkeypatch.context() as broken:
        broken.setattr(Engine, "refresh", failing)
        with pytest.raises(Failure, match="pulumi refresh"):
            project.carry_out(plan)
    with pytest.raises(Failure, match="an interrupted run was making net"):
        project.run("up")
    (step,) = project.find().steps
    assert (step.name, step.was, step.does) == ("net", "importing", "refresh")
    project.carry_out(project.find())
    assert project.ids()["net"] == vpc
    assert not project.find().to_do


def test_a_real_state_is_not_updated_past_what_was_being_made(
    moto: str, project: Project, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A declared state: `up` ends before it begins and names the command."""
    kept = project.state()
    del kept["deployment"]["secrets_providers"]
    kept["deployment"]["resources"] = [
        one for one in kept["deployment"]["resources"] if one["type"] != "pulumi:pulumi:Stack"
    ]
    for one in kept["deployment"]["resources"]:
        one.pop("parent", None)  # the stack, whose outputs nobody with another passphrase can read
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    project.file.write_text(
        "config:\n  gpuform:environment:\n    name: labs\n"
        "    cluster: {kind: existing, kubeconfig: /nowhere}\n"
        "    pools: [{name: t4, machine: g2.5xlarge, selector: {a: b}}]\n"
        f"    state: {{backend: 'file://{bucket}'}}\n"
    )
    engine = Engine(project.paths, project.toolchain, say=project.said.append)
    env = engine.prepare(STACK)
    engine.ask(env, "stack", "import", "--stack", STACK, given=json.dumps(kept))

    def change(deployment: dict[str, Any]) -> None:
        making = {key: item for key, item in deployment["resources"][-1].items() if key != "outputs"}
        deployment["pending_operations"] = [{"type": "creating", "resource": making}]

    project.edit(change, bucket)
    before = engine.export(STACK)
    with pytest.raises(Failure, match=r"an interrupted run was making \S+ \(aws:") as why:
        engine.up(STACK)
    assert f"run 'gpuform recover {STACK}'" in str(why.value)
    assert engine.export(STACK) == before

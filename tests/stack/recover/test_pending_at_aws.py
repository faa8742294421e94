"""A killed run's state with pending operations, its engine, and AWS (moto).

The engine's runs are offline, so only this test creates resources in moto: what `up` creates goes to the
engine's stand-in.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws import api
from gpuform.clouds import RECOVERIES
from gpuform.engine import Engine
from gpuform.engine.pending import operations
from gpuform.stack.recover import Stack, UserDecisions, carry_out, find
from gpuform.stack.recover import state as states
from tests.clouds.aws.seeded import REGION, pairs, tag_specification
from tests.stack.recover.conftest import DECLARED, STACK, Project

pytestmark = pytest.mark.engine

OURS = {"gpuform.io/environment": "labs"}
LATER = ("s-a", "s-b", "eks")


def made_vpc() -> str:
    tags = tag_specification("vpc", {**OURS, "Name": "labs"})
    made = api.create_client("ec2", REGION).create_vpc(CidrBlock="10.20.0.0/16", TagSpecifications=tags)
    return str(made["Vpc"]["VpcId"])


def inputs_of(project: Project, name: str) -> dict[str, Any]:
    for one in project.state()["deployment"]["pending_operations"]:
        if one["resource"]["urn"].endswith(f"::{name}"):
            found: dict[str, Any] = one["resource"]["inputs"]
            return found
    raise AssertionError(name)


@pytest.mark.nightly
def test_what_aws_made_is_taken_over_and_the_rest_is_made(moto: str, project: Project) -> None:
    project.interrupted(["net", "role", "queue"], LATER)
    vpc = made_vpc()
    name = inputs_of(project, "role")["name"]
    api.create_client("iam", REGION).create_role(
        RoleName=name, AssumeRolePolicyDocument="{}", Tags=pairs(OURS)
    )
    plan = project.find()
    assert {(step.name, step.does, step.id) for step in plan.steps} == {
        ("net", "import", vpc),
        ("role", "import", name),
        ("queue", "clear", None),
    }
    assert states.is_same_state(plan.state, project.state()), "looking changes nothing"
    project.carry_out(plan)
    assert f"net (aws:ec2/vpc:Vpc): imported as {vpc}" in project.said
    state = project.state()["deployment"]
    assert not state.get("pending_operations")
    have = {one["urn"].rpartition("::")[2]: one for one in state["resources"]}
    assert have["net"]["id"] == vpc
    assert have["net"]["outputs"]["arn"].endswith(f"vpc/{vpc}")
    done = project.run("up")
    assert {(step.op, step.name) for step in done.steps if step.op != "same"} == {
        ("create", "queue"),
        *(("create", name) for name in LATER),
    }
    assert not project.run("preview").changed
    ids = project.ids()
    assert (ids["net"], ids["role"]) == (vpc, name)
    assert len(ids) == len(project.state()["deployment"]["resources"])
    there = api.create_client("ec2", REGION).describe_vpcs(Filters=[{"Name": "tag:Name", "Values": ["labs"]}])
    assert [one["VpcId"] for one in there["Vpcs"]] == [vpc]


@pytest.mark.nightly
def test_two_that_could_be_it_and_a_name_that_is_taken(moto: str, project: Project) -> None:
    project.interrupted(["net", "queue"], ("role", *LATER))
    one, other = made_vpc(), made_vpc()
    with pytest.raises(Failure, match="could be any of") as caught:
        project.find()
    assert one in str(caught.value)
    assert other in str(caught.value)
    api.create_client("sqs", REGION).create_queue(QueueName="labs", tags={"team": "other"})
    message = "--import: nothing is not a pending create; pending creates: net, queue"
    with pytest.raises(InputError, match=message):
        project.find(UserDecisions(imports={"nothing": "x"}))
    plan = project.find(UserDecisions(imports={"net": other}))
    assert {(step.name, step.does) for step in plan.steps} == {("net", "import"), ("queue", "leave")}
    assert [step.name for step in plan.manual_items] == ["queue"]
    before = project.state()
    project.carry_out(plan)
    assert project.state() == before, "the engine writes a state as a whole: it waits for the last answer"
    project.carry_out(project.find(UserDecisions(imports={"net": other}, not_created=["queue"])))
    assert project.ids()["net"] == other
    assert not operations(project.state())


@pytest.mark.nightly
def test_what_was_changing_is_read_again(moto: str, project: Project) -> None:

    def change(deployment: dict[str, Any]) -> None:
        named = {one["urn"].rpartition("::")[2]: one for one in deployment["resources"]}
        deployment["pending_operations"] = [
            {"type": "updating", "resource": named["queue"]},
            {"type": "deleting", "resource": named["eks"]},
        ]

    project.edit(change)
    plan = project.find()
    assert [(step.name, step.interrupted_while, step.does) for step in plan.steps] == [
        ("queue", "updating", "refresh"),
        ("eks", "deleting", "refresh"),
    ]
    project.carry_out(plan)
    assert "eks (aws:eks/cluster:Cluster): refreshed" in project.said
    assert not operations(project.state())
    assert not project.run("preview").changed


@pytest.mark.nightly
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
    with pytest.raises(Failure, match="an interrupted run was creating net"):
        project.run("up")
    (step,) = project.find().steps
    assert (step.name, step.interrupted_while, step.does) == ("net", "importing", "refresh")
    project.carry_out(project.find())
    assert project.ids()["net"] == vpc
    assert not operations(project.state())


@pytest.mark.nightly
def test_a_state_in_a_bucket(moto: str, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real state: `up` stops at once and names the command, which resolves lock and operation."""
    kept = project.state()
    del kept["deployment"]["secrets_providers"]
    kept["deployment"]["resources"] = [
        one for one in kept["deployment"]["resources"] if one["type"] != "pulumi:pulumi:Stack"
    ]
    for one in kept["deployment"]["resources"]:
        one.pop("parent", None)  # the stack, with outputs that another passphrase cannot decrypt
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    s3 = api.create_client("s3", REGION)
    s3.create_bucket(Bucket="states", CreateBucketConfiguration={"LocationConstraint": REGION})
    address = f"s3://states/of?region={REGION}"
    project.file.write_text(f"{DECLARED}    state: {{backend: '{address}'}}\n")
    engine = Engine(project.paths, project.toolchain, say=project.said.append)
    stack = Stack(STACK, project.paths, engine, RECOVERIES)
    command = ("stack", "import", "--stack", STACK)
    engine.run_pulumi(engine.prepare(STACK), *command, stdin=json.dumps(kept))
    key = f"of/.pulumi/stacks/gpuform/{STACK}.json"
    content = json.loads(s3.get_object(Bucket="states", Key=key)["Body"].read())
    latest = content["checkpoint"]["latest"]
    making = {key: item for key, item in latest["resources"].pop().items() if key not in ("id", "outputs")}
    latest["pending_operations"] = [{"type": "creating", "resource": making}]
    s3.put_object(Bucket="states", Key=key, Body=json.dumps(content).encode())
    lock = {"pid": 12, "username": "ada", "hostname": "ci-7", "timestamp": "2026-01-02T03:04:05Z"}
    place = f"of/.pulumi/locks/organization/gpuform/{STACK}/0a1b.json"
    s3.put_object(Bucket="states", Key=place, Body=json.dumps(lock).encode())
    before = stack.engine.export(STACK)
    for run in (stack.engine.up, stack.engine.destroy):
        with pytest.raises(Failure, match=r"an interrupted run was creating \S+ \(aws:") as why:
            run(STACK)
        assert f"run 'gpuform recover {STACK}'" in str(why.value)
    assert stack.engine.export(STACK) == before
    with pytest.raises(Failure, match="is locked by process 12 of ada on host ci-7") as held:
        stack.engine.refresh(STACK)
    assert f"gpuform recover {STACK} --owner-is-gone ci-7:12" in str(held.value)
    plan = find(stack, UserDecisions(ended_owners=["ci-7:12"]))
    assert (plan.backend, len(plan.locks)) == (address, 1)
    assert [step.does for step in plan.steps] == ["clear"]
    carry_out(stack, plan, project.said.append)
    assert not find(stack).has_work
    assert len(stack.engine.export(STACK)["deployment"]["resources"]) == len(latest["resources"])

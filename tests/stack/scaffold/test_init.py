"""``gpuform init``: a file that parses, commands that a shell and AWS accept, and no overwritten file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpuform.cli.main import app
from gpuform.stack.scaffold import (
    EXAMPLES,
    StateLocation,
    example_name,
    read_policy,
    render_script,
    write_policy,
)
from infra.config import load

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.unit

FAKE = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(words) + "\\n")
there = os.environ["THERE"] == "yes"
if words[:2] == ["sts", "get-caller-identity"]:
    print("arn:aws:iam::111122223333:user/ada" if "Arn" in words else "111122223333")
elif words[1] in ("describe-key", "head-bucket", "get-policy") and not there:
    sys.exit(254)
elif words[1] in ("describe-key", "create-key"):
    print("arn:aws:kms:eu-central-1:111122223333:key/1")
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\n")
    monkeypatch.chdir(root)
    return root


def run(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["init", *words])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize(
    ("stack", "nearest"), [("prod-eu", "aws-prod"), ("live", "aws-prod"), ("try", "aws-dev")]
)
def test_the_nearest_example_becomes_the_stacks_own_file(checkout: Path, stack: str, nearest: str) -> None:
    assert example_name(stack) == nearest
    run(stack, "--region", "eu-central-1", "--bucket", "team-state", "--kms", "gpu/state")
    file = checkout / f"Pulumi.{stack}.yaml"
    env, model = load(file), load(ROOT / f"Pulumi.{nearest}.yaml")
    assert env.name == stack
    assert env.cluster.kind == "aws"
    assert env.cluster.region == "eu-central-1"
    assert {zone[:-1] for zone in env.cluster.network.zones} == {"eu-central-1"}
    assert env.state is not None
    assert env.state.backend == f"s3://team-state/{stack}?region=eu-central-1"
    assert env.state.secrets_provider == "awskms://alias/gpu/state?region=eu-central-1"
    assert [pool.name for pool in env.pools] == [pool.name for pool in model.pools]
    assert file.read_text().count("#") > 20, "the comments are what a reader learns from"


@pytest.mark.parametrize("example", [name for name in EXAMPLES if not name.startswith("aws")])
def test_every_other_example_is_copied_without_its_workloads(checkout: Path, example: str) -> None:
    assert {f"Pulumi.{name}.yaml" for name in EXAMPLES} == {file.name for file in ROOT.glob("Pulumi.*.yaml")}
    done = run("mine", "--example", example)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    env, model = load(checkout / "Pulumi.mine.yaml"), load(ROOT / f"Pulumi.{example}.yaml")
    assert (env.name, env.cluster, env.workloads) == ("mine", model.cluster, ())
    assert env.pools == model.pools


def test_a_stack_in_an_existing_vpc(checkout: Path) -> None:
    run(
        "try",
        "--vpc",
        "vpc-1a2b3c4d",
        "--subnet",
        "us-east-1a=subnet-1a2b3c4d",
        "--subnet",
        "us-east-1b=subnet-1b2b3c4d",
    )
    env = load(checkout / "Pulumi.try.yaml")
    assert env.cluster.kind == "aws"
    assert env.cluster.network.model_dump(exclude_unset=True) == {
        "vpc": "vpc-1a2b3c4d",
        "subnets": {"us-east-1a": "subnet-1a2b3c4d", "us-east-1b": "subnet-1b2b3c4d"},
    }
    assert env.workloads == ()


def test_without_options_the_examples_region_and_names_after_the_stack(checkout: Path) -> None:
    run("try")
    state = load(checkout / "Pulumi.try.yaml").state
    assert state is not None
    assert state.backend == "s3://gpuform-try-state/try?region=us-east-1"
    assert state.secrets_provider == "awskms://alias/gpuform-try?region=us-east-1"


def test_nothing_is_overwritten(checkout: Path, tmp_path: Path) -> None:
    (checkout / "Pulumi.try.yaml").write_text("mine")
    assert "already exists; edit it, or name another" in run("try", code=2).stderr
    assert (checkout / "Pulumi.try.yaml").read_text() == "mine"
    (tmp_path / "commands").write_text("mine")
    run("other", "--script", str(tmp_path / "commands"), code=2)
    assert (tmp_path / "commands").read_text() == "mine"
    assert not (checkout / "Pulumi.other.yaml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["try", "--region", "Frankfurt"],
         "--region: 'Frankfurt' is not an AWS region; write it as eu-central-1"),
        (["try", "--bucket", "Team_State"],
         "--bucket: 'Team_State' is not a valid S3 bucket name; use 3 to 63"),
        (["try", "--vpc", "vpc-1a2b3c4d"], "cluster.network"),
        (["try", "--example", "aws"], "--example: 'aws' is no example; name one of aws-dev, aws-prod, local"),
        (["try", "--example", "local", "--vpc", "v"], "--vpc: is for AWS, not for local; leave it out"),
        (["try", "--kms", "aws/s3"], "--kms: 'aws/s3' is not a valid KMS alias; use letters"),
        (["Try It"],
         "STACK: 'Try It' is not a valid name for a stack on AWS; use at most 50 of a-z, 0-9 and -"),
        (["x # $(id)", "--bucket", "b-state", "--kms", "k"],
         "STACK: 'x # $(id)' is not a valid name for a stack"),
    ],
)  # fmt: skip
def test_bad_input_leaves_nothing(checkout: Path, words: list[str], message: str) -> None:
    assert message in run(*words, code=2).stderr
    assert [file.name for file in checkout.iterdir()] == ["Pulumi.yaml"]


def played(folder: Path, there: str) -> list[list[str]]:
    """AWS calls of the script, with an ``aws`` that reports all our resources as existing, or none."""
    (folder / "bin").mkdir(exist_ok=True)
    fake, calls = folder / "bin" / "aws", folder / f"calls-{there}"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "CALLS": str(calls), "THERE": there}
    subprocess.run([str(folder / "commands")], check=True, env=env, capture_output=True)
    return [json.loads(line) for line in calls.read_text().splitlines()]


@pytest.mark.tools
def test_the_commands_are_those_that_aws_takes(checkout: Path, tmp_path: Path) -> None:
    done = run("try", "--region", "eu-central-1", "--script", str(tmp_path / "commands"))
    assert done.stdout == (tmp_path / "commands").read_text()
    calls = played(tmp_path, "no")
    made = [words[1] for words in calls if words[1].startswith(("create-", "put-", "enable-"))]
    assert made == [
        "create-key", "create-alias", "enable-key-rotation", "create-bucket", "put-public-access-block",
        "put-bucket-ownership-controls", "put-bucket-versioning", "put-bucket-encryption",
        "put-bucket-lifecycle-configuration", "put-bucket-policy", "create-policy", "create-policy",
    ]  # fmt: skip
    for words in calls:
        check(words)
    again = [words[1] for words in played(tmp_path, "yes")]
    assert not [word for word in again if word.startswith("create-")]
    asked = [words for words in calls if words[0] == "s3api" and words[1] != "create-bucket"]
    assert all("111122223333" in words for words in asked), "every call names the expected bucket owner"


def check(words: list[str]) -> None:
    import botocore.session
    from botocore import xform_name
    from botocore.validate import ParamValidator

    service, name, *rest = words
    model = botocore.session.get_session().get_service_model("s3" if service == "s3api" else service)
    operation = next(
        model.operation_model(one) for one in model.operation_names if xform_name(one, "-") == name
    )
    shape = operation.input_shape
    members = {xform_name(member, "-"): member for member in (shape.members if shape else {})}
    given: dict[str, Any] = {}
    for option, value in zip(rest[::2], rest[1::2], strict=True):
        key = option.removeprefix("--")
        if key in ("region", "query", "output") and key not in members:
            continue
        kind = shape.members[members[key]].type_name
        pair = dict([value.split("=", 1)]) if "=" in value and not value.startswith("{") else None
        given[members[key]] = (pair or json.loads(value)) if kind == "structure" else value
    if shape is not None:
        report = ParamValidator().validate(given, shape)
        assert not report.has_errors(), report.generate_report()
    for option in ("Policy", "PolicyDocument"):
        if option in given:
            assert "$" not in json.dumps(json.loads(given[option]))


def test_the_policies_reach_one_stacks_folder_and_one_key() -> None:
    place = StateLocation(stack="prod", region="us-east-1", bucket="b-state", alias="gpuform")
    actions = {
        policy.__name__: sorted(
            action
            for statement in policy(place)["Statement"]
            for action in (
                statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            )
        )
        for policy in (read_policy, write_policy)
    }
    assert actions["read_policy"] == ["kms:Decrypt", "s3:GetObject", "s3:ListBucket"]
    assert actions["write_policy"] == [
        "kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey",
        "s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject",
    ]  # fmt: skip
    for statement in write_policy(place)["Statement"]:
        assert statement["Resource"] != "*"
    assert "--create-bucket-configuration" not in render_script(place), "us-east-1 takes none"

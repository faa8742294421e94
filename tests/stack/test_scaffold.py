"""``gpuform init`` and ``new``: files that parse, commands that AWS accepts, and nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.checkout.errors import InputError
from gpuform.cli.main import app
from gpuform.stack.project import TARGETS, new_project
from gpuform.stack.scaffold import (
    EXAMPLES,
    Document,
    StateLocation,
    example_name,
    read_policy,
    render_script,
    write_policy,
)
from infra.config import load, price_list
from infra.inventory import read_keys
from infra.plan.render import render
from tests.build.aws_stacks import ROOT

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
elif words[1] == "list-policy-versions":
    print("v1\tv2")
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


NAMED = "--region eu-central-1 --bucket team-state --kms gpu/state"


@pytest.mark.parametrize(
    ("stack", "nearest", "words", "region", "bucket", "key"),
    [
        ("prod-eu", "aws-prod", NAMED, "eu-central-1", "team-state", "gpu/state"),
        ("live", "aws-prod", NAMED, "eu-central-1", "team-state", "gpu/state"),
        ("try", "aws-dev", NAMED, "eu-central-1", "team-state", "gpu/state"),
        ("try", "aws-dev", "", "us-east-1", "gpuform-try-state", "gpuform-try"),
    ],
)
def test_the_nearest_example_becomes_the_stacks_own_file(
    checkout: Path, stack: str, nearest: str, words: str, region: str, bucket: str, key: str
) -> None:
    assert example_name(stack) == nearest
    run(stack, *words.split())
    file = checkout / f"Pulumi.{stack}.yaml"
    env, model = load(file), load(ROOT / f"Pulumi.{nearest}.yaml")
    assert env.cluster.kind == "aws"
    assert (env.name, env.cluster.region) == (stack, region)
    assert {zone[:-1] for zone in env.cluster.network.zones} == {region}
    assert env.state is not None
    assert env.state.backend == f"s3://{bucket}/{stack}?region={region}"
    assert env.state.secrets_provider == f"awskms://alias/{key}?region={region}"
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
    subnets = {"us-east-1a": "subnet-1a2b3c4d", "us-east-1b": "subnet-1b2b3c4d"}
    words = (word for zone, subnet in subnets.items() for word in ("--subnet", f"{zone}={subnet}"))
    run("try", "--vpc", "vpc-1a2b3c4d", *words)
    env = load(checkout / "Pulumi.try.yaml")
    assert env.cluster.kind == "aws"
    network = env.cluster.network.model_dump(exclude_unset=True)
    assert (network, env.workloads) == ({"vpc": "vpc-1a2b3c4d", "subnets": subnets}, ())


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


def played(folder: Path, there: str, *words: str) -> list[list[str]]:
    """AWS calls of the script, with an ``aws`` that reports all our resources as existing, or none."""
    (folder / "bin").mkdir(exist_ok=True)
    fake, calls = folder / "bin" / "aws", folder / f"calls-{there}"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "CALLS": str(calls), "THERE": there}
    subprocess.run([str(folder / "commands"), *words], check=True, env=env, capture_output=True)
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


@pytest.mark.tools
def test_the_policies_of_a_rendering_are_made_and_then_updated(checkout: Path, tmp_path: Path) -> None:
    run("try", "--region", "eu-central-1", "--script", str(tmp_path / "commands"))
    (tmp_path / "out").mkdir()
    files = {
        name: text for name, text in render(load(checkout / "Pulumi.try.yaml")).items() if "role-" in name
    }
    for name, text in files.items():
        (tmp_path / "out" / name).write_text(text)
    (tmp_path / "calls-no").unlink(missing_ok=True)
    names = [f"gpuform-try-{name.removeprefix('role-').removesuffix('.json')}" for name in files]
    calls = played(tmp_path, "no", str(tmp_path / "out"))
    made = [words[words.index("--policy-name") + 1] for words in calls if words[1] == "create-policy"]
    assert made[2:] == names
    again = played(tmp_path, "yes", str(tmp_path / "out"))
    later = [words[1:4] for words in again if words[1] == "create-policy-version"]
    arn = "arn:aws:iam::111122223333:policy"
    assert later == [["create-policy-version", "--policy-arn", f"{arn}/{name}"] for name in names]
    gone = [words[-1] for words in again if words[1] == "delete-policy-version"]
    assert gone == ["v1", "v2"] * len(names)
    for words in [*calls, *again]:
        check(words)


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
    if "--set-as-default" in rest:
        rest.insert(rest.index("--set-as-default") + 1, "true")
    for option, value in zip(rest[::2], rest[1::2], strict=True):
        key = option.removeprefix("--")
        if key in ("region", "query", "output") and key not in members:
            continue
        kind = shape.members[members[key]].type_name
        pair = dict([value.split("=", 1)]) if "=" in value and not value.startswith("{") else None
        value = Path(value[7:]).read_text() if value.startswith("file://") else value
        structured = kind in ("structure", "boolean")
        given[members[key]] = (pair or json.loads(value)) if structured else value
    if shape is not None:
        report = ParamValidator().validate(given, shape)
        assert not report.has_errors(), report.generate_report()
    for option in ("Policy", "PolicyDocument"):
        if option in given:
            assert "$" not in json.dumps(json.loads(given[option]))


def actions(policy: Document) -> set[str]:
    listed = (one["Action"] for one in policy["Statement"])
    return {action for some in listed for action in ([some] if isinstance(some, str) else some)}


def test_the_policies_reach_one_stacks_folder_and_one_key() -> None:
    place = StateLocation(stack="prod", region="us-east-1", bucket="b-state", alias="gpuform")
    reads, writes = actions(read_policy(place)), actions(write_policy(place))
    assert reads == {"kms:Decrypt", "s3:GetObject", "s3:ListBucket"}
    assert writes - reads == {"kms:Encrypt", "kms:GenerateDataKey", "s3:DeleteObject", "s3:PutObject"}
    assert reads < writes
    for statement in write_policy(place)["Statement"]:
        assert statement["Resource"] != "*"
    assert "--create-bucket-configuration" not in render_script(place), "us-east-1 takes none"


@pytest.mark.parametrize("target", TARGETS)
def test_the_stack_of_each_target_renders_as_it_is(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "my clusters"
    files = new_project(folder, target)
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == set(files)
    assert (folder / "Pulumi.yaml").read_text().startswith('name: "my-clusters"\n')
    env = load(folder / f"Pulumi.{TARGETS[target].stack}.yaml")
    assert render(env, read_keys(env, folder), price_list(env))


@pytest.mark.parametrize("target", TARGETS)
def test_workflows_need_nothing_of_a_checkout(target: str, tmp_path: Path) -> None:
    new_project(tmp_path / "p", target)
    for file in (tmp_path / "p" / ".github").rglob("*.yml"):
        text = file.read_text()
        assert not re.search(r"\bmake\b|python3 -m gpuform|toolchain/|--policy-pack policies", text), file
        assert ("AWS_ROLE" in text) == (target == "aws" and file.stem in ("preview", "up", "drift")), file
        steps = yaml.safe_load(text)
        assert "runs" in steps or steps["jobs"]


def test_the_version_is_pinned(tmp_path: Path) -> None:
    new_project(tmp_path / "p", "aws")
    pinned = (tmp_path / "p" / "requirements.txt").read_text()
    assert re.fullmatch(r"gpuform\[aws,rehearse\]==\d+\.\d+\.\d+\n", pinned)


@pytest.mark.parametrize(
    ("target", "before", "message"),
    [
        ("azure", "", "--target: 'azure' is no target; name one of local, aws, openstack, hosts, existing"),
        ("local", "README.md", "{}: is not empty; name a new folder"),
    ],
)
def test_bad_input_for_a_project_writes_nothing(
    tmp_path: Path, target: str, before: str, message: str
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    if before:
        (folder / before).touch()
    with pytest.raises(InputError) as error:
        new_project(folder, target)
    assert str(error.value) == message.format(folder)
    assert [path.name for path in folder.iterdir()] == [before] * bool(before)

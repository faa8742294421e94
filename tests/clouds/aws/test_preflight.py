"""The whole preflight on made-up accounts: what passes, what stops it, its calls, and its output."""

from __future__ import annotations

import io
import os
import re
import shlex
from collections import Counter
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name
from botocore.stub import Stubber
from rich.console import Console

from gpuform.checkout.paths import Paths
from gpuform.clouds.aws.preflight import checks
from gpuform.clouds.aws.preflight.account import Aws, home_region
from gpuform.reports import tables
from infra.config import parse
from infra.model.environment import Environment
from infra.plan.accounts import policies
from tests.build.aws_stacks import small, stack
from tests.clouds.findings import expect
from tests.fakes.aws import ACCOUNT, VPC, Account, real_client, reservation, route_table, subnet

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent / "preflight.txt"


@pytest.fixture
def prod() -> Environment:
    return parse(stack("aws-prod"))


@pytest.mark.parametrize("name", ["aws-dev", "aws-prod"])
def test_an_account_that_has_everything_passes(name: str) -> None:
    env = parse(stack(name))
    found = Account(env).findings()
    assert {finding.verdict for finding in found.values()} == {"PASS"}, found
    assert {"credentials", f"region {env.cluster.region}", "zones", "access to the cluster"} < set(found)  # type: ignore[union-attr]


def test_findings_with_troubles_are_readable(prod: Environment) -> None:
    account = Account(
        prod,
        quotas={"L-417A185B": 192, "L-3819A6DF": 64},
        instances=[{"InstanceType": "p4d.24xlarge"}],
        reservations=[reservation(AvailableInstanceCount=3)],
        not_offered={("p4d.24xlarge", "us-west-2a"), ("g6e.16xlarge", "us-west-2c")},
        roles=("AWSServiceRoleForAmazonEKS",),
        add_ons={"coredns": "v1.99.0-eksbuild.1"},
        denied={"DescribeClusterVersions"},
    )
    console = Console(width=400, record=True, file=io.StringIO())
    shown = list(account.findings().values())
    console.print(tables.findings_table(shown))
    text = "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n"
    text += "\n".join(tables.manual_checks(shown)) + "\n"
    assert text == GOLDEN.read_text()


def test_missing_credentials_fail_once_and_stop_the_rest(prod: Environment) -> None:
    account = Account(prod, failing={"GetCallerIdentity": "ExpiredToken"})
    found = account.findings()
    assert Counter(finding.verdict for finding in found.values()) == {"FAIL": 1, "SKIP": len(found) - 1}
    expect(found["credentials"], "FAIL", "ExpiredToken: ", "aws sso login")
    expect(found["zones"], "SKIP", "not checked: see credentials")
    assert account.actions == ["sts:GetCallerIdentity"]


@pytest.mark.parametrize(
    ("status", "fact", "fix"),
    [
        (None, "AWS has no such region", "cluster.region"),
        ("not-opted-in", "not enabled for the account", "aws account enable-region --region-name us-west-2"),
    ],
)
def test_missing_region_fails_once_and_stops_the_rest(
    prod: Environment, status: str | None, fact: str, fix: str
) -> None:
    account = Account(prod, region=status)
    found = account.findings()
    verdicts = Counter(finding.verdict for finding in found.values())
    assert verdicts == {"PASS": 1, "FAIL": 1, "SKIP": len(found) - 2}
    expect(found["region us-west-2"], "FAIL", fact, fix)
    expect(found["zones"], "SKIP", "not checked: see region us-west-2")
    assert account.actions == ["sts:GetCallerIdentity", "ec2:DescribeRegions"]


PLAIN, OLD = {"name": "a", "machine": "m6i.xlarge", "nodes": 1}, {"InstanceType": "p3.2xlarge"}
IN_A_VPC = parse(
    small(
        PLAIN,
        network={
            "vpc": VPC,
            "subnets": {one["AvailabilityZone"]: one["SubnetId"] for one in map(subnet, "abc")},
        },
        endpoint={"reached_by": "network"},
        images={"al2023": "al2023@v20260801"},
    )
)
OF_A_VPC = ("DescribeVpcAttribute", "DescribeSubnets", "DescribeRouteTables", "DescribeVpcEndpoints")
ROLE_ENTRY = f"arn:aws:iam::{ACCOUNT}:role/ci/maker"


def actions_of(prod: Environment) -> dict[str, str]:
    """IAM's actions of the preflight by operation, of good accounts and worse ones."""
    accounts = (
        Account(IN_A_VPC, tables=[route_table()]),
        Account(prod, quota=None, entries=[ROLE_ENTRY], instances=[OLD]),
        Account(prod, instances=[OLD]),
        Account(parse(small(PLAIN, images={"al2023": "ami-01234567"}))),
    )
    asked = [action for account in accounts for _ in [account.findings()] for action in account.actions]
    return {action.partition(":")[2]: action.replace("service-quotas", "servicequotas") for action in asked}


def test_a_missing_permission_is_named_and_is_neither_failed_nor_passed(prod: Environment) -> None:
    actions = actions_of(prod)
    assert len(actions) == 21
    for operation, action in actions.items():
        if operation in ("GetCallerIdentity", "DescribeImages", "GetAWSDefaultServiceQuota"):
            continue
        account = Account(
            IN_A_VPC if operation in OF_A_VPC else prod, denied={operation}, entries=[ROLE_ENTRY]
        )
        if operation == "DescribeVpcEndpoints":
            account.tables = [route_table()]
        found = list(account.findings().values())
        told = [one for one in found if one.fact == f"not checked: the caller has no permission for {action}"]
        assert {one.verdict for one in told} == {"SKIP"}, operation
        assert not [one for one in found if one.verdict == "FAIL"], operation


def test_throttling_is_no_failure(prod: Environment) -> None:
    account = Account(prod, failing={"DescribeAddonVersions": "ThrottlingException"})
    fact = "not checked: eks:DescribeAddonVersions: ThrottlingException"
    expect(account.findings()["add-on coredns"], "SKIP", fact)


def test_the_policy_of_previews_allows_what_is_asked(prod: Environment) -> None:
    allowed = {action for one in policies(prod)["preview"]["Statement"] for action in one["Action"]}
    asked = {*actions_of(prod).values()}
    assert asked - allowed == {"sts:GetCallerIdentity"}  # this call cannot be denied


def test_every_command_is_one_of_aws_with_its_region(prod: Environment) -> None:
    """Services, operations and options as in botocore's models, the source of the AWS command line."""
    p6 = {"name": "p6", "machine": "p6-b200.48xlarge", "elastic": {"max": {"cpu": 192}}, "capacity": ["spot"]}
    accounts = (
        Account(prod, quota=0, roles=(), region="not-opted-in", reservations=[], instances=[OLD]),
        Account(prod, quota=0, roles=()),
        Account(parse(small(p6))),
    )
    found = [one for account in accounts for one in account.findings().values()]
    session, seen, of_the_cli = botocore.session.get_session(), set(), {"region", "query", "output"}
    for command in (text for one in found for text in (one.check, one.fix) if text.startswith("aws ")):
        _, service, operation, *rest = shlex.split(command)
        if (service, operation) == ("account", "enable-region"):
            assert rest == ["--region-name", "us-west-2"]
            continue
        model = session.get_service_model(service)
        names = {xform_name(name, "-"): name for name in model.operation_names}
        members = model.operation_model(names[operation]).input_shape.members
        known = {xform_name(name, "-") for name in members} | of_the_cli
        options = {word.removeprefix("--") for word in rest if word.startswith("--")}
        assert options <= known, command
        assert service == "iam" or "region" in options, command
        seen.add((service, operation))
    assert len(seen) >= 14


def test_home_region_is_enabled_in_every_account() -> None:
    homes = {"us-west-2": "us-east-1", "cn-northwest-1": "cn-north-1", "us-gov-east-1": "us-gov-west-1"}
    assert {region: home_region(region) for region in homes} == homes


_SSO = """\
[profile sso]
sso_session = s
sso_account_id = 111111111111
sso_role_name = r
[sso-session s]
sso_region = us-east-1
sso_start_url = https://example.org/start
"""


@pytest.mark.parametrize(
    ("profile", "config", "fact", "fix"),
    [
        ("typo", _SSO, r"profile \(typo\) could not be found",
         r"set AWS_PROFILE .*list-profiles.*now: sso\)"),
        ("sso", _SSO, "Token for s does not exist", "aws sso login --profile sso"),
        ("", "", "Unable to locate credentials", "set AWS_PROFILE, or: aws sso login --profile default"),
        ("", "no section", "Unable to parse config file", "AWS_CONFIG_FILE"),
    ],
)  # fmt: skip
def test_unusable_credentials_are_one_finding_with_a_remedy(
    prod: Environment,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    profile: str,
    config: str,
    fact: str,
    fix: str,
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    if profile:
        monkeypatch.setenv("AWS_PROFILE", profile)
    found = {finding.subject: finding for finding in checks(prod, Paths.here(), "aws-prod")}
    assert Counter(finding.verdict for finding in found.values()) == {"FAIL": 1, "SKIP": len(found) - 1}
    assert re.search(fact, found["credentials"].fact)
    assert re.search(fix, found["credentials"].fix)


def test_all_pages_are_read_and_no_question_is_asked_twice() -> None:
    client = real_client("ec2", "us-west-2")
    with Stubber(client) as stub:
        for number, token in ((1, {"NextToken": "x"}), (2, {})):
            instances = [{"InstanceType": "p5.48xlarge"}] * number
            stub.add_response("describe_instances", {"Reservations": [{"Instances": instances}], **token})
        aws = Aws("us-west-2", lambda service, region: client)
        for _ in range(2):
            found = aws.query("ec2", "describe_instances")["Reservations"]
            assert [len(batch["Instances"]) for batch in found] == [1, 2]
        stub.assert_no_pending_responses()
    assert aws.actions == {"ec2:DescribeInstances"}


def test_without_botocore_nothing_is_asked_and_nothing_fails(
    prod: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuform.stack.preflight.check.find_spec", lambda name: None)
    found = list(checks(prod, Paths.here(), "aws-prod"))
    assert {one.verdict for one in found} == {"SKIP"}
    assert found[0].fact == "not checked: botocore is not installed: pip install 'gpuform[aws]'"

"""Whether a killed run's pending resource exists at AWS: every type of our program, in moto or stubs."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.stub import Stubber

from gpuform.checkout.errors import Failure
from gpuform.clients.aws import api
from gpuform.clouds.aws.lookups import LOOKUPS
from gpuform.clouds.aws.recover import AwsRecovery
from gpuform.engine.pending import Operation
from tests.clouds.aws import seeded
from tests.clouds.aws.seeded import NAMED, PARTS, REGION, TAGGED, TAGS, Seed
from tests.components.aws_stacks import ROOT
from tests.stack.recover.conftest import _clients, _once

pytestmark = pytest.mark.tools
__all__ = ["_clients", "_once"]
RECOVERY = AwsRecovery()

PROVIDER = "urn:pulumi:labs::gpuform::pulumi:providers:aws::labs-aws"
DEFAULT_TAGS = '{"tags": {"gpuform.io/environment": "labs"}}'
MADE_BY = {"urn": PROVIDER, "id": "1", "type": "pulumi:providers:aws"}
STATE: dict[str, Any] = {
    "deployment": {"resources": [{**MADE_BY, "inputs": {"region": REGION, "defaultTags": DEFAULT_TAGS}}]}
}
Call = tuple[str, dict[str, Any], dict[str, Any] | None]
P_1 = {"GroupName": "p-1", "State": "available", "Tags": seeded.pairs(TAGS)}
ROLE = "arn:aws:iam::123456789012:role/n"
TAGGED_P_1 = [
    {"Name": "group-name", "Values": ["p-1"]},
    {"Name": "tag:gpuform.io/environment", "Values": ["labs"]},
    {"Name": "tag:Name", "Values": ["labs"]},
]
POLICY = "arn:aws:eks::aws:x"
OF_P = {"clusterName": "labs", "principalArn": "p"}
FOUND = {"associatedAccessPolicies": [{"policyArn": "other"}, {"policyArn": POLICY}]}
STUBBED: dict[str, tuple[dict[str, Any], list[Call], str]] = {
    "aws:ec2/placementGroup:PlacementGroup": (
        {"name": "p-1"},
        [("describe_placement_groups", {"PlacementGroups": [P_1]}, {"Filters": TAGGED_P_1})],
        "p-1",
    ),
    "aws:eks/addon:Addon": (
        {"clusterName": "labs", "addonName": "coredns"},
        [("describe_addon", {"addon": {"addonName": "coredns", "tags": TAGS}}, None)],
        "labs:coredns",
    ),
    "aws:eks/accessEntry:AccessEntry": (
        {"clusterName": "labs", "principalArn": ROLE},
        [("describe_access_entry", {"accessEntry": {"principalArn": ROLE, "tags": TAGS}}, None)],
        f"labs:{ROLE}",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        {**OF_P, "policyArn": POLICY},
        [("list_associated_access_policies", FOUND, OF_P)],
        f"labs#p#{POLICY}",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        {"clusterName": "labs", "namespace": "kube-system", "serviceAccount": "karpenter"},
        [
            ("list_pod_identity_associations", {"associations": [{"associationId": "a-1"}]}, None),
            ("describe_pod_identity_association", {"association": {"tags": TAGS}},
             {"clusterName": "labs", "associationId": "a-1"}),
        ],
        "labs,a-1",
    ),
}  # fmt: skip
"""Inputs, calls with answer and parameters (None: the inputs), and import id."""


def operation(type: str, inputs: dict[str, Any]) -> Operation:
    resource = {
        "urn": f"urn:pulumi:labs::gpuform::{type}::it",
        "type": type,
        "inputs": {**inputs, "tags": {"Name": "labs"}},
        "provider": f"{PROVIDER}::1",
    }
    return Operation("creating", resource)


@pytest.mark.parametrize(("type", "seed"), {**TAGGED, **NAMED, **PARTS}.items())
def test_what_was_made_is_imported_and_what_was_not_is_cleared(moto: str, type: str, seed: Seed) -> None:
    inputs, id = seed(TAGS)
    step = RECOVERY.lookup(operation(type, inputs), STATE)
    assert (step.does, step.id) == ("import", id)
    elsewhere = {
        key: f"{value}0" if key not in ("routeTableId", "vpcId", "securityGroupId") else value
        for key, value in inputs.items()
    }
    other = operation(type, elsewhere)
    other.resource["inputs"]["tags"] = {"Name": "another"}  # type: ignore[index]
    assert RECOVERY.lookup(other, STATE).does == "clear"


@pytest.mark.parametrize(("type", "seed"), TAGGED.items())
def test_what_does_not_carry_our_tags_is_not_seen(moto: str, type: str, seed: Seed) -> None:
    inputs, _ = seed({**TAGS, "gpuform.io/environment": "production"})
    assert RECOVERY.lookup(operation(type, inputs), STATE).does == "clear"


@pytest.mark.parametrize(("type", "seed"), NAMED.items())
def test_what_has_the_name_alone_is_left_to_its_owner(moto: str, type: str, seed: Seed) -> None:
    inputs, id = seed({"team": "other"})
    step = RECOVERY.lookup(operation(type, inputs), STATE)
    assert (step.does, step.id) == ("leave", None)
    assert f"{id} exists but does not have our tags" in step.why


@pytest.mark.parametrize(("type", "case"), STUBBED.items())
def test_what_moto_does_not_know(type: str, case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, answers, id = case
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = api.create_client(LOOKUPS[type].call.name.split(".")[0], REGION)
    monkeypatch.setattr(api, "create_client", lambda service, region: client)
    with Stubber(client) as stubbed:
        for call, answer, asked in answers:
            stubbed.add_response(call, answer, asked or inputs)
        step = RECOVERY.lookup(operation(type, inputs), STATE)
        stubbed.assert_no_pending_responses()
        assert (step.does, step.id) == ("import", id)
        for code in LOOKUPS[type].missing:
            stubbed.add_client_error(answers[0][0], code)
            assert RECOVERY.lookup(operation(type, inputs), STATE).does == "clear"


def test_two_that_could_be_it_are_both_named_and_none_is_chosen(moto: str) -> None:
    one, other = seeded.vpc(TAGS)[1], seeded.vpc(TAGS)[1]
    with pytest.raises(Failure, match="could be any of") as caught:
        RECOVERY.lookup(operation("aws:ec2/vpc:Vpc", {}), STATE)
    assert one in str(caught.value)
    assert other in str(caught.value)


def test_what_the_state_has_is_not_what_is_missing(moto: str) -> None:
    known, missing = seeded.vpc(TAGS)[1], seeded.vpc(TAGS)[1]
    have = {"urn": "u", "type": "aws:ec2/vpc:Vpc", "id": known}
    state = {"deployment": {"resources": [*STATE["deployment"]["resources"], have]}}
    assert RECOVERY.lookup(operation("aws:ec2/vpc:Vpc", {}), state).id == missing


def test_a_key_that_is_going_is_none(moto: str) -> None:
    going = seeded.key(TAGS)[1]
    api.create_client("kms", REGION).schedule_key_deletion(KeyId=going)
    assert RECOVERY.lookup(operation("aws:kms/key:Key", {}), STATE).does == "clear"


def test_a_type_without_a_row_is_named_with_the_way_on() -> None:
    step = RECOVERY.lookup(operation("aws:rds/instance:Instance", {}), STATE)
    assert step.does == "leave"
    assert step.why.endswith("look it up, then --import it=ID or --clear it")


def test_without_a_tag_of_ours_nothing_is_taken_for_ours(moto: str) -> None:
    seeded.vpc({"Name": "labs"})
    one = operation("aws:ec2/vpc:Vpc", {})
    one.resource["provider"] = ""  # type: ignore[index]
    one.resource["inputs"]["region"] = REGION
    step = RECOVERY.lookup(one, STATE)
    assert (step.does, "gpuform.io/environment" in step.why) == ("leave", True)


def test_credentials_of_another_account_end_it(moto: str) -> None:
    arn = "arn:aws:sqs:us-west-2:210987654321:labs"
    queue = {"urn": "u", "type": "aws:sqs/queue:Queue", "outputs": {"arn": arn}}
    with pytest.raises(Failure, match="is in account 210987654321, but the credentials are for account 1234"):
        RECOVERY.require_account("labs", {"deployment": {"resources": [queue]}})
    RECOVERY.require_account("labs", STATE)


def test_every_type_that_the_program_makes_has_a_row() -> None:
    """Read from the components themselves, so that a new resource type needs a row."""
    import importlib
    import re

    made = set()
    for file in (ROOT / "components").glob("*.py"):
        text = file.read_text()
        found = re.search(r"from pulumi_aws import (.*)", text)
        for module in (name.strip() for name in found[1].split(",")) if found else ():
            sdk = importlib.import_module(f"pulumi_aws.{module}")
            for name in set(re.findall(rf"\b{module}\.([A-Z]\w+)\(", text)):
                if not name.endswith("Args"):
                    made.add(getattr(sdk, name).pulumi_type)
    assert len(made) > 25
    assert made == set(LOOKUPS)

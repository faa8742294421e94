"""Whether a killed run's pending resource exists at AWS: every type of our program, in moto or stubs."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
from botocore.stub import Stubber

from gpuform.checkout.errors import Failure
from gpuform.clients.aws import api
from gpuform.clouds.aws.lookups import LOOKUPS
from gpuform.clouds.aws.recover import AwsRecovery
from gpuform.engine.pending import Operation
from tests.build.aws_stacks import ROOT
from tests.clouds.aws import seeded
from tests.clouds.aws.seeded import NAMED, PARTS, REGION, TAGGED, TAGS, Seed
from tests.stack.recover.conftest import _clients, _once

pytestmark = pytest.mark.tools
__all__ = ["_clients", "_once"]
RECOVERY = AwsRecovery()

PROVIDER = "urn:pulumi:labs::gpuform::pulumi:providers:aws::labs-aws"
DEFAULT_TAGS = '{"tags": {"gpuform.io/environment": "labs"}}'
PROVIDERS: dict[str, Any] = {
    "urn": PROVIDER, "id": "1", "type": "pulumi:providers:aws",
    "inputs": {"region": REGION, "defaultTags": DEFAULT_TAGS},
}  # fmt: skip
STATE = {"deployment": {"resources": [PROVIDERS]}}
VPC = "aws:ec2/vpc:Vpc"
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
        [("describe_placement_groups", {"PlacementGroups": [P_1]}, {"Filters": TAGGED_P_1})], "p-1",
    ),
    "aws:eks/addon:Addon": (
        {"clusterName": "labs", "addonName": "coredns"},
        [("describe_addon", {"addon": {"addonName": "coredns", "tags": TAGS}}, None)], "labs:coredns",
    ),
    "aws:eks/accessEntry:AccessEntry": (
        {"clusterName": "labs", "principalArn": ROLE},
        [("describe_access_entry", {"accessEntry": {"principalArn": ROLE, "tags": TAGS}}, None)],
        f"labs:{ROLE}",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        {**OF_P, "policyArn": POLICY}, [("list_associated_access_policies", FOUND, OF_P)], f"labs#p#{POLICY}",
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


def operation(
    type: str, inputs: dict[str, Any], name: str = "labs", provider: str = f"{PROVIDER}::1"
) -> Operation:
    urn, tagged = f"urn:pulumi:labs::gpuform::{type}::it", {**inputs, "tags": {"Name": name}}
    return Operation("creating", {"urn": urn, "type": type, "inputs": tagged, "provider": provider})


@pytest.mark.parametrize(("type", "seed"), {**TAGGED, **NAMED, **PARTS}.items())
def test_created_resource_is_imported_and_a_missing_one_cleared(moto: str, type: str, seed: Seed) -> None:
    inputs, id = seed(TAGS)
    step = RECOVERY.lookup(operation(type, inputs), STATE)
    assert (step.does, step.id) == ("import", id)
    kept = ("routeTableId", "vpcId", "securityGroupId")
    elsewhere = {key: value if key in kept else f"{value}0" for key, value in inputs.items()}
    assert RECOVERY.lookup(operation(type, elsewhere, "another"), STATE).does == "clear"


@pytest.mark.parametrize(("type", "seed"), TAGGED.items())
def test_resource_without_our_tags_is_cleared(moto: str, type: str, seed: Seed) -> None:
    inputs, _ = seed({**TAGS, "gpuform.io/environment": "production"})
    assert RECOVERY.lookup(operation(type, inputs), STATE).does == "clear"


@pytest.mark.parametrize(("type", "seed"), NAMED.items())
def test_resource_with_only_our_name_is_left(moto: str, type: str, seed: Seed) -> None:
    inputs, id = seed({"team": "other"})
    step = RECOVERY.lookup(operation(type, inputs), STATE)
    assert (step.does, step.id) == ("leave", None)
    assert f"{id} exists but does not have our tags" in step.why


@pytest.mark.parametrize(("type", "case"), STUBBED.items())
def test_resource_of_a_stubbed_service_is_imported_or_cleared(
    type: str, case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_ambiguous_resources_are_named_and_none_is_chosen(moto: str) -> None:
    one, other = seeded.vpc(TAGS)[1], seeded.vpc(TAGS)[1]
    with pytest.raises(Failure, match=f"could be any of ({one} and {other}|{other} and {one})"):
        RECOVERY.lookup(operation(VPC, {}), STATE)


def test_resource_in_the_state_is_no_candidate(moto: str) -> None:
    known, missing = seeded.vpc(TAGS)[1], seeded.vpc(TAGS)[1]
    state = {"deployment": {"resources": [PROVIDERS, {"urn": "u", "type": VPC, "id": known}]}}
    assert RECOVERY.lookup(operation(VPC, {}), state).id == missing


def test_key_pending_deletion_does_not_exist(moto: str) -> None:
    going = seeded.key(TAGS)[1]
    api.create_client("kms", REGION).schedule_key_deletion(KeyId=going)
    assert RECOVERY.lookup(operation("aws:kms/key:Key", {}), STATE).does == "clear"


def test_unknown_type_is_left_with_a_remedy() -> None:
    step = RECOVERY.lookup(operation("aws:rds/instance:Instance", {}), STATE)
    assert step.does == "leave"
    assert step.why.endswith("look it up, then --import it=ID or --clear it")


def test_untagged_operation_is_left(moto: str) -> None:
    seeded.vpc({"Name": "labs"})
    step = RECOVERY.lookup(operation(VPC, {"region": REGION}, provider=""), STATE)
    assert (step.does, "gpuform.io/environment" in step.why) == ("leave", True)


def test_credentials_of_another_account_end_it(moto: str) -> None:
    arn = "arn:aws:sqs:us-west-2:210987654321:labs"
    queue = {"urn": "u", "type": "aws:sqs/queue:Queue", "outputs": {"arn": arn}}
    with pytest.raises(Failure, match="is in account 210987654321, but the credentials are for account 1234"):
        RECOVERY.require_account("labs", {"deployment": {"resources": [queue]}})
    RECOVERY.require_account("labs", STATE)


def test_every_type_that_the_program_makes_has_a_row() -> None:
    """Read from the components themselves, so that a new resource type needs a row."""
    made = set[str]()
    for file in (ROOT / "components").glob("*.py"):
        text = file.read_text()
        made |= set(re.findall(r'"(aws:\w+/\w+:\w+)"', text))
        for place, names in re.findall(r"from (pulumi_aws\S*) import (.*)", text):
            for name in names.split(", "):
                found = getattr(importlib.import_module(place), name)  # a class, or a module of classes
                prefix = rf"{name}\." if inspect.ismodule(found) else ""
                for used in re.findall(rf"(?<!\.)\b{prefix}([A-Z]\w+)\(", text):
                    one = getattr(found, used, None) if prefix else found if used == name else None
                    if token := getattr(one, "pulumi_type", None):
                        made.add(token)
    assert len(made) > 25
    assert made == set(LOOKUPS)

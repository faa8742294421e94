"""Policies of the roles on AWS: for what the program creates, no more, and for the stack's own resources."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
import pytest
import yaml

from gpuform.clouds.aws.lookups import LOOKUPS
from infra.config import parse
from infra.plan import accounts
from policies.pack import RULES
from policies.rule import Resource, judge
from tests.build.aws_stacks import ROOT, small, stack
from tests.fakes.recorder import Recorder, record_once

pytestmark = pytest.mark.unit

VPC = {
    "vpc": "vpc-0a1b2c3d",
    "subnets": {"us-west-2a": "subnet-0a1b2c3d", "us-west-2b": "subnet-0b1b2c3d"},
}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "aws-dev": stack("aws-dev"),
    "aws-prod": stack("aws-prod"),
    **{
        path.stem: yaml.safe_load(path.read_text())["config"]["gpuform:environment"]
        for path in sorted((ROOT / "docs/examples").glob("aws-*.yaml"))
    },
}
POOL = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}
READERS = {"resourcegroupstaggingapi": "tag"}
"""Services with another name in IAM (Service Authorization Reference)."""


@cache
def recorded(name: str) -> Recorder:
    return record_once(ENVIRONMENTS[name])


@cache
def documents(name: str) -> dict[str, Any]:
    return accounts.policies(parse(ENVIRONMENTS[name]))


def statements(name: str, *kinds: str) -> Iterator[Mapping[str, Any]]:
    for kind, document in documents(name).items():
        if not kinds or kind in kinds:
            yield from document["Statement"]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_type_of_the_program_has_its_rights_and_no_other_type(name: str) -> None:
    rows = accounts.resource_types(parse(ENVIRONMENTS[name]))
    created = {item.type for item in recorded(name).resources if item.type.startswith("aws:")}
    assert {type_ for types in rows.values() for type_ in types} == created


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_policy_pack_accepts_each_and_iam_its_size(name: str) -> None:
    for kind, document in documents(name).items():
        policy = Resource("aws:iam/policy:Policy", kind, {"policy": json.dumps(document)})
        assert [found.fact for found in judge(RULES, [policy])] == []
        assert len(json.dumps(document, separators=(",", ":"))) <= accounts.MAX_CHARACTERS


def test_every_action_is_one_of_aws() -> None:
    """An operation of botocore's models, or a right without an operation."""
    session = botocore.session.get_session()
    services = {"tag": "resourcegroupstaggingapi", "servicequotas": "service-quotas"}
    actions = {action for name in ENVIRONMENTS for one in statements(name) for action in one["Action"]}
    for action in actions - {"iam:PassRole"}:
        service, operation = action.split(":")
        model = session.get_service_model(services.get(service, service))
        assert operation in model.operation_names, action


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_preview_changes_nothing_and_reads_no_secret(name: str) -> None:
    (everything, images) = statements(name, "preview")
    assert {re.match(r"\w+:(Describe|Get|List)", action) is not None for action in everything["Action"]} == {
        True
    }
    assert not {
        action for action in everything["Action"] if action.startswith(("ssm:", "s3:", "secretsmanager:"))
    }
    assert images["Resource"].endswith(":parameter/aws/service/*")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_names_of_roles_and_policies_are_among_those_allowed(name: str) -> None:
    """The engine appends a dash and seven characters to a name that it makes."""
    program = recorded(name)
    roles, policies, attached = (
        allowed(name, "iam:PassRole"),
        allowed(name, "iam:CreatePolicy"),
        attachable(name),
    )
    for role in program.of("aws:iam/role:Role"):
        assert matches(f"arn:aws:iam::1:role/{physical(role.name, role.inputs)}", roles), role.name
    for policy in program.of("aws:iam/policy:Policy"):
        arn = f"arn:aws:iam::1:policy/{physical(policy.name, policy.inputs)}"
        assert matches(arn, policies), arn
        assert matches(arn, attached), arn
    for arn in managed(program):
        assert arn in attached


def physical(name: str, inputs: Mapping[str, Any]) -> str:
    return str(inputs.get("name") or f"{name}-0123456")


def allowed(name: str, action: str) -> list[str]:
    found = [one["Resource"] for one in statements(name) if action in one["Action"]]
    return [arn for arns in found for arn in ([arns] if isinstance(arns, str) else arns)]


def attachable(name: str) -> list[str]:
    (found,) = (one["Condition"] for one in statements(name) if "iam:AttachRolePolicy" in one["Action"])
    return list(found["ArnLike"]["iam:PolicyARN"])


def managed(program: Recorder) -> set[str]:
    """AWS's policies that the program attaches."""
    arns = {
        str(item.inputs["policyArn"])
        for item in program.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    }
    return {arn for arn in arns if "::aws:policy/" in arn}


def matches(arn: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(arn, pattern) for pattern in patterns)


def test_in_an_existing_vpc_none_is_made_or_deleted() -> None:
    document = accounts.policies(parse(small(POOL, network=VPC)))
    assert "up-network" not in document
    text = json.dumps(document)
    assert "ec2:DeleteVpc" not in text
    assert "ec2:RunInstances" in text


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1"])
def test_arns_are_of_the_regions_partition(region: str) -> None:
    network = {"cidr": "10.20.0.0/16", "zones": [f"{region}a", f"{region}b"]}
    text = json.dumps(accounts.policies(parse(small(POOL, region=region, network=network))))
    assert "arn:aws:" not in text


def test_what_recover_asks_is_allowed() -> None:
    calls = [call.name for row in LOOKUPS.values() for call in (row.call, row.details) if call]
    session, (reading, _) = botocore.session.get_session(), statements("aws-prod", "preview")
    for service, method in (call.split(".") for call in calls):
        model = session.get_service_model(service)
        names = {botocore.xform_name(name): name for name in model.operation_names}
        assert f"{READERS.get(service, service)}:{names[method]}" in reading["Action"], method

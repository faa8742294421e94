"""The table against the SDK that programs use and the API models that AWS publishes."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from pulumi import _types

from gpuform.checkout.errors import OperationError
from gpuform.provider.properties import UNKNOWN, has_unknown
from lab.offline.aws.outputs import Settings
from lab.offline.aws.provider import ROWS, row
from lab.offline.aws.requests import Requests
from tests.lab.offline.aws.conftest import call, check, diff, handler, make

pytestmark = pytest.mark.unit


class Example(NamedTuple):
    good: dict[str, Any]
    bad: dict[str, Any]
    reason: str
    path: str = ""


FOUND = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text())
VPC, CLUSTER, GROUP = "aws:ec2/vpc:Vpc", "aws:eks/cluster:Cluster", "aws:ec2/placementGroup:PlacementGroup"
EXAMPLES = {token: Example(**row) for token, row in FOUND.items() if token != "role"}


def sdk_class(token: str, suffix: str = "") -> Any:
    module, name = token.split(":")[1].split("/")[0], token.rsplit(":", 1)[-1]
    return getattr(importlib.import_module(f"pulumi_aws.{module}"), name + suffix)


def test_every_type_has_an_example() -> None:
    assert set(EXAMPLES) == set(ROWS)


@pytest.mark.parametrize("token", ROWS)
def test_the_table_knows_the_inputs_and_outputs_of_the_sdk(token: str) -> None:
    entry = ROWS[token]
    assert sdk_class(token).pulumi_type == token
    inputs = set(_types.input_type_py_to_pulumi_names(sdk_class(token, "Args")).values())
    known = set(_types.resource_py_to_pulumi_names(sdk_class(token)).values())
    assert (entry.regional, entry.tagged) == ("region" in inputs, "tags" in inputs)
    assert {*entry.outputs, *entry.defaults} <= known
    named = {name.removesuffix("-").split(".")[0] for name in (*entry.replaces, *entry.parameters)}
    assert named | set(entry.documents) <= inputs
    for name in filter(entry.is_sent, inputs):
        if place := Requests(entry).find_parameter(name):
            assert Requests(entry)._shape(*place) is not None


@pytest.mark.parametrize(("token", "example"), EXAMPLES.items(), ids=EXAMPLES)
def test_the_least_is_enough(token: str, example: Example) -> None:
    assert not check(token, example.good).failures
    id, outputs = make(token, example.good)
    assert id
    assert not has_unknown(outputs)
    assert "{" not in id
    assert (id, outputs) == make(token, example.good), "the same inputs, the same answer"


@pytest.mark.parametrize(("token", "example"), EXAMPLES.items(), ids=EXAMPLES)
def test_one_thing_that_aws_refuses(token: str, example: Example) -> None:
    failures = dict(check(token, {**example.good, **example.bad}).failures)
    assert example.reason in failures[example.path or next(iter(example.bad))]


@pytest.mark.parametrize(("token", "example"), EXAMPLES.items(), ids=EXAMPLES)
def test_a_preview_does_not_know_what_aws_decides(token: str, example: Example) -> None:
    id, outputs = make(token, example.good, preview=True)
    assert id == ""
    given = {*example.good, *ROWS[token].defaults, ROWS[token].name_input}
    for name in set(ROWS[token].outputs) - given:
        assert outputs[name] is UNKNOWN


def test_what_the_sdk_lacks_is_refused() -> None:
    ((path, fact),) = check(VPC, {**EXAMPLES[VPC].good, "colour": "blue"}).failures
    place = "has no place in the table of offline runs, and ec2.CreateVpc no parameter of this name"
    assert (path, fact) == ("colour", place)


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (token, entry)
        for token, line in ROWS.items()
        for entry in line.replaces
        if "." not in entry and not entry.endswith("-") and not entry.endswith("Prefix")
    ],
)
def test_what_aws_cannot_change_replaces(token: str, name: str) -> None:
    """An unknown value fits any type; it may differ, so it replaces as well."""
    good = EXAMPLES[token].good
    assert name in diff(token, good, {**good, name: UNKNOWN}).replaces


CHANGES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    (VPC, {"tags": {"a": "b"}}, ["tags", "tagsAll"], []),
    (CLUSTER, {"version": "1.34"}, ["version"], []),
    (CLUSTER, {"deletionProtection": True}, ["deletionProtection"], []),
    (CLUSTER, {"accessConfig": {"bootstrapClusterCreatorAdminPermissions": False}}, ["accessConfig"], []),
    ("aws:eks/nodeGroup:NodeGroup", {"scalingConfig": {"minSize": 1}}, ["scalingConfig.minSize"], []),
    ("aws:eks/nodeGroup:NodeGroup", {"amiType": "AL2023_x86_64_NVIDIA"}, ["amiType"], ["amiType"]),
    ("aws:iam/role:Role", {"description": "d"}, ["description"], []),
    ("aws:iam/policy:Policy", {"description": "d"}, ["description"], ["description"]),
]


@pytest.mark.parametrize(("token", "new", "changed", "replaces"), CHANGES)
def test_changes_by_path(token: str, new: dict[str, Any], changed: list[str], replaces: list[str]) -> None:
    good = EXAMPLES[token].good
    result = diff(token, good, {**good, **new})
    assert list(result.changes) == changed
    assert list(result.replaces) == replaces


def test_no_change_is_none() -> None:
    for token, example in EXAMPLES.items():
        assert not diff(token, example.good, example.good).changes, token


def test_a_block_that_cannot_be_taken_away() -> None:
    good = EXAMPLES[CLUSTER].good
    key = "arn:aws:kms:eu-central-1:123456789012:key/k"
    encrypted = {**good, "encryptionConfig": {"provider": {"keyArn": key}, "resources": ["secrets"]}}
    assert not diff(CLUSTER, good, encrypted).replaces
    assert diff(CLUSTER, encrypted, good).replaces == ["encryptionConfig"]


def test_default_tags_and_region_of_the_provider_reach_every_resource() -> None:
    good = EXAMPLES[VPC].good
    tags = diff(VPC, good, good, Settings("eu-central-1", {"owner": "hpc"}))
    assert list(tags.changes) == ["tagsAll"]
    assert not tags.replaces
    moved = diff(VPC, good, good, Settings("eu-west-1", {"owner": "ml"}))
    assert list(moved.replaces) == ["region"]


def test_a_chosen_name_is_freed_before_the_new_object_takes_it() -> None:
    for name in ({"name": "pg"}, {}):
        result = diff(GROUP, {"strategy": "cluster", **name}, {"strategy": "spread", **name})
        assert (list(result.replaces), result.delete_before_replace) == (["strategy"], bool(name))


def test_a_launch_template_counts_its_versions() -> None:
    token = "aws:ec2/launchTemplate:LaunchTemplate"
    template = handler(token)
    old = check(token, {"imageId": "ami-1"}).inputs
    id, outputs = asyncio.run(template.create(call(token), old))
    assert (outputs["latestVersion"], outputs["defaultVersion"]) == (1, 1)
    new = {**old, "imageId": "ami-2", "updateDefaultVersion": True}
    planned = asyncio.run(template.update(call(token, preview=True), id, old, outputs, new))
    assert planned["latestVersion"] is UNKNOWN
    assert planned["arn"] == outputs["arn"]
    done = asyncio.run(template.update(call(token), id, old, outputs, new))
    assert (done["latestVersion"], done["defaultVersion"]) == (2, 2)
    tagged = asyncio.run(template.update(call(token), id, new, done, {**new, "tags": {"a": "b"}}))
    assert tagged["latestVersion"] == 2


def test_what_is_guarded_is_not_deleted() -> None:
    message = "x: deletionProtection is on, so AWS does not delete it; turn it off"
    with pytest.raises(OperationError, match=message):
        asyncio.run(handler(CLUSTER).delete(call(CLUSTER), "c", {}, {"deletionProtection": True}))


def test_a_type_that_is_not_there_names_those_that_are() -> None:
    message = r"aws:sns/topic:Topic: the offline stand-in .* \(it knows AccessEntry, "
    with pytest.raises(OperationError, match=message):
        row("aws:sns/topic:Topic")


def test_policies_may_be_objects() -> None:
    assert not check("aws:iam/policy:Policy", {"policy": {"Version": "2012-10-17", "Statement": []}}).failures

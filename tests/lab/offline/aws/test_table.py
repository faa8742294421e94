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
from gpuform.provider.handler import Call, CheckResult, DiffResult, Engine
from gpuform.provider.properties import UNKNOWN, has_unknown
from lab.offline.aws.outputs import Settings
from lab.offline.aws.provider import ROWS, row
from lab.offline.aws.requests import Requests
from lab.offline.aws.resource import OfflineResource

pytestmark = pytest.mark.unit


class Example(NamedTuple):
    good: dict[str, Any]
    bad: dict[str, Any]
    reason: str
    path: str = ""


FOUND = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text())
EXAMPLES = {token: Example(**row) for token, row in FOUND.items() if token != "role"}

SETTINGS = Settings("eu-central-1", {"owner": "ml"})


def call(token: str, *, preview: bool = False) -> Call:
    return Call(f"urn:pulumi:s::p::{token}::x", token, "x", Engine(), asyncio.Event(), preview=preview)


def handler(token: str, settings: Settings = SETTINGS) -> OfflineResource:
    return OfflineResource(ROWS[token], settings)


def check(token: str, inputs: dict[str, Any]) -> CheckResult:
    return asyncio.run(handler(token).check(call(token), {}, inputs))


def make(token: str, inputs: dict[str, Any], *, preview: bool = False) -> tuple[str, dict[str, Any]]:
    checked = check(token, inputs)
    assert not checked.failures
    return asyncio.run(handler(token).create(call(token, preview=preview), checked.inputs))


def diff(token: str, old: dict[str, Any], new: dict[str, Any], settings: Settings = SETTINGS) -> DiffResult:
    before = check(token, old).inputs
    after = asyncio.run(handler(token).check(call(token), before, new)).inputs
    id, outputs = asyncio.run(handler(token).create(call(token), before))
    return asyncio.run(handler(token, settings).diff(call(token), id, before, outputs, after))


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
    failures = dict(check("aws:ec2/vpc:Vpc", {**EXAMPLES["aws:ec2/vpc:Vpc"].good, "colour": "blue"}).failures)
    assert failures == {
        "colour": "has no place in the table of offline runs, and ec2.CreateVpc no parameter of this name"
    }


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
    example = EXAMPLES[token]
    old = {**example.good, name: example.good.get(name, UNKNOWN)}
    if old[name] is UNKNOWN:
        del old[name]
    result = diff(token, old, {**old, name: UNKNOWN})
    assert name in result.replaces


CHANGES = [
    ("aws:ec2/vpc:Vpc", {"tags": {"a": "b"}}, ["tags", "tagsAll"], []),
    ("aws:eks/cluster:Cluster", {"version": "1.34"}, ["version"], []),
    ("aws:eks/cluster:Cluster", {"deletionProtection": True}, ["deletionProtection"], []),
    (
        "aws:eks/cluster:Cluster",
        {"accessConfig": {"bootstrapClusterCreatorAdminPermissions": False}},
        ["accessConfig"],
        [],
    ),
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
    good = EXAMPLES["aws:eks/cluster:Cluster"].good
    key = "arn:aws:kms:eu-central-1:123456789012:key/k"
    encrypted = {**good, "encryptionConfig": {"provider": {"keyArn": key}, "resources": ["secrets"]}}
    assert not diff("aws:eks/cluster:Cluster", good, encrypted).replaces
    assert diff("aws:eks/cluster:Cluster", encrypted, good).replaces == ["encryptionConfig"]


def test_default_tags_and_region_of_the_provider_reach_every_resource() -> None:
    good = EXAMPLES["aws:ec2/vpc:Vpc"].good
    tags = diff("aws:ec2/vpc:Vpc", good, good, Settings("eu-central-1", {"owner": "hpc"}))
    assert list(tags.changes) == ["tagsAll"]
    assert not tags.replaces
    moved = diff("aws:ec2/vpc:Vpc", good, good, Settings("eu-west-1", {"owner": "ml"}))
    assert list(moved.replaces) == ["region"]


def test_a_chosen_name_is_freed_before_the_new_object_takes_it() -> None:
    chosen = {"strategy": "cluster", "name": "pg"}
    assert diff(
        "aws:ec2/placementGroup:PlacementGroup", chosen, {**chosen, "strategy": "spread"}
    ).delete_before_replace
    made_up = {"strategy": "cluster"}
    other = diff("aws:ec2/placementGroup:PlacementGroup", made_up, {"strategy": "spread"})
    assert other.replaces
    assert not other.delete_before_replace


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
    token = "aws:eks/cluster:Cluster"
    with pytest.raises(
        OperationError, match="x: deletionProtection is on, so AWS does not delete it; turn it off"
    ):
        asyncio.run(handler(token).delete(call(token), "c", {}, {"deletionProtection": True}))


def test_a_type_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(
        OperationError, match=r"aws:sns/topic:Topic: the offline stand-in .* \(it knows AccessEntry, "
    ):
        row("aws:sns/topic:Topic")


def test_policies_may_be_objects() -> None:
    assert not check("aws:iam/policy:Policy", {"policy": {"Version": "2012-10-17", "Statement": []}}).failures

"""What is printed of a run: one line for each change, few for many objects, errors at the end and once."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.engine.display import Display
from gpuform.engine.events import Change, Message, Phase, Step, Violation, change_line, change_lines

pytestmark = pytest.mark.unit

URN = "urn:pulumi:local::tried::test:a:Part${}::{}"


def made(kind: str, name: str, op: str = "create", phase: Phase = "done", **inputs: Any) -> Step:
    namespace, _, short = name.rpartition("/")
    metadata = {"name": short, **({"namespace": namespace} if namespace else {})}
    return Step(op, URN.format(kind, name), phase, Change({}, {"metadata": metadata, **inputs}))


def web(before: Any, after: Any, *paths: str, op: str = "update") -> Step:
    metadata = {"name": "web", "namespace": "team"}
    change = Change({"metadata": metadata, **before}, {"metadata": metadata, **after}, paths)
    return Step(op, URN.format("kubernetes:apps/v1:Deployment", "team/web"), "done", change)


def image(name: str) -> Any:
    return {"spec": {"containers": [{"name": "web", "image": name}]}}


DATA = {f"k{number}": 1 for number in range(9)}


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (web({"replicas": 1}, {"replicas": 2}, "replicas"), "replicas 1 -> 2"),
        (web({"paused": False}, {"paused": True}, "paused"), "paused false -> true"),
        (web({}, {"paused": True}, "paused"), "paused added"),
        (web({"paused": True}, {}, "paused"), "paused removed"),
        (web(image("a:1"), image("a:2"), "spec.containers[0].image"),
         "spec.containers[web].image a:1 -> a:2"),
        (web({"a": "x" * 25}, {"a": "y"}, "a"), "a"),
        (web({"a": "1\n2"}, {"a": "y"}, "a"), "a"),
        (web({"values": {"key": "a"}}, {"values": {"key": "b"}}, "values.key"), "values.key"),
        (web({"a": "[secret]"}, {"a": "[secret]"}, "a"), "a"),
        (web({"data": {"a": 1, "b": 2, "c": 3}}, {}, "data.a", "data.b", "data.c"),
         "data.a removed, 2 more fields"),
        (web({"data": DATA}, {}, *(f"data.{key}" for key in DATA)),
         "9 fields of data"),
    ],
)  # fmt: skip
def test_an_update_names_the_fields_and_short_values(step: Step, line: str) -> None:
    assert change_line(step) == f"updated   Deployment team/web: {line}"


def test_a_secret_shows_no_value() -> None:
    change = Change({"metadata": {"name": "s"}, "data": {"a": "1"}}, {"data": {"a": "2"}}, ("data.a",))
    step = Step("update", URN.format("kubernetes:core/v1:Secret", "s"), "planned", change)
    assert change_line(step) == "update    Secret s: data.a"


def test_many_objects_are_one_line_and_the_rest_has_its_own() -> None:
    maps = [made("kubernetes:core/v1:ConfigMap", f"team/{number}") for number in range(9)]
    quotas = [made("kubernetes:core/v1:ResourceQuota", f"team/{number}") for number in range(2)]
    release = made("kubernetes:helm.sh/v3:Release", "operator")
    assert [*change_lines([*maps, release, *quotas])] == [
        "created   Release operator",
        "created   11 objects: 9 ConfigMap, 2 ResourceQuota",
    ]
    assert [*change_lines(quotas)] == ["created   ResourceQuota team/0", "created   ResourceQuota team/1"]
    vpc = Step("create", URN.format("aws:ec2/vpc:Vpc", "net"), "planned")
    assert [*change_lines([vpc])] == ["create    aws:ec2/vpc:Vpc net"]


@pytest.mark.parametrize(
    "step",
    [
        Step("same", URN.format("aws:ec2/vpc:Vpc", "net"), "done"),
        Step("create-replacement", URN.format("aws:ec2/vpc:Vpc", "net"), "done"),
        Step("create", URN.format("pulumi:providers:aws", "aws"), "done"),
        Step("create", URN.format("test:a:Part", "part"), "done", None, True),
    ],
)
def test_halves_of_a_replacement_providers_and_components_are_no_changes(step: Step) -> None:
    assert [*change_lines([step])] == []
    said: list[str] = []
    Display(said.append).take(step)
    assert said == []


def test_a_display_says_what_is_done_at_once_and_objects_and_errors_at_the_end() -> None:
    said: list[str] = []
    work: list[str] = []
    display = Display(said.append, work.append)
    vpc = URN.format("aws:ec2/vpc:Vpc", "net")
    for event in (
        Step("create", vpc, "started"),
        made("kubernetes:core/v1:Namespace", "team"),
        Message("info", "a notice"),
        Message("info", "a notice"),
        Message("error", "quota exceeded"),
        Step("create", vpc, "failed"),
        Violation("p/q", False, "no owner"),
        Violation("p/r", True, "no tags"),
        web({"replicas": 1}, {"replicas": 2}, "replicas"),
    ):
        display.take(event)
    assert work == ["create aws:ec2/vpc:Vpc net"]
    at_once = ["a notice", "warning: policy p/q: no owner", "updated   Deployment team/web: replicas 1 -> 2"]
    assert said == at_once
    display.end()
    errors = ["error: quota exceeded", "failed to create aws:ec2/vpc:Vpc net", "error: policy p/r: no tags"]
    assert said == [*at_once, "created   Namespace team", *errors]
    display.end()
    assert said == [*at_once, "created   Namespace team", *errors]

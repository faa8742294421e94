"""Events of a run: what is read, what is printed of it, and which failures are repeated with force."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import EngineFailure, Result
from gpuform.engine.events import (
    SIMULATED_NODES,
    Change,
    Display,
    Event,
    Message,
    Phase,
    Step,
    Violation,
    change_line,
    change_lines,
    format_counts,
    parse,
)
from gpuform.engine.result import conflicts, failure_reason, preview_with_pods, retry_with_force

pytestmark = pytest.mark.unit

URN = "urn:pulumi:local::tried::test:a:Outer$kubernetes:core/v1:Pod::demo/one::two"


def _step(key: str, op: str, planning: bool = False) -> str:
    return json.dumps({"sequence": 3, key: {"metadata": {"op": op, "urn": URN}, "planning": planning}})


def _diagnostic(severity: str, text: str, **more: object) -> str:
    return json.dumps({"diagnosticEvent": {"severity": severity, "message": text, "color": "never", **more}})


BROKEN = {
    "policyPackName": "p",
    "policyName": "q",
    "enforcementLevel": "mandatory",
    "message": "no",
    "resourceUrn": URN,
}


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (_step("resourcePreEvent", "create"), Step("create", URN, "started")),
        (_step("resOutputsEvent", "create"), Step("create", URN, "done")),
        (_step("resOutputsEvent", "update", True), Step("update", URN, "planned")),
        (_step("resOpFailedEvent", "delete"), Step("delete", URN, "failed")),
        (_diagnostic("error", " wrong \n", urn=URN), Message("error", "wrong", URN)),
        (_diagnostic("info#err", "hello\n"), Message("info", "hello")),
        (json.dumps({"errorEvent": {"error": "worse"}}), Message("error", "worse")),
        (json.dumps({"policyEvent": BROKEN}), Violation("p/q", True, "no", URN)),
    ],
)
def test_a_line_of_the_log_is_an_event(text: str, event: Event) -> None:
    assert parse(text) == event


@pytest.mark.parametrize(
    "text",
    [
        _diagnostic("debug", "registering"),
        _diagnostic("info", "\n"),
        _diagnostic("info", "waiting", ephemeral=True),
        _diagnostic(
            "warning", "using pulumi-resource-gpuform from $PATH at /a/.gpuform/bin/pulumi-resource-gpuform"
        ),
        json.dumps({"preludeEvent": {"config": {}}}),
        json.dumps({"summaryEvent": {"resourceChanges": {"same": 2}}}),
        _step("resourcePreEvent", "create", planning=True),
    ],
)
def test_an_unknown_line_is_no_event(text: str) -> None:
    assert parse(text) is None


def test_a_line_that_is_no_event_is_an_error() -> None:
    with pytest.raises(ValueError, match="not an event"):
        parse("[]")


def test_counts_read_as_words() -> None:
    assert format_counts({"same": 2, "update": 3, "delete": 0}) == "3 updated, 2 unchanged"
    assert format_counts({}) == "nothing to do"


OLD, NEW = {"flavor": "a", "name": "x", "image": "i"}, {"flavor": "b", "name": "x"}
TRIGGERED = {"old": {"inputs": OLD}, "new": {"inputs": NEW}, "detailedDiff": None}
MOVED = {"atomic": {"diffKind": "add"}, "timeout": {"diffKind": "add-replace"}}


@pytest.mark.parametrize(
    ("op", "metadata", "paths", "replaces"),
    [
        ("replace", TRIGGERED, ("flavor", "image"), ()),  # forced by a trigger of the program
        ("update", TRIGGERED, (), ()),
        ("replace", {"keys": ["provider"], "detailedDiff": MOVED}, ("provider",), ("provider",)),
    ],
)
def test_a_step_has_the_paths_that_differ_and_those_that_force_a_replacement(
    op: str, metadata: dict[str, object], paths: object, replaces: object
) -> None:
    body = {"metadata": {"op": op, "urn": URN, **metadata}, "planning": True}
    found = parse(json.dumps({"resOutputsEvent": body}))
    assert isinstance(found, Step)
    assert found.change is not None
    assert (found.change.paths, found.change.replaces) == (paths, replaces)


TOKEN = "openstack:containerinfra/getClusterTemplate:getClusterTemplate"
INVOKED = f"Exception: invoke of {TOKEN} failed: invocation of {TOKEN} returned an error:"
TRACEBACK = """Program failed with an unhandled exception:
Traceback (most recent call last):
  File "stack.py", line 270, in run_in_stack
    await run_pulumi_func(run)
"""


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([f"{TRACEBACK}{INVOKED} no cloud"], "failed: no cloud"),
        ([f"{TRACEBACK}ValueError: odd"], "failed: ValueError: odd"),
        (["update failed", "another"], "failed: update failed (and 1 more)"),
        (["2 errors occurred:\n  * the first\n  * the second"], "failed: 2 errors occurred: * the first"),
        ([""], "failed: no reason given"),
        ([], "failed with exit code 255"),
    ],
)
def test_the_line_that_says_what_is_wrong(errors: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert failure_reason(errors, 255, tmp_path / "log") == said


def test_without_reported_errors_the_log_is_asked_and_a_signal_is_named(tmp_path: Path) -> None:
    log, empty = tmp_path / "log", tmp_path / "empty"
    empty.touch()
    log.write_text("Updating\nerror: the stack is locked\nerror: again\n")
    assert failure_reason([], 255, log) == "failed: the stack is locked (and 1 more)"
    assert failure_reason([], -9, empty) == "failed: the engine was killed by signal 9"


PART = "urn:pulumi:local::tried::test:a:Part${}::{}"


def made(kind: str, name: str, op: str = "create", phase: Phase = "done", **inputs: Any) -> Step:
    namespace, _, short = name.rpartition("/")
    metadata = {"name": short, **({"namespace": namespace} if namespace else {})}
    return Step(op, PART.format(kind, name), phase, Change({}, {"metadata": metadata, **inputs}))


def web(before: Any, after: Any, *paths: str, op: str = "update") -> Step:
    metadata = {"name": "web", "namespace": "team"}
    change = Change({"metadata": metadata, **before}, {"metadata": metadata, **after}, paths)
    return Step(op, PART.format("kubernetes:apps/v1:Deployment", "team/web"), "done", change)


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


NODES = {f"t4-{number}": {} for number in range(9)}
OLD = {"t4-0": {"metadata": {"labels": {"a": "c"}}}, "t4-x": {}}


@pytest.mark.parametrize(
    ("op", "before", "after", "paths", "line"),
    [
        ("create", {}, {"nodes": NODES}, [], "t4-0, t4-1, t4-2 and 6 more added"),
        ("delete", {"nodes": OLD}, {}, [], "t4-0, t4-x removed"),
        ("update", {"nodes": OLD}, {"nodes": NODES}, ["nodes.t4-1", "nodes.t4-x"],
         "t4-1, t4-2, t4-3 and 5 more added, t4-x removed"),
        ("update", {"nodes": OLD}, {"nodes": {**OLD, "t4-0": {}}, "labels": {"a": "b"}},
         ["nodes.t4-0.metadata.labels.a"], "nodes.t4-0.metadata.labels.a c -> b"),
        ("update", {"nodes": OLD}, {"nodes": OLD, "labels": {"a": "b"}}, ["labels.a"], "labels.a added"),
    ],
)  # fmt: skip
def test_a_pool_names_its_nodes_that_come_and_go(
    op: str, before: Any, after: Any, paths: list[str], line: str
) -> None:
    change = Change(before, after, tuple(paths))
    step = Step(op, PART.format(SIMULATED_NODES, "pools-t4"), "planned", change)
    assert change_line(step) == f"{op:<9} SimulatedNodes pools-t4: {line}"


def test_a_secret_shows_no_value() -> None:
    change = Change({"metadata": {"name": "s"}, "data": {"a": "1"}}, {"data": {"a": "2"}}, ("data.a",))
    step = Step("update", PART.format("kubernetes:core/v1:Secret", "s"), "planned", change)
    assert change_line(step) == "update    Secret s: data.a"


def test_many_objects_are_one_line_and_the_rest_has_its_own() -> None:
    maps = [made("kubernetes:core/v1:ConfigMap", f"team/{number}") for number in range(9)]
    quotas = [made("kubernetes:core/v1:ResourceQuota", f"team/{number}") for number in range(2)]
    release = made("kubernetes:helm.sh/v3:Release", "operator")
    assert [*change_lines([*maps, release, *quotas])] == [
        "created   Release operator",
        "created   11 objects: 9 ConfigMap, 2 ResourceQuota",
    ]
    pool = Step("create", PART.format(SIMULATED_NODES, "t4"), "done", Change({}, {"nodes": NODES}))
    assert [*change_lines([*maps, *quotas, pool])] == [
        "created   20 objects: 9 ConfigMap, 9 Node, 2 ResourceQuota"
    ]
    for nodes in (dict[str, Any](), {"nodes": "not known yet"}):
        unclear = Step("create", PART.format(SIMULATED_NODES, "t4"), "done", Change({}, nodes))
        assert [*change_lines([*maps, *quotas, unclear])] == [
            "created   12 objects: 9 ConfigMap, 2 ResourceQuota, 1 SimulatedNodes"
        ]
    assert [*change_lines(quotas)] == ["created   ResourceQuota team/0", "created   ResourceQuota team/1"]
    vpc = Step("create", PART.format("aws:ec2/vpc:Vpc", "net"), "planned")
    assert [*change_lines([vpc])] == ["create    aws:ec2/vpc:Vpc net"]


@pytest.mark.parametrize(
    "step",
    [
        Step("same", PART.format("aws:ec2/vpc:Vpc", "net"), "done"),
        Step("create-replacement", PART.format("aws:ec2/vpc:Vpc", "net"), "done"),
        Step("create", PART.format("pulumi:providers:aws", "aws"), "done"),
        Step("create", PART.format("test:a:Part", "part"), "done", None, True),
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
    vpc = PART.format("aws:ec2/vpc:Vpc", "net")
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


WEB = "urn:pulumi:s::gpuform::kubernetes:apps/v1:Deployment::web"
NAMESPACE = "urn:pulumi:s::gpuform::kubernetes:v1:Namespace::new"
TEXT = (
    'the Kubernetes API server reported that "n/web": Server-Side Apply field conflict detected. See x\n'
    'The resource managed by field manager "pulumi-1" had an apply conflict: Apply failed with {}'
)
ONE = TEXT.format(
    '1 conflict: conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas'
)
TWO = TEXT.format('2 conflicts: conflicts with "kubectl-edit" using v1:\n- .data.a\n- .data.b')
OTHER = "the image cannot be pulled"


def failed(*errors: tuple[str, str, str]) -> EngineFailure:
    """A run in which steps failed: operation, URN and message of each."""
    steps = tuple(Step(op, urn, "failed") for op, urn, _ in errors)
    messages = tuple(Message("error", text, urn) for _, urn, text in errors)
    result = Result("up", "s", {"same": 1, "update": 1}, 1.0, steps, messages)
    return EngineFailure(result, "failed", "see the log")


Outcome = EngineFailure | Result


def played(*outcomes: Outcome) -> tuple[list[Sequence[str]], Callable[[Sequence[str]], Result]]:
    """A run that ends with each of the outcomes in turn, and the URNs that it was given."""
    given, left = list[Sequence[str]](), list(outcomes)

    def run(urns: Sequence[str]) -> Result:
        given.append(urns)
        outcome = left.pop(0)
        if isinstance(outcome, EngineFailure):
            raise outcome
        return outcome

    return given, run


def run_of(*outcomes: Outcome) -> tuple[list[Sequence[str]], list[str], Result]:
    (forced, run), said = played(*outcomes), list[str]()
    return forced, said, retry_with_force(run, said.append)


DONE = Result("up", "s", {"same": 3}, 1.0)
TAKEN = Result("up", "s", {"same": 2, "update": 1}, 1.0)


def test_a_conflict_is_forced_for_its_object_alone_and_the_update_repeated() -> None:
    forced, said, result = run_of(failed(("update", WEB, ONE)), TAKEN, DONE)
    assert forced == [(), [WEB], ()]
    assert said == ["Deployment web: takes back .spec.replicas from kubectl"]
    assert result.changes == {"same": 1, "update": 2}


def test_every_field_and_manager_is_named() -> None:
    assert conflicts(failed(("update", WEB, TWO)).result) == {
        WEB: "Deployment web: takes back .data.a, .data.b from kubectl-edit"
    }


@pytest.mark.parametrize(
    "outcomes",
    [
        [failed(("update", WEB, OTHER))],
        [failed(("create", NAMESPACE, ONE))],  # an object of others: nothing of theirs is overwritten
        [failed(("update", WEB, ONE)), TAKEN, failed(("update", WEB, ONE))],  # another manager sets it again
        [failed(("update", WEB, ONE)), failed(("update", WEB, OTHER))],
    ],
)
def test_every_other_failure_ends_the_run(outcomes: list[Outcome]) -> None:
    with pytest.raises(EngineFailure):
        run_of(*outcomes)


POD, SECOND = (f"urn:pulumi:s::gpuform::kubernetes:core/v1:Pod::{name}" for name in ("one", "two"))
FORBIDDEN = 'Pod "one" is invalid: spec: Forbidden: pod updates may not change fields other than `image`'
SET_FORBIDDEN = (
    'StatefulSet.apps "two" is invalid: spec: Forbidden: updates to statefulset spec for fields other than '
    "'replicas', 'ordinals', 'template' are forbidden"
)
POLICY = Violation("images", False, "is not pinned", POD)


def refused(urn: str, text: str, *violations: Violation) -> EngineFailure:
    """A preview in which a replacement was planned, and its dry run failed."""
    steps = (Step("delete-replaced", urn, "planned"), Step("replace", urn, "planned"))
    messages = (Message("error", text, urn), Message("error", "preview failed"))
    result = Result("preview", "s", {"same": 2, "replace": 1}, 1.0, steps, messages, violations)
    return EngineFailure(result, "failed", "see the log")


def preview_of(*outcomes: Outcome) -> tuple[list[Sequence[str]], Result]:
    excluded, run = played(*outcomes)
    return excluded, preview_with_pods(run)


def test_a_preview_shows_pods_and_stateful_sets_that_are_replaced_though_a_dry_run_cannot() -> None:
    whole = Result("preview", "s", {"same": 5}, 1.0)
    excluded, result = preview_of(refused(POD, FORBIDDEN, POLICY), refused(SECOND, SET_FORBIDDEN), whole)
    assert excluded == [[], [POD], [POD, SECOND]]
    assert result.changes == {"same": 3, "replace": 2}
    assert [(step.op, step.urn) for step in result.steps] == [("replace", POD), ("replace", SECOND)]
    assert result.violations == (POLICY,)


@pytest.mark.parametrize("second", [OTHER, FORBIDDEN])
def test_a_preview_with_another_failure_ends_and_shows_the_pods_too(second: str) -> None:
    with pytest.raises(EngineFailure) as raised:
        preview_of(refused(POD, FORBIDDEN), refused(POD, second))
    assert POD in [step.urn for step in raised.value.result.steps if step.op == "replace"]
    with pytest.raises(EngineFailure):
        preview_of(refused(POD, OTHER))

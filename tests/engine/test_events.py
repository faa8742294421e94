from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuform.engine.events import Event, Message, Step, Violation, format_counts, parse
from gpuform.engine.result import failure_reason

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
def test_events(text: str, event: Event) -> None:
    assert parse(text) == event


@pytest.mark.parametrize(
    "text",
    [
        _diagnostic("debug", "registering"),
        _diagnostic("info", "\n"),
        _diagnostic("info", "waiting", ephemeral=True),
        json.dumps({"preludeEvent": {"config": {}}}),
        json.dumps({"summaryEvent": {"resourceChanges": {"same": 2}}}),
        _step("resourcePreEvent", "create", planning=True),
    ],
)
def test_what_nobody_needs_is_no_event(text: str) -> None:
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
def test_what_differs(op: str, metadata: dict[str, object], paths: object, replaces: object) -> None:
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

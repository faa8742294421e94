from __future__ import annotations

import json

import pytest

from gpuform.engine.events import Event, Message, Step, Summary, Violation, counted, line, parse

pytestmark = pytest.mark.unit

URN = "urn:pulumi:local::tried::test:a:Outer$kubernetes:core/v1:Pod::demo/one::two"


def _step(key: str, op: str, planning: bool = False) -> str:
    return json.dumps({"sequence": 3, key: {"metadata": {"op": op, "urn": URN}, "planning": planning}})


def _said(severity: str, text: str, **more: object) -> str:
    return json.dumps({"diagnosticEvent": {"severity": severity, "message": text, "color": "never", **more}})


@pytest.mark.parametrize(
    ("text", "event", "shown"),
    [
        (_step("resourcePreEvent", "create"), Step("create", URN, "started"), None),
        (
            _step("resOutputsEvent", "create"),
            Step("create", URN, "done"),
            "created kubernetes:core/v1:Pod demo/one::two",
        ),
        (_step("resOutputsEvent", "same"), Step("same", URN, "done"), None),
        (
            _step("resOutputsEvent", "update", planning=True),
            Step("update", URN, "planned"),
            "would update kubernetes:core/v1:Pod demo/one::two",
        ),
        (
            _step("resOpFailedEvent", "delete"),
            Step("delete", URN, "failed"),
            "failed to delete kubernetes:core/v1:Pod demo/one::two",
        ),
        (_said("error", " wrong \n", urn=URN), Message("error", "wrong", URN), "error: wrong"),
        (_said("info#err", "hello\n"), Message("info", "hello"), "hello"),
        (json.dumps({"errorEvent": {"error": "worse"}}), Message("error", "worse"), "error: worse"),
        (
            json.dumps(
                {
                    "policyEvent": {
                        "policyPackName": "p",
                        "policyName": "q",
                        "enforcementLevel": "mandatory",
                        "message": "no",
                        "resourceUrn": URN,
                    }
                }
            ),
            Violation("p/q", True, "no", URN),
            "error: policy p/q: no",
        ),
        (
            json.dumps(
                {"summaryEvent": {"resourceChanges": {"same": 2}, "durationSeconds": 4, "isPreview": False}}
            ),
            Summary({"same": 2}, 4, False),
            None,
        ),
    ],
)
def test_events(text: str, event: Event, shown: str | None) -> None:
    assert parse(text) == event
    assert line(event) == shown


@pytest.mark.parametrize(
    "text",
    [
        _said("debug", "registering"),
        _said("info", "\n"),
        _said("info", "waiting", ephemeral=True),
        json.dumps({"preludeEvent": {"config": {}}}),
        _step("resourcePreEvent", "create", planning=True),
    ],
)
def test_what_nobody_needs_is_no_event(text: str) -> None:
    assert parse(text) is None


def test_a_line_that_is_no_event_is_an_error() -> None:
    with pytest.raises(ValueError, match="not an event"):
        parse("[]")


def test_counts_read_as_words() -> None:
    assert counted({"same": 2, "create": 3, "delete": 0}) == "3 created, 2 unchanged"
    assert counted({}) == "nothing to do"


@pytest.mark.parametrize(("op", "paths"), [("replace", ("flavor", "image")), ("update", ())])
def test_a_replacement_that_a_trigger_forces_says_what_differs(op: str, paths: tuple[str, ...]) -> None:
    old, new = {"flavor": "a", "name": "x", "image": "i"}, {"flavor": "b", "name": "x"}
    metadata = {"op": op, "urn": URN, "old": {"inputs": old}, "new": {"inputs": new}, "detailedDiff": None}
    found = parse(json.dumps({"resOutputsEvent": {"metadata": metadata, "planning": True}}))
    assert isinstance(found, Step)
    assert found.change is not None
    assert found.change.paths == paths


def test_what_goes_with_its_provider_says_that_alone() -> None:
    detailed = {"atomic": {"diffKind": "add"}, "timeout": {"diffKind": "add-replace"}}
    metadata = {"op": "replace", "urn": URN, "keys": ["provider"], "detailedDiff": detailed}
    found = parse(json.dumps({"resOutputsEvent": {"metadata": metadata, "planning": True}}))
    assert isinstance(found, Step)
    assert found.change is not None
    assert (found.change.paths, found.change.replaces) == (("provider",), ("provider",))

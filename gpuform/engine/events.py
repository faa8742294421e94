"""What the engine reports while it works, read from its event stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["info", "warning", "error"]

_PAST = {
    "create": "created",
    "update": "updated",
    "delete": "deleted",
    "replace": "replaced",
    "create-replacement": "replaced",
    "delete-replaced": "deleted the old",
    "read": "read",
    "refresh": "refreshed",
    "import": "imported",
    "same": "unchanged",
}


@dataclass(frozen=True)
class Change:
    """A resource's inputs before and after (empty where there is none), and the paths that differ.

    ``replaces`` are those of the paths that make a new object necessary. The engine writes ``[secret]`` for
    a secret, and an unknown value as a text that nothing else has.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    paths: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One operation on one resource; ``op`` is the engine's word, ``phase`` where it stands.

    In a preview nothing is done, and ``planned`` stands for it. ``change`` is there once a step has ended.
    """

    op: str
    urn: str
    phase: Literal["started", "planned", "done", "failed"]
    change: Change | None = field(default=None, compare=False, repr=False)

    @property
    def type(self) -> str:
        """Type token, without the types of its parents."""
        return self.urn.split("::")[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        """Name in the program."""
        return self.urn.split("::", 3)[3]


@dataclass(frozen=True)
class Message:
    """Something said about a resource (``urn``), or about the run when that is empty. May span lines."""

    severity: Severity
    text: str
    urn: str = ""


@dataclass(frozen=True)
class Violation:
    """A policy that a resource breaks; ``mandatory`` ones fail the run."""

    policy: str
    mandatory: bool
    text: str
    urn: str = ""


@dataclass(frozen=True)
class Summary:
    """The engine's own count of operations, and how long it took in whole seconds."""

    changes: Mapping[str, int] = field(default_factory=dict)
    duration_s: int = 0
    preview: bool = False


Event = Step | Message | Violation | Summary


def parse(line: str) -> Event | None:
    """The event in one line of the engine's event log; None for what nobody needs and for debug output.

    Raises ValueError when the line is no JSON object.
    """
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"not an event: {line[:80]}")
    for key, read in _READERS.items():
        if key in content:
            return read(content[key])
    return None


def _message(body: Mapping[str, Any]) -> Message | None:
    severity = {"info": "info", "info#err": "info", "warning": "warning", "error": "error"}.get(
        body["severity"]
    )
    text = str(body["message"]).strip()
    if severity is None or not text or body.get("ephemeral"):
        return None
    return Message(severity, text, body.get("urn", ""))  # type: ignore[arg-type]


def _violation(body: Mapping[str, Any]) -> Violation:
    policy = f"{body['policyPackName']}/{body['policyName']}"
    mandatory = body["enforcementLevel"] == "mandatory"
    return Violation(policy, mandatory, body["message"].strip(), body.get("resourceUrn", ""))


def _summary(body: Mapping[str, Any]) -> Summary:
    return Summary(dict(body.get("resourceChanges") or {}), body["durationSeconds"], body["isPreview"])


def _started(body: Mapping[str, Any]) -> Step | None:
    """The step, unless it is of a preview, where a start means nothing."""
    return None if body.get("planning") else Step(body["metadata"]["op"], body["metadata"]["urn"], "started")


def _ended(body: Mapping[str, Any]) -> Step:
    phase: Literal["planned", "done"] = "planned" if body.get("planning") else "done"
    metadata = body["metadata"]
    return Step(metadata["op"], metadata["urn"], phase, _change(metadata))


def _change(metadata: Mapping[str, Any]) -> Change:
    before, after = ((metadata.get(key) or {}).get("inputs") or {} for key in ("old", "new"))
    detailed = metadata.get("detailedDiff") or {}
    replaces = {path for path, how in detailed.items() if how["diffKind"].endswith("-replace")}
    # Where a trigger of the program's forces a replacement, the engine asks no provider what differs.
    if "provider" in (metadata.get("keys") or ()):  # what a chart's defaults differ in is no reason
        return Change(before, after, ("provider",), ("provider",))
    differing = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    forced = differing if metadata["op"] == "replace" else ()
    return Change(
        before,
        after,
        tuple(sorted(detailed or metadata.get("diffs") or forced)),
        tuple(sorted(replaces or metadata.get("keys") or ())),
    )


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Event | None]] = {
    "diagnosticEvent": _message,
    "policyEvent": _violation,
    "summaryEvent": _summary,
    "resourcePreEvent": _started,
    "resOutputsEvent": _ended,
    "resOpFailedEvent": lambda body: Step(body["metadata"]["op"], body["metadata"]["urn"], "failed"),
    "errorEvent": lambda body: Message("error", str(body["error"]).strip()),
}


def line(event: Event) -> str | None:
    """The event for a log or a pipe, one line where it is one; None for what is not worth one."""
    match event:
        case Step("replace", _, _):
            return None  # only stands between the making of the new one and the end of the old one
        case Step(op, _, "done") if op != "same" and event.type != "pulumi:pulumi:Stack":
            return f"{_PAST.get(op, op)} {event.type} {event.name}"
        case Step(op, _, "planned") if op != "same" and event.type != "pulumi:pulumi:Stack":
            return f"would {op} {event.type} {event.name}"
        case Step(op, _, "failed"):
            return f"failed to {op} {event.type} {event.name}"
        case Message(severity, text, _):
            return text if severity == "info" else f"{severity}: {text}"
        case Violation(policy, mandatory, text, _):
            return f"{'error' if mandatory else 'warning'}: policy {policy}: {text}"
    return None


def counted(changes: Mapping[str, int], planned: bool = False) -> str:
    """``{"create": 3, "same": 2}`` as ``3 created, 2 unchanged``; planned, ``3 to create``."""
    said = {op: f"to {op}" for op in changes} if planned else _PAST
    shown = [f"{count} {said.get(op, op)}" for op, count in sorted(changes.items()) if count]
    return ", ".join(shown) or "nothing to do"

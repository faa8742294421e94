"""Events that the engine reports during a run, parsed from its event log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["info", "warning", "error"]
Phase = Literal["started", "planned", "done", "failed"]

PAST_TENSE = {
    "create": "created",
    "update": "updated",
    "delete": "deleted",
    "replace": "replaced",
    "read": "read",
    "refresh": "refreshed",
    "import": "imported",
    "same": "unchanged",
}
HALVES = ("create-replacement", "delete-replaced")
"""Operations that are reported beside the ``replace`` to which they belong."""


@dataclass(frozen=True)
class Change:
    """A resource's inputs before and after (empty if it does not exist then), and the paths that differ.

    ``replaces`` are the paths that force a replacement. The engine writes ``[secret]`` for a secret, and a
    unique marker text for an unknown value.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    paths: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


def value_at(inputs: Any, path: Iterable[str | int]) -> Any:
    """The value at the keys and list indexes of ``path``; None if there is none."""
    for key in path:
        try:
            inputs = inputs[key]
        except (LookupError, TypeError):
            return None
    return inputs


@dataclass(frozen=True)
class Step:
    """One operation on one resource; ``op`` is the engine's name for it.

    In a preview ``phase`` is ``planned``. ``change`` is set once a step is planned or done.
    """

    op: str
    urn: str
    phase: Phase
    change: Change | None = field(default=None, compare=False, repr=False)
    is_component: bool = field(default=False, compare=False, repr=False)

    @property
    def type(self) -> str:
        """Type token, without the types of its parents."""
        return self.urn.split("::")[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        return self.urn.split("::", 3)[3]

    @property
    def is_resource(self) -> bool:
        """Whether something exists for it outside the program; components and providers only group."""
        return not self.is_component and not self.type.startswith(("pulumi:providers:", "pulumi:pulumi:"))


@dataclass(frozen=True)
class Message:
    """A message about a resource (``urn``), or about the run if ``urn`` is empty; may have several lines."""

    severity: Severity
    text: str
    urn: str = ""


@dataclass(frozen=True)
class Violation:
    """A violation of a policy; a ``mandatory`` one fails the run."""

    policy: str
    mandatory: bool
    text: str
    urn: str = ""


Event = Step | Message | Violation


def parse(line: str) -> Event | None:
    """The event in one line of the engine's event log; None for debug output and events that are not used.

    Raises ValueError if the line is not a JSON object.
    """
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"not an event: {line[:80]}")
    for key, read in _READERS.items():
        if key in content:
            return read(content[key])
    return None


def _message(body: Mapping[str, Any]) -> Message | None:
    severity = body["severity"].removesuffix("#err")
    text = str(body["message"]).strip()
    if severity not in ("info", "warning", "error") or not text or body.get("ephemeral"):
        return None
    return Message(severity, text, body.get("urn", ""))


def _violation(body: Mapping[str, Any]) -> Violation:
    policy = f"{body['policyPackName']}/{body['policyName']}"
    mandatory = body["enforcementLevel"] == "mandatory"
    return Violation(policy, mandatory, body["message"].strip(), body.get("resourceUrn", ""))


def _started(body: Mapping[str, Any]) -> Step | None:
    """None in a preview, where a start means nothing."""
    return None if body.get("planning") else _step(body, "started")


def _finished(body: Mapping[str, Any]) -> Step:
    return _step(body, "planned" if body.get("planning") else "done", _change(body["metadata"]))


def _step(body: Mapping[str, Any], phase: Phase, change: Change | None = None) -> Step:
    metadata = body["metadata"]
    state = metadata.get("new") or metadata.get("old") or {}
    return Step(metadata["op"], metadata["urn"], phase, change, bool(state) and not state.get("custom"))


def _change(metadata: Mapping[str, Any]) -> Change:
    before, after = ((metadata.get(key) or {}).get("inputs") or {} for key in ("old", "new"))
    detailed = metadata.get("detailedDiff") or {}
    replaces = {path for path, detail in detailed.items() if detail["diffKind"].endswith("-replace")}
    # If a replacement trigger of the program forces the replacement, the engine asks no provider for a diff.
    if "provider" in (metadata.get("keys") or ()):  # differing chart defaults are not a reason
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
    "resourcePreEvent": _started,
    "resOutputsEvent": _finished,
    "resOpFailedEvent": lambda body: _step(body, "failed", _change(body["metadata"])),
    "errorEvent": lambda body: Message("error", str(body["error"]).strip()),
}


def format_counts(changes: Mapping[str, int], planned: bool = False) -> str:
    """``{"create": 3, "same": 2}`` as ``3 created, 2 unchanged``; with ``planned``, ``3 to create``."""
    words = {op: f"to {op}" for op in changes} if planned else PAST_TENSE
    ordered = sorted(changes.items(), key=lambda item: (item[0] == "same", item[0]))
    parts = [f"{count} {words.get(op, op)}" for op, count in ordered if count]
    return ", ".join(parts) or "nothing to do"

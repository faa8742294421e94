"""Events that the engine reports during a run, parsed from its event log, and what is printed of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuform.checkout.listing import abbreviate, count_of

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
SIMULATED_NODES = "gpuform:nodes:SimulatedNodes"
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
    if text.startswith("using pulumi-resource-gpuform from $PATH"):  # as it should, outside a checkout
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


_STEP = re.compile(r'\["([^"]+)"\]|\[(\d+)\]|([^.\[\]]+)')
_SECRET = re.compile(r"(?i)password|secret|token|credential|env\[[^\]]+\]\.value|\bvalues\b")
"""Paths of values that may be secret; Helm values and variables of containers may contain anything."""
_HIDDEN = "[secret]"
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # an unknown value [pulumi/sdk, plugin/rpc.go]
_MAX_VALUE = 24  # characters of a value that fits a line
_MAX_FIELDS = 2  # that are listed
_FEW_FIELDS = 8  # of which the first is listed
_MAX_OBJECTS = 10  # that get a line each
_MAX_NODES = 3  # that are named


def path_steps(path: str) -> list[str | int]:
    """``spec.containers[0].image`` as keys and indexes for ``value_at``."""
    return [int(index) if index else key or name for key, index, name in _STEP.findall(path)]


def resource_name(step: Step) -> str:
    """``Node t4-shared-0`` or ``ConfigMap gpu-operator/a``; a cloud's resource by its full type and name."""
    if not step.type.startswith(("kubernetes:", "gpuform:")):
        return f"{step.type} {step.name}"
    inputs = (step.change.before or step.change.after) if step.change else {}
    metadata = inputs.get("metadata") or {}
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    prefix = f"{metadata['namespace']}/" if name and metadata.get("namespace") else ""
    return f"{step.type.rpartition(':')[2]} {prefix}{name or step.name}"


def fields(step: Step) -> Iterator[tuple[str, Any, Any]]:
    """Path, old and new value of each input that differs; entries of lists are named: ``containers[web]``."""
    if step.change is None:
        return
    for path in step.change.paths:
        before, after = (_value(step, inputs, path) for inputs in (step.change.before, step.change.after))
        yield _name_entries(step.change.before, path), before, after


def _value(step: Step, inputs: Mapping[str, Any], path: str) -> Any:
    """The value at the path; of a field of a simulated node that of all nodes, unless it has its own."""
    keys = path_steps(path)
    own = value_at(inputs, keys)
    is_field = step.type == SIMULATED_NODES and keys[0] == "nodes"
    return value_at(inputs, keys[3:]) if own is None and is_field and len(keys) > 3 else own


def shown_values(step: Step, path: str, *values: Any) -> tuple[str, ...]:
    """Scalars as text; empty for others, for several lines, and for what is unknown or may be secret."""
    if resource_name(step).startswith("Secret ") or _SECRET.search(path):
        return tuple("" for _ in values)
    return tuple(_shown(value) for value in values)


def change_line(step: Step) -> str:
    """``updated   Deployment team/web: spec.replicas 1 -> 2``; for a planned step the verb is ``update``."""
    if step.op == "replace" and step.change and step.change.replaces:
        paths = [*step.change.replaces]
    else:
        changed = fields(step) if step.op != "create" else ()
        texts = (_field_text(step, *field) for field in changed if not _is_node(step, field[0]))
        paths = [*_node_texts(step), *texts]
    if len(paths) > _FEW_FIELDS:
        roots = dict.fromkeys(str(path_steps(path)[0]) for path, *_ in fields(step))
        paths = [f"{len(paths)} fields of {', '.join(roots)}"]
    elif len(paths) > _MAX_FIELDS:
        paths = [*paths[: _MAX_FIELDS - 1], f"{len(paths) - _MAX_FIELDS + 1} more fields"]
    return f"{_verb(step):<9} {resource_name(step)}" + (f": {', '.join(paths)}" if paths else "")


def is_change(step: Step) -> bool:
    return step.is_resource and step.op not in ("same", *HALVES)


def is_grouped(step: Step) -> bool:
    """Whether the step creates or deletes Kubernetes objects, of which a stack has many."""
    is_object = step.type.startswith("kubernetes:") and not step.type.startswith("kubernetes:helm.sh/")
    return (is_object or step.type == SIMULATED_NODES) and step.op in ("create", "delete")


def change_lines(steps: Iterable[Step]) -> Iterator[str]:
    """All changes of a finished or planned run: those with a line of their own first."""
    changes = [step for step in steps if step.phase != "failed" and is_change(step)]
    yield from (change_line(step) for step in changes if not is_grouped(step))
    by_verb: dict[str, list[Step]] = {}
    for step in filter(is_grouped, changes):
        by_verb.setdefault(_verb(step), []).append(step)
    for verb, group in by_verb.items():
        if len(group) <= _MAX_OBJECTS:
            yield from map(change_line, group)
            continue
        kinds = Counter(kind for step in group for kind in _kinds(step))
        numbers = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        yield f"{verb:<9} {count_of(kinds.total(), 'object')}: {numbers}"


def _kinds(step: Step) -> Sequence[str]:
    """Kind of each object that the step creates or deletes."""
    if step.type == SIMULATED_NODES and step.change:
        nodes = {**step.change.before, **step.change.after}.get("nodes")
        if isinstance(nodes, Mapping):  # not wrong, and not unknown yet
            return ["Node"] * len(nodes)
    return [step.type.rpartition(":")[2]]


def _verb(step: Step) -> str:
    return step.op if step.phase == "planned" else PAST_TENSE.get(step.op, step.op)


def _is_node(step: Step, path: str) -> bool:
    """Whether the path is that of a whole node, which `_node_texts` names."""
    return step.type == SIMULATED_NODES and path_steps(path)[0] == "nodes" and len(path_steps(path)) == 2


def _node_texts(step: Step) -> Iterator[str]:
    """Which simulated nodes come, and which go."""
    if step.type == SIMULATED_NODES and step.change:
        old, new = (inputs.get("nodes") or {} for inputs in (step.change.before, step.change.after))
        for verb, nodes, others in (("added", new, old), ("removed", old, new)):
            if names := [name for name in nodes if name not in others]:
                yield f"{abbreviate(names, _MAX_NODES)} {verb}"


def _field_text(step: Step, path: str, before: Any, after: Any) -> str:
    if before is None:
        return f"{path} added"
    if after is None:
        return f"{path} removed"
    values = shown_values(step, path, before, after)
    fit = all(value and len(value) <= _MAX_VALUE for value in values) and values[0] != values[1]
    return f"{path} {values[0]} -> {values[1]}" if fit else path


def _name_entries(inputs: Any, path: str) -> str:
    def name(match: re.Match[str]) -> str:
        entry = value_at(inputs, path_steps(path[: match.end()]))
        key = (entry.get("name") or entry.get("key")) if isinstance(entry, Mapping) else None
        return f"[{key}]" if key else match[0]

    return re.sub(r"\[\d+\]", name, path)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = "" if value is None or isinstance(value, Mapping | list) else str(value)
    return "" if "\n" in text or text in (_HIDDEN, _UNKNOWN) else text


@dataclass
class Display:
    """``say`` takes the lines; ``show_work`` a text about what has just begun, for a line that is replaced.

    Created and deleted Kubernetes objects are held back until the end, where many of them become one line.
    """

    say: Callable[[str], None]
    show_work: Callable[[str], None] = lambda text: None
    _objects: list[Step] = field(default_factory=list)
    _errors: dict[str, None] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def take(self, event: Event) -> None:
        match event:
            case Step(op, _, "failed"):
                self._errors[f"failed to {op} {resource_name(event)}"] = None
            case Step() if not is_change(event):
                pass
            case Step(op, _, "started"):
                self.show_work(f"{op} {resource_name(event)}")
            case Step() if is_grouped(event):
                self._objects.append(event)
            case Step():
                self._say_once(change_line(event))
            case Message("error", text):
                self._errors[f"error: {text}"] = None
            case Message(severity, text):
                self._say_once(text if severity == "info" else f"{severity}: {text}")
            case Violation(policy, True, text):
                self._errors[f"error: policy {policy}: {text}"] = None
            case Violation(policy, _, text):
                self._say_once(f"warning: policy {policy}: {text}")

    def end(self, show_errors: bool = True) -> None:
        """Print the objects and, unless the caller handles them, the errors."""
        lines = [*change_lines(self._objects), *(self._errors if show_errors else ())]
        self._objects.clear()
        self._errors.clear()
        for line in lines:
            self.say(line)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self.say(line)

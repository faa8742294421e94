"""What a run changes, as lines of text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuform.checkout.listing import count_of
from gpuform.engine.events import HALVES, PAST_TENSE, Step, value_at

_STEP = re.compile(r'\["([^"]+)"\]|\[(\d+)\]|([^.\[\]]+)')
_SECRET = re.compile(r"(?i)password|secret|token|credential|env\[[^\]]+\]\.value|\bvalues\b")
"""Paths of values that may be secret; Helm values and variables of containers may contain anything."""
_HIDDEN = "[secret]"
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # an unknown value [pulumi/sdk, plugin/rpc.go]
_MAX_VALUE = 24  # characters of a value that fits a line
_MAX_FIELDS = 2  # that are listed
_FEW_FIELDS = 8  # of which the first is listed
_MAX_OBJECTS = 10  # that get a line each


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
        before, after = (
            value_at(inputs, path_steps(path)) for inputs in (step.change.before, step.change.after)
        )
        yield _name_entries(step.change.before, path), before, after


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
        paths = [_field_text(step, *field) for field in fields(step)] if step.op != "create" else []
    if len(paths) > _FEW_FIELDS:
        roots = dict.fromkeys(str(path_steps(path)[0]) for path, *_ in fields(step))
        paths = [f"{len(paths)} fields of {', '.join(roots)}"]
    elif len(paths) > _MAX_FIELDS:
        paths = [*paths[: _MAX_FIELDS - 1], f"{len(paths) - _MAX_FIELDS + 1} more fields"]
    return f"{_verb(step):<9} {resource_name(step)}" + (f": {', '.join(paths)}" if paths else "")


def is_change(step: Step) -> bool:
    return step.is_resource and step.op not in ("same", *HALVES)


def is_grouped(step: Step) -> bool:
    """Whether the step creates or deletes a Kubernetes object, of which a stack has many."""
    is_object = step.type.startswith("kubernetes:") and not step.type.startswith("kubernetes:helm.sh/")
    return is_object and step.op in ("create", "delete")


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
        kinds = Counter(step.type.rpartition(":")[2] for step in group)
        numbers = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        yield f"{verb:<9} {count_of(len(group), 'object')}: {numbers}"


def _verb(step: Step) -> str:
    return step.op if step.phase == "planned" else PAST_TENSE.get(step.op, step.op)


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

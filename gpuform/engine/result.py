"""The result of an engine run, and the error of a failed one.

The Kubernetes provider applies server-side and without force, so an update of such an object fails. An
environment variable makes it force a whole run [pulumi-kubernetes 4.34, pkg/await/await.go, patchForce and
handleSSAErr]. That would also overwrite objects of others that the stack is about to create, so it is set
for a run on the failed objects alone, and by `follow`: the SDK would copy it into the provider's inputs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuform.checkout.errors import Failure
from gpuform.engine.events import HALVES, Event, Message, Step, Violation, format_counts, resource_name
from gpuform.engine.follow import FORCE_VARIABLE

_INVOKE_ERROR = re.compile(r"^Exception: invoke of (\S+) failed: invocation of \1 returned an error: ")
_VAGUE_ERRORS = ("preview failed", "update failed", "destroy failed", "refresh failed")


@dataclass(frozen=True)
class Result:
    """What one run did. ``changes`` is the number of resources by operation, ``same`` included."""

    operation: str
    stack: str
    changes: Mapping[str, int]
    duration_s: float
    steps: tuple[Step, ...] = ()
    messages: tuple[Message, ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def changed(self) -> bool:
        return any(count for op, count in self.changes.items() if op != "same")

    @property
    def summary(self) -> str:
        """``3 created, 20 unchanged in 12.3 s``."""
        return f"{format_counts(self.changes)} in {self.duration_s:.1f} s"

    def after(self, earlier: Iterable[Result]) -> Result:
        """This run and the failed runs before it, as one result."""
        runs = (*earlier, self)
        done = Counter[str]()
        for run in runs:
            done.update({op: count for op, count in run.changes.items() if op != "same"})
        before = done - Counter(self.changes)  # unchanged for the last run
        changed_before = sum(before[op] for op in ("create", "update", "replace", "import"))
        done["same"] = max(0, self.changes.get("same", 0) - changed_before)
        return replace(
            self,
            changes={op: count for op, count in done.items() if count},
            duration_s=sum(run.duration_s for run in runs),
            steps=tuple(step for run in runs for step in run.steps),
        )

    @property
    def errors(self) -> tuple[str, ...]:
        """Mandatory policy violations and errors; the engine's ``update failed`` only if it is alone."""
        texts = [f"policy {v.policy}: {v.text}" for v in self.violations if v.mandatory]
        texts += [message.text for message in self.messages if message.severity == "error"]
        return tuple(text for text in texts if text not in _VAGUE_ERRORS) or tuple(texts)


class EngineFailure(Failure):
    """A run that the engine ended with an error; ``result`` is what it did before."""

    def __init__(self, result: Result, fact: str, remedy: str) -> None:
        super().__init__(f"pulumi {result.operation} of stack {result.stack}", fact, remedy)
        self.result = result


@dataclass
class Record:
    """Events of a run so far."""

    steps: dict[Step, None] = field(default_factory=dict)  # an ordered set
    messages: list[Message] = field(default_factory=list)
    violations: dict[Violation, None] = field(default_factory=dict)
    counted: set[Step] = field(default_factory=set)

    @property
    def changes(self) -> Mapping[str, int]:
        return Counter(step.op for step in self.counted)

    def add(self, event: Event) -> None:
        match event:
            case Step(op, _, phase):
                if phase in ("planned", "done") and event.is_resource and op not in HALVES:
                    self.counted.add(event)
                if op != "same" and phase != "started":
                    self.steps[event] = None  # a component with outputs is reported twice
            case Message():
                self.messages.append(event)
            case Violation():
                self.violations[event] = None


def failure_reason(errors: Sequence[str], code: int, log: Path) -> str:
    """The first reported error, else the first in the engine's log, else the exit code."""
    reasons = list(errors)
    if not reasons:
        lines = read_log(log).splitlines()
        reasons = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if code < 0:
        reasons.append(f"the engine was killed by signal {-code}")
    text = f"failed: {_reason(reasons[0])}" if reasons else f"failed with exit code {code}"
    return text + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else "")


def read_log(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _reason(text: str) -> str:
    """The line of a message that says what is wrong: the last of a traceback, else the first."""
    if "PULUMI_K8S_DELETE_UNREACHABLE" in text:  # its advice is to forget what may still run
        return "the cluster cannot be reached"
    lines = [part.strip() for part in text.splitlines() if part.strip()] or ["no reason given"]
    if lines[0].startswith("Program failed with"):
        return _INVOKE_ERROR.sub("", lines[-1])
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


FORCE: Mapping[str, str] = {FORCE_VARIABLE: "true"}
_CONFLICT = "field conflict detected"
_FORBIDDEN_CHANGES = (
    "pod updates may not change fields",
    "updates to statefulset spec for fields other than",
)
_MANAGER = re.compile(r'conflicts? with "([^"]+)"')
_FIELD = re.compile(r"(?::|-) (\.\S+)$", re.MULTILINE)


def conflicts(result: Result) -> dict[str, str]:
    """A line of output for each object, by URN, that failed to update because another manager set a field."""
    failed = {step.urn: step for step in result.steps if step.phase == "failed" and step.op == "update"}
    return {
        message.urn: f"{resource_name(failed[message.urn])}: takes back {_describe(message.text)}"
        for message in result.messages
        if message.urn in failed and _CONFLICT in message.text
    }


def _describe(text: str) -> str:
    fields = ", ".join(dict.fromkeys(_FIELD.findall(text))) or "fields"
    return f"{fields} from {', '.join(dict.fromkeys(_MANAGER.findall(text))) or 'another manager'}"


def preview_with_pods(run: Callable[[Sequence[str]], Result]) -> Result:
    """Preview; leave replaced pods and StatefulSets out of a further run, if the provider cannot try them.

    An update deletes the old one first. A preview applies the new one in its place as a dry run, and tries
    another name only if a field is "immutable", which the API server does not call theirs
    [pulumi-kubernetes 4.34, pkg/await/await.go, Creation]. ``run`` gets the URNs to leave out. Raises
    EngineFailure, with the replacements in its result, for every other failure.
    """
    replaced: dict[str, Step] = {}
    violations: list[Violation] = []
    while True:
        try:
            return _with_replacements(run(sorted(replaced)), replaced, violations)
        except EngineFailure as failure:
            found = _replaced_objects(failure.result)
            if found.keys() <= replaced.keys():
                failure.result = _with_replacements(failure.result, replaced, violations)
                raise
            replaced |= found
            violations += [one for one in failure.result.violations if one.urn in found]


def _replaced_objects(result: Result) -> dict[str, Step]:
    planned = {step.urn: step for step in result.steps if step.op == "replace"}
    return {
        message.urn: planned[message.urn]
        for message in result.messages
        if message.urn in planned and any(text in message.text for text in _FORBIDDEN_CHANGES)
    }


def _with_replacements(
    result: Result, replaced: Mapping[str, Step], violations: Sequence[Violation]
) -> Result:
    if not replaced:
        return result
    changes = Counter(result.changes) + Counter(replace=len(replaced)) - Counter(same=len(replaced))
    return replace(
        result,
        steps=(*result.steps, *replaced.values()),
        changes=changes,
        violations=(*result.violations, *violations),
    )


def retry_with_force(run: Callable[[Sequence[str]], Result], say: Callable[[str], None]) -> Result:
    """Run an update; if objects of the stack have been changed by others, take their fields back and repeat.

    ``run`` gets the URNs to update with force, none for the whole stack. Each object is forced once. Raises
    EngineFailure for every other failure.
    """
    forced: set[str] = set()
    earlier: list[Result] = []
    while True:
        try:
            return run(()).after(earlier)
        except EngineFailure as failure:
            found = conflicts(failure.result)
            if not found or found.keys() <= forced:
                raise
            for text in found.values():
                say(text)
            forced |= found.keys()
            earlier += [failure.result, run(sorted(found))]

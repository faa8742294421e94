"""Events of a run, and its result for each host."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.hosts import reasons

END_TASK = "gpuform end of run"  # the task that every host reaches unless it was stopped
DONE_TASK = "Count the host as done"  # the same at the end of a play that takes its hosts in batches (serial)
STOPPED = "the run stopped before this host was done; run the same command again"
_KEPT_OUTPUT = 40  # lines: an error of ansible-playbook itself is in its last few
_ENDINGS = ("ok", "changed", "failed", "unreachable", "skipped")


@dataclass(frozen=True)
class Event:
    """One event of a run.

    ``kind`` is ``play``, ``task`` (it begins, on every host), ``started``, ``ok``, ``changed``, ``skipped``,
    ``failed``, ``unreachable``, ``done`` (of one host; the last is at its end), ``output`` (a line outside
    any task) or ``stats``. ``ignored`` is a failure that the playbook ignores, ``play`` is the play's id: a
    play that runs in batches begins more than once.
    """

    kind: str
    host: str = ""
    task: str = ""
    message: str = ""
    ignored: bool = False
    diff: str = ""
    play: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class HostResult:
    """The run's result on one host.

    ``changed`` and ``failed`` count tasks. ``message`` is empty if ``ok``. ``task`` is the one that failed,
    ``changes`` are those that changed something (in check mode: would), and ``diffs`` their changes of files.
    """

    ok: bool
    changed: int = 0
    failed: int = 0
    unreachable: bool = False
    message: str = ""
    task: str = ""
    changes: tuple[str, ...] = ()
    diffs: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        keys = ("ok", "changed", "failed", "unreachable", "message")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class Outcome:
    """A finished run: the requested hosts by name, ansible-playbook's exit code, whether it was cancelled.

    ``message`` says what ended the run if no host did.
    """

    hosts: Mapping[str, HostResult]
    rc: int
    message: str = ""
    cancelled: bool = False

    @property
    def ok(self) -> bool:
        return self.rc == 0 and not self.message and all(result.ok for result in self.hosts.values())

    @property
    def failures(self) -> tuple[str, ...]:
        named = tuple(
            f"host {name}: {result.message}" for name, result in self.hosts.items() if not result.ok
        )
        return (self.message,) if self.message and not self.cancelled else named


class HostResults:
    """Collects the events of one run on the requested hosts."""

    def __init__(self, hosts: Sequence[str], plays: Sequence[Collection[str]] = ()) -> None:
        """``hosts`` need a result, ``plays`` are the hosts of each play, if known."""
        self._hosts = tuple(hosts)
        self._plays = tuple(plays)
        self._started_plays: set[str] = set()
        self._failures: dict[str, tuple[str, str]] = {}
        self._changes: dict[str, list[str]] = {}
        self._diffs: dict[str, list[str]] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._stats: Mapping[str, Mapping[str, int]] | None = None
        self._output: list[str] = []
        self._done: set[str] = set()

    def add(self, event: Event) -> None:
        if event.kind in ("failed", "unreachable") and not event.ignored:
            self._failures[event.host] = (event.task, event.message)  # the last one ended the host's run
        elif event.kind == "changed":
            self._changes.setdefault(event.host, []).append(event.task)
            if event.diff:
                self._diffs.setdefault(event.host, []).append(event.diff)
        elif event.kind == "done":
            self._done.add(event.host)
        elif event.kind == "play":
            self._started_plays.add(event.play)
        elif event.kind == "stats":
            self._stats = event.stats
        elif event.kind == "output":
            self._output = [*self._output, event.message][-_KEPT_OUTPUT:]
        if event.facts:
            self._facts.setdefault(event.host, {}).update(event.facts)

    def outcome(self, rc: int, *, cancelled: bool = False) -> Outcome:
        message = ""
        if cancelled:
            message = "cancelled; run the same command again to continue"
        elif self._stats is None:
            message = _final_error(self._output) or f"ansible-playbook ended with code {rc} before any host"
        return Outcome({name: self._host(name, message) for name in self._hosts}, rc, message, cancelled)

    def _host(self, name: str, message: str) -> HostResult:
        stats = self._stats or {}
        task, reason = self._failures.get(name, ("", ""))
        failed, dark = (int(stats.get(key, {}).get(name, 0)) for key in ("failures", "dark"))
        changes = tuple(self._changes.get(name, ()))
        if self._stats is None and name in self._failures:
            failed = 1
        if failed or dark:
            message = f"{task}: {reason}" if failed and task else reason or "failed without a message"
        elif name in self._done or self._is_past(name):
            message = ""
        elif self._stats is not None:
            message = STOPPED
        return HostResult(
            ok=not message,
            changed=int(stats.get("changed", {}).get(name, len(changes))),
            failed=failed,
            unreachable=bool(dark),
            message=message,
            task=task if failed or dark else "",
            changes=changes,
            diffs=tuple(self._diffs.get(name, ())),
            facts=self._facts.get(name, {}),
        )

    def _is_past(self, name: str) -> bool:
        """Whether the host is in neither the play in which the run ended nor a later one."""
        remaining = self._plays[max(len(self._started_plays) - 1, 0) :]
        return bool(remaining) and not any(name in members for members in remaining)


def parse_event(raw: Mapping[str, Any]) -> Event | None:
    """Convert an event of ansible-runner to the fields that we use; None if it has none of them."""
    kind, data = str(raw.get("event")), raw.get("event_data") or {}
    task = _task_name(data)
    if kind == "playbook_on_stats":
        keys = ("changed", "failures", "dark")
        return Event("stats", stats={key: dict(data.get(key) or {}) for key in keys})
    if task in (END_TASK, DONE_TASK):
        return Event("done", host=str(data.get("host"))) if kind == "runner_on_ok" else None
    if kind == "playbook_on_play_start":
        title, identity = str(data.get("play")), str(data.get("play_uuid"))
        return Event("play", message=title, play=identity) if title != END_TASK else None
    if kind in ("playbook_on_task_start", "playbook_on_handler_task_start"):
        return Event("task", task=task)
    if kind in ("verbose", "error", "warning"):
        text = str(raw.get("stdout") or "").strip()
        return Event("output", message=text) if text else None
    if kind == "runner_on_start":
        return Event("started", host=str(data.get("host") or ""), task=task)
    ending = kind.removeprefix("runner_on_")
    return _task_result(ending, data, task) if ending in _ENDINGS else None


def _task_result(outcome: str, data: Mapping[str, Any], task: str) -> Event:
    result = data.get("res") or {}
    if outcome == "ok" and result.get("changed"):
        outcome = "changed"
    describe = {"failed": reasons.failure_reason, "unreachable": reasons.unreachable_reason}.get(outcome)
    return Event(
        outcome,
        host=str(data.get("host") or ""),
        task=task,
        message=describe(result) if describe else "",
        ignored=bool(data.get("ignore_errors")),
        diff="" if describe else "\n".join(_diffs(result)),
        facts=_facts(result),
    )


def _task_name(data: Mapping[str, Any]) -> str:
    role, task = str(data.get("role") or ""), str(data.get("task") or "")
    return f"{role} : {task}" if role and not task.startswith(f"{role} : ") else task


def _facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that our playbooks report: gpuform_status, and nothing else of the host."""
    facts = (result.get("ansible_facts") or {}).get("gpuform_status")
    return dict(facts) if isinstance(facts, Mapping) else {}


def _diffs(result: Mapping[str, Any]) -> Iterable[str]:
    for item in result.get("results") or [result]:
        diffs = item.get("diff") if isinstance(item, Mapping) else None
        for diff in diffs if isinstance(diffs, list) else [diffs] if diffs else []:
            if isinstance(diff, Mapping) and (text := _diff(diff)):
                yield text


def _diff(diff: Mapping[str, Any]) -> str:
    if "prepared" in diff:
        return str(diff["prepared"]).strip()
    before, after = diff.get("before"), diff.get("after")
    if not isinstance(before, str) or not isinstance(after, str):
        return ""  # attributes of the file, which the task's name tells
    names = (str(diff.get("before_header") or "before"), str(diff.get("after_header") or "after"))
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=1)
    return "\n".join(list(lines)[:60])  # longer diffs have to be read on the host


def _final_error(output: Sequence[str]) -> str:
    text = "\n".join(output)
    start = max(text.rfind("ERROR"), text.rfind("[ERROR]"))
    return " ".join(text[start:].split())[:600] if start >= 0 else " ".join(text.split())[-300:]

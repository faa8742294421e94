"""Runs of the real engine through its command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpuform import scratch, writable
from gpuform.engine import backend, checkpoint, locks, reasons
from gpuform.engine.environment import PASSPHRASE, UNSET, engine_env
from gpuform.engine.events import Event, Message, Step, Summary, Violation, counted, line
from gpuform.engine.places import Places, Tools, write
from gpuform.engine.standins import plugins
from gpuform.engine.stream import follow
from gpuform.errors import Failure
from gpuform.paths import Paths
from infra.model.state import State

OnEvent = Callable[[Event], None]

_VAGUE = ("preview failed", "update failed", "destroy failed", "refresh failed")


@dataclass(frozen=True)
class Result:
    """What one run did. ``changes`` is the engine's count by operation, ``same`` included."""

    operation: str
    stack: str
    changes: Mapping[str, int]
    duration_s: float
    steps: tuple[Step, ...] = ()
    messages: tuple[Message, ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was, or would be, done to a resource."""
        return any(count for op, count in self.changes.items() if op != "same")

    @property
    def summary(self) -> str:
        """``3 created, 20 unchanged in 12.3 s``."""
        return f"{counted(self.changes)} in {self.duration_s:.1f} s"

    @property
    def errors(self) -> tuple[str, ...]:
        """Every broken mandatory policy and every error; the engine's ``update failed`` only if alone."""
        said = [f"policy {v.policy}: {v.text}" for v in self.violations if v.mandatory]
        said += [message.text for message in self.messages if message.severity == "error"]
        return tuple(text for text in said if text not in _VAGUE) or tuple(said)


class EngineFailure(Failure):
    """A run that the engine ended with an error; ``result`` is what it did until then."""

    def __init__(self, result: Result, fact: str, remedy: str) -> None:
        """Name operation and stack as the subject."""
        super().__init__(f"pulumi {result.operation} of stack {result.stack}", fact, remedy)
        self.result = result


@dataclass
class _Record:
    steps: dict[Step, None] = field(default_factory=dict)  # ordered, and quick to ask
    messages: list[Message] = field(default_factory=list)
    violations: dict[Violation, None] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)

    def take(self, event: Event) -> bool:
        """Note the event; False if it says nothing new (a component with outputs is reported twice)."""
        match event:
            case Step(op, _, phase):
                if op == "same" or phase == "started" or event in self.steps:
                    return False
                self.steps[event] = None
            case Message():
                self.messages.append(event)
            case Violation():
                if event in self.violations:
                    return False
                self.violations[event] = None
            case Summary():
                self.summary = event
        return True


class Engine:
    """The engine of one checkout, with its own home, backend and plugins.

    Every operation creates the stack if it is missing, and gets past what a killed run left. Raises Failure
    when another run holds the stack, EngineFailure when the engine ends with an error.
    """

    def __init__(
        self, paths: Paths, toolchain: Tools, say: Callable[[str], None] = print, offline: bool = False
    ) -> None:
        """Start nothing; ``say`` takes notices, and, without a terminal, a line per change.

        ``offline`` runs reach no cloud: a stand-in answers for AWS, and the state is kept apart from that of
        real runs. Clusters at AWS are then the embedded control plane, where that is up.
        """
        self._paths = paths
        self._places = Places(paths, offline)
        self._tools = toolchain
        self._say = say
        self._runs: dict[str, tuple[dict[str, str], State | None]] = {}

    def up(
        self, stack: str = "local", on_event: OnEvent | None = None, policy_packs: Sequence[Path] = ()
    ) -> Result:
        """Make the stack what the program says. No preview is run before it."""
        arguments = ["--yes", "--skip-preview", *_packs(policy_packs)]
        return self._operate("up", stack, arguments, on_event)

    def preview(
        self, stack: str = "local", on_event: OnEvent | None = None, policy_packs: Sequence[Path] = ()
    ) -> Result:
        """What ``up`` would do."""
        return self._operate("preview", stack, _packs(policy_packs), on_event)

    def destroy(
        self, stack: str = "local", on_event: OnEvent | None = None, targets: Sequence[str] = ()
    ) -> Result:
        """Delete everything that the stack's state knows of, or these URNs alone; the stack itself stays."""
        only = [word for urn in targets for word in ("--target", urn)]
        return self._operate("destroy", stack, ["--yes", "--skip-preview", *only], on_event)

    def refresh(self, stack: str = "local", on_event: OnEvent | None = None) -> Result:
        """Take over into the state what is really there."""
        return self._operate("refresh", stack, ["--yes", "--skip-preview"], on_event)

    def drift(self, stack: str = "local", on_event: OnEvent | None = None) -> Result:
        """What ``refresh`` would take over: a step per resource that is not as it was; writes nothing."""
        return self._operate("refresh", stack, ["--preview-only"], on_event)

    def outputs(self, stack: str = "local", show_secrets: bool = False) -> dict[str, Any]:
        """What the program exported; a secret is ``[secret]`` unless asked for."""
        shown = ["--show-secrets"] if show_secrets else []
        env = self.prepare(stack)
        said = self._ask(env, "stack", "output", "--json", "--stack", stack, *shown)
        outputs: dict[str, Any] = json.loads(said)
        return outputs

    def export(self, stack: str = "local") -> dict[str, Any]:
        """The state as ``pulumi stack export`` gives it, secrets encrypted."""
        env = self.prepare(stack)
        state: dict[str, Any] = json.loads(self._ask(env, "stack", "export", "--stack", stack))
        return state

    def restore(self, stack: str, state: Mapping[str, Any]) -> None:
        """Put a state in place of the stack's own, as ``pulumi stack import`` does."""
        env = self.prepare(stack)
        with scratch.folder(self._places.runs) as folder:
            write(folder / "state.json", json.dumps(state), 0o600)
            self._ask(env, "stack", "import", "--stack", stack, "--file", str(folder / "state.json"))

    def prepare(self, stack: str = "local") -> dict[str, str]:
        """Make sure that ``stack`` exists and can be worked on; the environment of its runs."""
        env, shared = self._runs.get(stack) or self._environment(stack)
        project = backend.project(self._paths.root)
        if shared is not None:
            backend.make(self._places, project, stack, shared, partial(self._ask, env))
            return env
        for said in locks.release_dead(self._places.locks(project, stack), stack):
            self._say(said)
        state = self._places.checkpoint(project, stack)
        for said in checkpoint.repair(state, stack, self._places.offline):
            self._say(said)
        if not state.exists():
            # From a folder of its own: the engine writes a new stack's salt next to the project file.
            write(self._places.project / "Pulumi.yaml", f"name: {project}\nruntime: python\n", 0o600)
            self._ask(env, "stack", "init", stack, "--no-select", "--cwd", str(self._places.project))
        return env

    def _environment(self, stack: str) -> tuple[dict[str, str], State | None]:
        writable.require_state(self._paths.state)
        shared = None if self._places.offline else backend.declared(self._paths.root, stack)
        ours = engine_env(self._paths, self._tools, stack, self._places.offline)
        # Whoever runs the engine by us has asked the account before, or wants it left alone.
        env = backend.without(UNSET, ours, PASSPHRASE) | ours | {"GPUFORM_SKIP_PREFLIGHT": "1"}
        if shared is not None:
            backend.require_passphrase(stack, shared, env)
        for plugin in plugins(self._paths):
            if plugin.notice and not self._runs:
                self._say(plugin.notice)
        self._runs[stack] = env, shared
        return self._runs[stack]

    def _operate(
        self, operation: str, stack: str, arguments: Sequence[str], on_event: OnEvent | None
    ) -> Result:
        env = self.prepare(stack)
        terminal = on_event is None and sys.stdout.isatty()
        command = [str(self._paths.shims / "pulumi"), operation, "--stack", stack, *arguments]
        record = _Record()

        def take(event: Event) -> None:
            new = record.take(event)
            if on_event is not None:
                on_event(event)
            elif new and not terminal and (text := line(event)):
                self._say(text)

        began = time.monotonic()
        log = self._paths.logs / f"pulumi-{operation}-{stack}.log"
        root, runs = self._paths.root, self._places.runs
        if terminal:
            code = follow(command, env=env, cwd=root, runs=runs, output=None, on_event=take)
        else:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as output:
                command += ["--color", "never", "--non-interactive"]
                code = follow(command, env=env, cwd=root, runs=runs, output=output, on_event=take)
        result = Result(
            operation,
            stack,
            record.summary.changes,
            time.monotonic() - began,
            tuple(record.steps),
            tuple(record.messages),
            tuple(record.violations),
        )
        if code != 0:
            raise _failure(result, code, None if terminal else log)
        return result

    def _ask(self, env: Mapping[str, str], *arguments: str) -> str:
        command = [str(self._paths.shims / "pulumi"), *arguments, "--non-interactive", "--color", "never"]
        answer = subprocess.run(command, env=env, cwd=self._paths.root, capture_output=True, text=True)
        if answer.returncode != 0:
            if held := locks.held(answer.stderr, " ".join(arguments)):
                raise held
            said = answer.stderr.strip().removeprefix("error: ")
            raise Failure(
                f"pulumi {' '.join(arguments[:2])}", said or f"exit code {answer.returncode}", "see above"
            )
        return answer.stdout


def _packs(folders: Sequence[Path]) -> list[str]:
    return [word for folder in folders for word in ("--policy-pack", str(folder))]


def _failure(result: Result, code: int, log: Path | None) -> Failure:
    """The failure of a run, with the engine's own reason where it gave one, or with who holds the stack."""
    if held := locks.held(reasons.written(log), result.stack):
        return held
    fact = reasons.fact(result.errors, code, log)
    return EngineFailure(result, fact, f"see {log}" if log else "see the engine's output above")

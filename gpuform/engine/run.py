"""Runs of the real engine through its command line."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine import backend, checkpoint, locks, pending
from gpuform.engine.environment import PASSPHRASE, UNSET_VARIABLES, engine_env
from gpuform.engine.events import Display, Event
from gpuform.engine.files import EngineFiles, Tools, write
from gpuform.engine.result import (
    FORCE,
    EngineFailure,
    Record,
    Result,
    conflicts,
    failure_reason,
    preview_with_pods,
    read_log,
    retry_with_force,
)
from gpuform.engine.standins import plugins
from gpuform.engine.stream import follow
from infra import strict_yaml
from infra.config import KEY
from infra.model.base import guard_names
from infra.model.platform.state import State

_LONG = 50_000
"""Characters of a stack file up to which its configuration certainly fits into a variable."""
POLICY_CONFIG = "policy-config.json"
"""File in the project's folder: settings of policies by the policy's name."""
OnEvent = Callable[[Event], None]


class Engine:
    """The engine of one checkout, with its own home, backend and plugins.

    Every operation creates the stack if it is missing, and cleans up after a killed run. Raises Failure if
    another run holds the stack, EngineFailure if the engine ends with an error.
    """

    def __init__(
        self,
        paths: Paths,
        toolchain: Tools,
        say: Callable[[str], None] = print,
        offline: bool = False,
        show_work: Callable[[str], None] = lambda text: None,
        only: Sequence[str] = (),
    ) -> None:
        """``say`` and ``show_work`` take what a `Display` prints; ``say`` also takes notices.

        ``offline`` runs reach no cloud: a stand-in replaces AWS, and the state is separate from that of real
        runs. Clusters at AWS are then the embedded control plane, if that runs. With ``only``, of
        `guard_names.SCOPE`, programs leave the rest of the platform out.
        """
        self._paths = paths
        self._files = EngineFiles(paths, offline)
        self._tools = toolchain
        self._say = say
        self._show_work = show_work
        self._only = ",".join(only)
        self._runs: dict[str, tuple[dict[str, str], State | None]] = {}

    def up(
        self,
        stack: str = "local",
        on_event: OnEvent | None = None,
        policy_packs: Sequence[Path] = (),
        settle: Callable[[Sequence[pending.Operation]], object] | None = None,
        acknowledged: Sequence[str] = (),
    ) -> Result:
        """Update the stack; no preview is run before it.

        ``settle`` gets the pending operations of a killed run, if any, and may change the state;
        ``acknowledged`` are names of what may be lost, beside those in the stack file. Fields of the stack's
        objects that other managers have set are taken back. Raises Failure, and changes nothing, while the
        state has pending creates.
        """
        packs = self._policies(policy_packs)

        def run(forced: Sequence[str]) -> Result:
            arguments = ["--yes", "--skip-preview", *packs, *_repeat("--target", forced)]
            variables = FORCE if forced else {}
            return self._operate("up", stack, arguments, on_event, settle, acknowledged, variables)

        return retry_with_force(run, self._say)

    def preview(
        self,
        stack: str = "local",
        on_event: OnEvent | None = None,
        policy_packs: Sequence[Path] = (),
        acknowledged: Sequence[str] = (),
    ) -> Result:
        """Preview an update; with ``*`` among ``acknowledged``, losses are warnings and not errors."""
        unprotected = ["--ignore-protect"] if guard_names.REPORT in acknowledged else []
        arguments = [*self._policies(policy_packs), *unprotected]
        force = FORCE  # as `up` does, with dry runs alone

        def run(left_out: Sequence[str]) -> Result:
            words = [*arguments, *_repeat("--exclude", left_out)]
            return self._operate("preview", stack, words, on_event, None, acknowledged, force)

        return preview_with_pods(run)

    def _policies(self, packs: Sequence[Path]) -> list[str]:
        """Each pack, with the project's configuration of policies, if there is one."""
        config = self._paths.root / POLICY_CONFIG
        configs = _repeat("--policy-pack-config", [config] * len(packs)) if config.is_file() else []
        return [*_repeat("--policy-pack", packs), *configs]

    def destroy(
        self, stack: str = "local", on_event: OnEvent | None = None, spared: Sequence[str] = ()
    ) -> Result:
        """Delete everything in the stack's state, protected or not, except ``spared`` (URNs).

        What these depend on stays as well, and so does the stack. Targets are not used: for each target the
        engine (3.256) asks the Kubernetes provider about an unknown kubeconfig, and then uses the connection
        that it closed because of the answer. Raises Failure, and deletes nothing, as ``up`` does: resources
        that a killed run was creating would be orphaned.
        """
        words = ["--yes", "--skip-preview", "--ignore-protect", *_repeat("--exclude", spared)]
        return self._operate("destroy", stack, words, on_event)

    def refresh(
        self, stack: str = "local", on_event: OnEvent | None = None, targets: Sequence[str] = ()
    ) -> Result:
        """Refresh the state from the live resources, or from ``targets`` (URNs) only."""
        arguments = ["--yes", "--skip-preview", *_repeat("--target", targets)]
        return self._operate("refresh", stack, arguments, on_event)

    def drift(self, stack: str = "local", on_event: OnEvent | None = None) -> Result:
        """What ``refresh`` would change: one step per resource with drift; writes nothing."""
        return self._operate("refresh", stack, ["--preview-only"], on_event)

    def outputs(self, stack: str = "local", show_secrets: bool = False) -> dict[str, Any]:
        """Outputs of the stack; a secret is ``[secret]`` unless ``show_secrets``."""
        options = ["--show-secrets"] if show_secrets else []
        output = self.run_pulumi(self.prepare(stack), "stack", "output", "--json", "--stack", stack, *options)
        outputs: dict[str, Any] = json.loads(output)
        return outputs

    def export(self, stack: str = "local") -> dict[str, Any]:
        """The state as ``pulumi stack export`` gives it, secrets encrypted."""
        return self.deployment(self.prepare(stack), stack)

    def deployment(self, env: Mapping[str, str], stack: str, show_secrets: bool = False) -> dict[str, Any]:
        """As ``export``, with the given environment and without preparing the stack."""
        flags = ["--show-secrets"] if show_secrets else []
        state: dict[str, Any] = json.loads(self.run_pulumi(env, "stack", "export", "--stack", stack, *flags))
        return state

    def tool(self, name: str) -> Path:
        return self._tools.path(name)

    def interrupted(self, stack: str = "local") -> list[pending.Operation]:
        """The pending operations of an interrupted run that the next run does not resume by itself."""
        return pending.operations(self._state(self.prepare(stack), stack))

    def _state(self, env: Mapping[str, str], stack: str) -> dict[str, Any]:
        """As ``deployment``, without starting an engine if the state is a file beside the checkout."""
        if self.environment(stack)[1] is not None:
            return self.deployment(env, stack)
        project = backend.project_name(self._paths.root)
        return checkpoint.read_deployment(self._files.checkpoint(project, stack))

    def restore(self, stack: str, state: Mapping[str, Any]) -> None:
        """Replace the stack's state, as ``pulumi stack import`` does."""
        self.run_pulumi(self.prepare(stack), "stack", "import", "--stack", stack, stdin=json.dumps(state))

    def forget(self, stack: str) -> int:
        """Forget what lay on a control plane that no longer exists, and return the number of resources.

        Nothing is forgotten of a declared state, nor while a resource lies outside the control plane: only
        the state records it. Raises Failure, and forgets nothing, while a run holds the stack.
        """
        project = backend.project_name(self._paths.root)
        if backend.declared_state(self._paths.root, stack) is not None and not self._files.offline:
            return 0
        file = self._files.checkpoint(project, stack)
        resources = checkpoint.read_deployment(file)["deployment"].get("resources") or ()
        if not self._files.offline and checkpoint.has_outside(resources, self._paths):
            return 0
        if resources:
            locks.release_dead(self._files.locks(project, stack), stack)
            file.unlink()
        return len(resources)

    def prepare(self, stack: str = "local") -> dict[str, str]:
        """Create or repair ``stack`` if necessary; returns the environment of its runs."""
        env, declared = self.environment(stack)
        project, run = backend.project_name(self._paths.root), partial(self.run_pulumi, env)
        if declared is not None:
            backend.create_stack(self._files, project, stack, run, declared)
            return env
        for message in locks.release_dead(self._files.locks(project, stack), stack):
            self._say(message)
        state = self._files.checkpoint(project, stack)
        for message in checkpoint.repair(state, stack, self._files.offline):
            self._say(message)
        if not state.exists():
            backend.create_stack(self._files, project, stack, run)
        return env

    def environment(self, stack: str) -> tuple[dict[str, str], State | None]:
        """Environment of the stack's runs, and its declared state; neither creates nor repairs the stack."""
        if cached := self._runs.get(stack):
            return cached
        writable.require_state(self._paths.state)
        declared = None if self._files.offline else backend.declared_state(self._paths.root, stack)
        own_variables = engine_env(self._paths, self._tools, stack, self._files.offline)
        env = backend.environment_without(UNSET_VARIABLES, own_variables, PASSPHRASE) | own_variables
        if declared is not None:
            backend.require_passphrase(stack, declared, env)
        file = self._paths.root / f"Pulumi.{stack}.yaml"
        for plugin in plugins(self._paths, self._files.offline):
            if (notice := plugin.notice(file, self._files.offline)) and not self._runs:
                self._say(notice)
        self._runs[stack] = env, declared
        return self._runs[stack]

    def _stack_copy(self, stack: str) -> dict[str, str]:
        """A copy of the stack file for the engine, which writes an encryption salt into the file.

        Without a salt that the file has, unless it has secret values: it may be of another passphrase.
        """
        file = self._paths.root / f"Pulumi.{stack}.yaml"
        if not file.is_file():
            return {}
        text, copy = file.read_text(encoding="utf-8"), self._files.stack_file(stack)
        if "secure:" not in text:
            text = re.sub(r"(?m)^encryptionsalt:.*\n?", "", text)
            if len(text) > _LONG:
                text = self._with_environment_aside(text, copy.with_suffix(".json"))
        write(copy, text, 0o600)
        return {"PULUMI_OPTION_CONFIG_FILE": str(copy)}

    def _with_environment_aside(self, text: str, aside: Path) -> str:
        """The stack file's text with the path of a file with its environment, if it has one.

        The engine gives plugins the configuration in one variable (provider_plugin.go, PULUMI_CONFIG), and
        Linux takes 128 KiB (MAX_ARG_STRLEN): a thousand workloads are more.
        """
        content = yaml.load(text, strict_yaml.Loader)  # noqa: S506  (a SafeLoader)
        config = content.get("config") or {}
        if KEY not in config:
            return text
        write(aside, json.dumps(config.pop(KEY)), 0o600)
        return yaml.safe_dump({**content, "config": {**config, f"{KEY}-file": str(aside)}})

    def _operate(
        self,
        operation: str,
        stack: str,
        arguments: Sequence[str],
        on_event: OnEvent | None,
        settle: Callable[[Sequence[pending.Operation]], object] | None = None,
        acknowledged: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Result:
        env = self.prepare(stack) | self._stack_copy(stack)
        env |= {guard_names.VARIABLE: " ".join(acknowledged), guard_names.ONLY: self._only, **variables}
        options: list[str] = []
        if operation in ("up", "destroy"):
            state = self._state(env, stack)
            if settle and (operations := pending.operations(state)):
                settle(operations)
                state = self._state(env, stack)
            pending.require_none(state, stack, destroyed=operation == "destroy")
            # The engine checks the old resource's protection, which the program cannot lift in the same run.
            environment = checkpoint.guard_records(state).get("environment")
            options = ["--ignore-protect"] if operation == "up" and environment in acknowledged else []
        log = self._paths.logs / f"pulumi-{operation}-{stack}.log"
        command = [str(self._paths.shims / "pulumi"), operation, "--stack", stack, *arguments, *options]
        command += ["--color", "never", "--non-interactive"]
        record, display = Record(), Display(self._say, self._show_work)

        def take(event: Event) -> None:
            record.add(event)
            if on_event is not None:
                on_event(event)
            else:
                display.take(event)

        start = time.monotonic()
        root, runs = self._paths.root, self._files.runs
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            code = follow(command, env=env, cwd=root, runs=runs, output=output, on_event=take)
        result = Result(
            operation,
            stack,
            record.changes,
            time.monotonic() - start,
            tuple(record.steps),
            tuple(record.messages),
            tuple(record.violations),
        )
        display.end(show_errors=not conflicts(result))
        if code == 0:
            return result
        if failure := locks.locked_failure(read_log(log), stack):
            raise failure
        fact = failure_reason(result.errors, code, log)
        raise EngineFailure(result, fact, f"see {log}")

    def run_pulumi(self, env: Mapping[str, str], *arguments: str, stdin: str | None = None) -> str:
        """Output of a pulumi command; ``stdin`` is its input. Raises Failure if it ends with an error."""
        command = [str(self._paths.shims / "pulumi"), *arguments, "--non-interactive", "--color", "never"]
        result = subprocess.run(
            command, env=env, cwd=self._paths.root, input=stdin, capture_output=True, text=True
        )
        if result.returncode != 0:
            options = dict(pairwise(arguments))
            stack = options.get("--stack") or options.get("init") or ""
            if failure := locks.locked_failure(result.stderr, stack):
                raise failure
            message = result.stderr.strip().removeprefix("error: ")
            raise Failure(
                f"pulumi {' '.join(arguments[:2])}", message or f"exit code {result.returncode}", "see above"
            )
        return result.stdout


def _repeat(option: str, values: Iterable[object]) -> list[str]:
    return [word for value in values for word in (option, str(value))]

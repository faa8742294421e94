"""Runs previews: reads the cluster or has the base simulated, then lets the engine preview the change."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.placeholders import require_own_values
from gpuform.checkout.scratch import preserved_logs
from gpuform.checkout.stacks import stack_file
from gpuform.engine import Engine, EngineFailure
from gpuform.engine.files import Tools
from gpuform.stack import scope
from gpuform.stack.cluster_access import ClusterAccess, read_only_kubeconfig
from gpuform.stack.preflight import Refusals, require_possible
from gpuform.stack.preflight.check import require_sdk
from gpuform.stack.preview.effect import PreviewRules
from gpuform.stack.preview.effects import find_effects, guard_notes
from gpuform.stack.preview.outcome import Outcome
from gpuform.stack.preview.snapshot import Snapshot, declared_snapshot, read_snapshot
from infra.config import load, price_list
from infra.model.base.guard_names import REPORT
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.plan.cost import bill
from policies import clock

Say = Callable[[str], None]
_GUARD_PREFIX = re.compile(r"^failed: gpuform:(?:openstack|guards):\w+ resource '[^']+' has a problem: ")
"""The engine's prefix of a guard's refusal, which names its resource itself."""


@dataclass(frozen=True)
class SimulatedBase:
    """A control plane and a state with a base's resources; ``before`` None: the base has no such stack.

    Without resources if the stack does not create the cluster: such a base cannot be simulated.
    """

    paths: Paths
    before: Environment | None
    snapshot: Snapshot


Simulate = Callable[[Paths, Tools, str, str | None, Say], AbstractContextManager[SimulatedBase]]
"""Creates a stack's base without a cloud: checkout, tools, stack, base."""


@dataclass(frozen=True)
class Preview:
    """One preview: its stack, its options, and the losses that its reader has acknowledged.

    ``base`` is a folder or a commit; offline previews, which need ``simulate``, then start from what it
    declares. ``clouds``: the rules of every kind of cluster. ``only`` as in `scope`.
    """

    paths: Paths
    tools: Tools
    stack: str
    clouds: Sequence[PreviewRules]
    offline: bool = False
    base: str | None = None
    acknowledged: tuple[str, ...] = ()
    say: Say = print
    simulate: Simulate | None = None
    reach: Callable[[Environment], ClusterAccess] | None = None
    refusals: Callable[[Environment], Refusals] | None = None
    only: str | None = None

    def run(self) -> Outcome:
        """The outcome; an invalid stack file in the change is part of it, since its author reads the summary.

        Raises InputError for an invalid base or GPUFORM_TODAY, and Failure if nothing could be determined.
        """
        try:
            clock.today()
        except ValueError:
            raise InputError(clock.VARIABLE, "is not a day", "write it as 2026-11-25") from None
        env, outcome = self._load_declared()
        if env is None:
            return outcome
        if not self.offline:
            return self._preview_live(env, outcome)
        assert self.simulate is not None
        with self.simulate(self.paths, self.tools, self.stack, self.base, self.say) as base:
            return self._preview_offline(env, base, outcome)

    def _load_declared(self) -> tuple[Environment | None, Outcome]:
        """The change's environment and the outcome so far; the environment is None if its file is invalid."""
        outcome = Outcome(self.stack, self.offline, False, {}, acknowledged=self.acknowledged)
        file = stack_file(self.stack, self.paths)
        try:
            env = load(file)
            require_sdk(env)
            if not self.offline:
                require_own_values(env)
        except InputError as error:
            return None, self._refused(outcome, error)
        for line in warnings(env):
            self.say(f"warning: {line}")
        accepted = (*self.acknowledged, *env.acknowledge_loss)
        bills = bill(env, price_list(env, self.paths.prices))
        return env, replace(outcome, after=bills, warnings=warnings(env), acknowledged=accepted)

    def _refused(self, outcome: Outcome, error: InputError) -> Outcome:
        """Its author reads the summary, not this machine's paths."""
        text = "\n".join(map(str, error.errors)).replace(f"{self.paths.root}/", "")
        return replace(outcome, error=text, refused=error)

    def _preview_live(self, env: Environment, outcome: Outcome) -> Outcome:
        assert self.reach is not None
        only = scope.parse(self.only, env)
        engine = Engine(self.paths, self.tools, say=self.say, only=only)
        state = engine.export(self.stack)
        scope.require_same(self.stack, state, only)
        before = _deployed_environment(engine, self.stack)
        try:
            with read_only_kubeconfig(env, self.reach(env), self.paths, self.stack, self.tools) as kubeconfig:
                snapshot = read_snapshot(*kubeconfig)
        except (Failure, InputError, OSError, ValueError):  # not created yet, or unreachable
            snapshot = declared_snapshot(before)
        outcome = replace(
            outcome, before=bill(before, price_list(before, self.paths.prices)) if before else None
        )
        return self._run_engine(env, engine, snapshot, outcome, state)

    def _preview_offline(self, env: Environment, base: SimulatedBase, outcome: Outcome) -> Outcome:
        before = bill(base.before, price_list(base.before, self.paths.prices)) if base.before else None
        paths = replace(base.paths, root=self.paths.root)
        engine = Engine(paths, self.tools, say=self.say, offline=True)
        base_is_unknown = base.before is not None and not base.before.cluster.created
        outcome = replace(outcome, before=before, base_is_unknown=base_is_unknown)
        state = engine.export(self.stack) if self.refusals else None
        return self._run_engine(env, engine, base.snapshot, outcome, state, base.paths)

    def _run_engine(
        self,
        env: Environment,
        engine: Engine,
        snapshot: Snapshot,
        outcome: Outcome,
        state: Mapping[str, Any] | None,
        own: Paths | None = None,
    ) -> Outcome:
        """``state`` is the stack's; ``own`` holds that of the preview, which is removed at its end."""
        packs: Sequence[Path] = (self.paths.installation / "policies",)
        error = ""
        try:
            if self.refusals:
                require_possible(self.refusals(env), env, state, not self.offline)
            accepted = (*outcome.acknowledged, REPORT)
            result = engine.preview(self.stack, lambda event: None, packs, accepted)
        except InputError as refused:
            return self._refused(outcome, refused)
        except EngineFailure as failure:
            result = failure.result
            error = _error_text(failure)
            if own is not None:
                failure.replace_path(str(own.logs), str(preserved_logs(own)))
            if error:
                self.say(f"{failure.subject}: {failure.remedy}")
        found_effects = find_effects(result.steps, snapshot, self.clouds)
        losses, warnings = guard_notes(result.messages, found_effects)
        return replace(
            outcome,
            live=snapshot.live,
            warnings=(*outcome.warnings, *warnings),
            changes=result.changes,
            steps=result.steps,
            effects=(*losses, *found_effects),
            violations=result.violations,
            error=error,
        )


def _error_text(failure: EngineFailure) -> str:
    """Why the engine failed; empty if a policy was the reason, since violations are shown separately."""
    messages = [message.text for message in failure.result.messages if message.severity == "error"]
    if failure.result.violations and all(text == "preview failed" for text in messages):
        return ""
    return _GUARD_PREFIX.sub("", failure.fact)


def _deployed_environment(engine: Engine, stack: str) -> Environment | None:
    """The environment of the last `up`; None before the first, or if an older program wrote it."""
    from infra.config import parse

    output = engine.outputs(stack).get("environment")
    try:
        return parse(output) if isinstance(output, dict) else None
    except InputError:
        return None


_IGNORED = shutil.ignore_patterns(".git", ".venv", ".gpuform", "node_modules", "__pycache__", ".*_cache")


@contextmanager
def checkout_base(root: Path, base: str) -> Iterator[Path]:
    """A temporary copy of ``base``, with the packages that ``root`` has installed.

    Folder and repository are only read. InputError if ``base`` is neither a project nor a commit.
    """
    with TemporaryDirectory(prefix="gpuform-base-") as temporary:
        folder = Path(temporary) / "base"
        if (Path(base) / "Pulumi.yaml").is_file():
            shutil.copytree(base, folder, ignore=_IGNORED)
        else:
            with tarfile.open(fileobj=io.BytesIO(_archive(root, base))) as files:
                # Python 3.11.2, Debian 12's own, has neither the attribute nor extractall(filter=).
                files.extraction_filter = _inside if hasattr(tarfile, "data_filter") else None
                files.extractall(folder)  # noqa: S202
        for environment in (marker.parent for marker in root.glob("*/pyvenv.cfg")):
            if not (link := folder / environment.name).exists():
                link.symlink_to(environment.resolve())
        yield folder


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """None for a link out of the folder, which no program of a stack needs."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _archive(root: Path, commit: str) -> bytes:
    files = [".", ":(exclude).gpuform"]  # a project without .gitignore may have committed it
    command = ["git", "-C", str(root), "archive", "--format=tar", f"{commit}^{{commit}}", "--", *files]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (subprocess.CalledProcessError, FileNotFoundError):
        fact = f"{commit} is neither a folder with Pulumi.yaml nor a commit of the project's git repository"
        raise InputError(
            "--base", fact, "name one; a new project needs `git init` and a commit first"
        ) from None

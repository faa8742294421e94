"""Runs previews: reads the cluster or has the base simulated, then lets the engine preview the change."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import kept_logs
from gpuform.checkout.stacks import file_of
from gpuform.engine import Engine, EngineFailure
from gpuform.engine.places import Tools
from gpuform.stack.cluster_access import ClusterAccess, access
from gpuform.stack.preview.effect import PreviewRules
from gpuform.stack.preview.effects import effects, told
from gpuform.stack.preview.outcome import Outcome
from gpuform.stack.preview.world import World, declared, read
from infra.config import load, price_list
from infra.model.environment import Environment
from infra.model.losses import REPORT
from infra.plan.cost import bill
from policies import clock

Say = Callable[[str], None]
_GUARDED = re.compile(r"^failed: gpuform:openstack:ReplacementGuard resource '[^']+' has a problem: ")
"""The engine's prefix of a guard's refusal, which names its resource itself."""


@dataclass(frozen=True)
class Played:
    """A control plane and a state with a base's resources; ``before`` None: the base has no such stack.

    Without resources if the stack does not create the cluster: such a base cannot be simulated.
    """

    paths: Paths
    before: Environment | None
    world: World


Simulate = Callable[[Paths, Tools, str, str | None, Say], AbstractContextManager[Played]]
"""Creates a stack's base without a cloud: checkout, tools, stack, base."""


@dataclass(frozen=True)
class Preview:
    """One preview: its stack, its options, and the losses that its reader has acknowledged.

    ``base`` is a folder or a commit; offline previews, which need ``simulate``, then start from what it
    declares. ``clouds``: the rules of every kind of cluster.
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

    def run(self) -> Outcome:
        """The outcome; an invalid stack file in the change is part of it, since its author reads the summary.

        Raises InputError for an invalid base or GPUFORM_TODAY, and Failure if nothing could be determined.
        """
        try:
            clock.today()
        except ValueError:
            raise InputError(clock.VARIABLE, "is not a day", "write it as 2026-11-25") from None
        if self.base is not None and not self.offline:
            raise InputError("--base", "only an offline preview can start from a base", "add --offline")
        env, blank = self._declared()
        if env is None:
            return blank
        if not self.offline:
            return self._live(env, blank)
        assert self.simulate is not None
        with self.simulate(self.paths, self.tools, self.stack, self.base, self.say) as base:
            return self._against(base, blank)

    def _declared(self) -> tuple[Environment | None, Outcome]:
        """The change's environment and the outcome so far; the environment is None if its file is invalid."""
        blank = Outcome(self.stack, self.offline, False, {}, acknowledged=self.acknowledged)
        file = file_of(self.stack, self.paths)
        try:
            env = load(file)
        except InputError as error:
            # Its author reads the summary, not this machine's paths.
            return None, replace(blank, error=str(error).replace(f"{self.paths.root}/", ""))
        for line in env.warnings:
            self.say(f"warning: {line}")
        accepted = (*self.acknowledged, *env.acknowledge_loss)
        bills = bill(env, price_list(env))
        return env, replace(blank, after=bills, warnings=env.warnings, acknowledged=accepted)

    def _live(self, env: Environment, blank: Outcome) -> Outcome:
        assert self.reach is not None
        engine = Engine(self.paths, self.tools, say=self.say)
        before = _deployed(engine, self.stack)
        try:
            with access(env, self.reach(env), self.paths, self.stack, self.tools) as found:
                world = read(*found)
        except (Failure, InputError, OSError, httpx.HTTPError, ValueError):  # not created yet, or unreachable
            world = declared(before)
        blank = replace(blank, before=bill(before, price_list(before)) if before else None)
        return self._previewed(engine, world, blank)

    def _against(self, base: Played, blank: Outcome) -> Outcome:
        before = bill(base.before, price_list(base.before)) if base.before else None
        paths = replace(base.paths, root=self.paths.root)
        engine = Engine(paths, self.tools, say=self.say, offline=True)
        unplayed = base.before is not None and not base.before.cluster.created
        blank = replace(blank, before=before, unplayed=unplayed)
        return self._previewed(engine, base.world, blank, base.paths)

    def _previewed(self, engine: Engine, world: World, blank: Outcome, own: Paths | None = None) -> Outcome:
        """``own`` is the temporary state of the preview, which is removed at its end."""
        packs: Sequence[Path] = (self.paths.root / "policies",)
        error = ""
        try:
            accepted = (*blank.acknowledged, REPORT)
            result = engine.preview(self.stack, lambda event: None, packs, accepted)
        except EngineFailure as failure:
            result = failure.result
            error = _error(failure)
            if own is not None:
                failure.rename(str(own.logs), str(kept_logs(own)))
            if error:
                self.say(f"{failure.subject}: {failure.remedy}")
        found = effects(result.steps, world, self.clouds)
        losses, said = told(result.messages, found)
        return replace(
            blank,
            live=world.live,
            warnings=(*blank.warnings, *said),
            changes=result.changes,
            steps=result.steps,
            effects=(*losses, *found),
            violations=result.violations,
            error=error,
        )


def _error(failure: EngineFailure) -> str:
    """Why the engine failed; empty if a policy was the reason, since violations are shown separately."""
    said = [message.text for message in failure.result.messages if message.severity == "error"]
    if failure.result.violations and all(text == "preview failed" for text in said):
        return ""
    return _GUARDED.sub("", failure.fact)


def _deployed(engine: Engine, stack: str) -> Environment | None:
    """The environment of the last `up`; None before the first, or if an older program wrote it."""
    from infra.config import parse

    found = engine.outputs(stack).get("environment")
    try:
        return parse(found) if isinstance(found, dict) else None
    except InputError:
        return None


_NOT_OURS = shutil.ignore_patterns(".git", ".venv", ".gpuform", "node_modules", "__pycache__", ".*_cache")


@contextmanager
def checkout(root: Path, base: str) -> Iterator[Path]:
    """A temporary copy of ``base``, with the packages that ``root`` has installed.

    Folder and repository are only read. InputError if ``base`` is neither a checkout nor a commit.
    """
    with TemporaryDirectory(prefix="gpuform-base-") as temporary:
        folder = Path(temporary) / "base"
        if (Path(base) / "Pulumi.yaml").is_file():
            shutil.copytree(base, folder, ignore=_NOT_OURS)
        else:
            with tarfile.open(fileobj=io.BytesIO(_archive(root, base))) as files:
                # Python 3.11.2, Debian 12's own, has neither the attribute nor extractall(filter=).
                files.extraction_filter = getattr(tarfile, "data_filter", None)
                files.extractall(folder)  # noqa: S202
        if not (folder / ".venv").exists() and (root / ".venv").exists():
            (folder / ".venv").symlink_to((root / ".venv").resolve())
        yield folder


def _archive(root: Path, commit: str) -> bytes:
    command = ["git", "-C", str(root), "archive", "--format=tar", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (subprocess.CalledProcessError, FileNotFoundError):
        fact = f"{commit} is neither a checkout of this project nor a commit of its repository"
        raise InputError("--base", fact, "name a folder with Pulumi.yaml, or a commit") from None

"""Previews: what is there, the base where one is given, and what the engine would do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from gpuform.embedded import ControlPlane
from gpuform.embedded.kwokctl import Tools
from gpuform.engine import Engine, EngineFailure
from gpuform.errors import InputError
from gpuform.paths import Paths
from gpuform.preview.base import checkout
from gpuform.preview.effects import effects
from gpuform.preview.outcome import Outcome
from gpuform.preview.world import World, declared, read
from gpuform.status import cluster_of
from infra.config import load
from infra.model.environment import Environment
from infra.model.prices import PriceList
from infra.plan.cost import bill

Say = Callable[[str], None]


@dataclass(frozen=True)
class Preview:
    """One preview: of which stack, how, and what its reader already knows of.

    ``base`` is a folder or a commit, and previews offline then begin with what it declares.
    """

    paths: Paths
    tools: Tools
    stack: str
    offline: bool = False
    base: str | None = None
    acknowledged: tuple[str, ...] = ()
    say: Say = print

    def run(self) -> Outcome:
        """The outcome; bad input in the change itself is one, too, for its author reads the summary.

        Raises InputError for a base that is none, and Failure where nothing could be found out at all.
        """
        blank = Outcome(self.stack, self.offline, False, {}, acknowledged=self.acknowledged)
        if self.base is not None and not self.offline:
            raise InputError(
                "--base", "a preview that is not offline begins with what is there", "add --offline"
            )
        try:
            env = load(self.paths.root / f"Pulumi.{self.stack}.yaml")
        except InputError as error:
            if not (self.paths.root / f"Pulumi.{self.stack}.yaml").exists():
                raise
            return replace(blank, error=str(error))
        blank = replace(blank, after=bill(env, PriceList()))
        return self._offline(env, blank) if self.offline else self._live(env, blank)

    def _live(self, env: Environment, blank: Outcome) -> Outcome:
        engine = Engine(self.paths, self.tools, say=self.say)
        before = _deployed(engine, self.stack)
        try:
            world = read(*cluster_of(env, self.paths))
        except (OSError, httpx.HTTPError, ValueError):
            world = declared(before)
        blank = replace(blank, before=bill(before, PriceList()) if before else None)
        return self._previewed(engine, world, blank)

    def _offline(self, env: Environment, blank: Outcome) -> Outcome:
        with self._plane() as paths:
            if self.base is None:
                engine = Engine(paths, self.tools, say=self.say, offline=True)
                return self._previewed(engine, declared(None), blank)
            with checkout(self.paths.root, self.base) as folder:
                before, world = self._based(folder, paths)
            if before is not None:
                blank = replace(blank, before=bill(before, PriceList()))
            engine = Engine(paths, self.tools, say=self.say, offline=True)
            return self._previewed(engine, world, blank)

    def _based(self, folder: Path, paths: Paths) -> tuple[Environment | None, World]:
        """Make the stack what the base declares; nothing where the base does not have the stack."""
        file = folder / f"Pulumi.{self.stack}.yaml"
        if not file.exists():
            return None, declared(None)
        before = load(file)
        self.say(f"playing the base of {self.stack} ({self.base})")
        based = replace(paths, root=folder)
        Engine(based, self.tools, say=self.say, offline=True).up(self.stack, on_event=lambda event: None)
        if before.cluster.kind != "embedded":
            return before, declared(before)
        return before, read(paths.kubeconfig)

    @contextmanager
    def _plane(self) -> Iterator[Paths]:
        """A control plane and a state of their own, gone afterwards."""
        paths = replace(self.paths, state=self.paths.state / "preview" / self.stack)
        plane = ControlPlane(paths, self.tools)
        _forget(plane, paths)  # of a preview that was killed
        self.say("starting a control plane for the preview")
        try:
            plane.start(progress=lambda text: None)
            yield paths
        finally:
            _forget(plane, paths)

    def _previewed(self, engine: Engine, world: World, blank: Outcome) -> Outcome:
        packs: Sequence[Path] = (self.paths.root / "policies",)
        error = ""
        try:
            result = engine.preview(self.stack, on_event=lambda event: None, policy_packs=packs)
        except EngineFailure as failure:
            result = failure.result
            error = _error(failure)
        return replace(
            blank,
            live=world.live,
            changes=result.changes,
            steps=result.steps,
            effects=effects(result.steps, world),
            violations=result.violations,
            error=error,
        )


def _forget(plane: ControlPlane, paths: Paths) -> None:
    plane.stop(delete=True)
    shutil.rmtree(paths.state, ignore_errors=True)


def _error(failure: EngineFailure) -> str:
    """Why the engine ended; nothing where it was a policy, for these are shown by themselves."""
    said = [message.text for message in failure.result.messages if message.severity == "error"]
    if failure.result.violations and all(text == "preview failed" for text in said):
        return ""
    return failure.fact


def _deployed(engine: Engine, stack: str) -> Environment | None:
    """The environment that the last `up` made; None before the first, or where an older program made it."""
    from infra.config import parse

    found = engine.outputs(stack).get("environment")
    try:
        return parse(found) if isinstance(found, dict) else None
    except InputError:
        return None

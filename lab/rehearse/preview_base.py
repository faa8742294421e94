"""The base of an offline preview: a control plane on which its stack has been created."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import keeping_logs
from gpuform.engine import Engine
from gpuform.engine.places import Tools
from gpuform.stack.preview.base import checkout
from gpuform.stack.preview.run import PLAYED, Played
from gpuform.stack.preview.world import World, declared, read
from infra.config import load
from infra.model.environment import Environment
from lab.offline import nodes
from lab.plane import ControlPlane, controlling

Say = Callable[[str], None]


@contextmanager
def played(paths: Paths, tools: Tools, stack: str, base: str | None, say: Say) -> Iterator[Played]:
    """A temporary control plane and state on which the base's stack has been created."""
    apart = replace(paths, state=paths.state / "preview" / stack)
    plane = ControlPlane(apart, tools)
    _forget(plane, apart)  # left by a killed preview
    say("starting a control plane for the preview")
    try:
        with keeping_logs(apart):
            plane.start(progress=lambda text: None)
            _teach(plane, paths.root / f"Pulumi.{stack}.yaml")
            if base is None:
                yield Played(apart, None, declared(None))
                return
            with checkout(paths.root, base) as folder:
                say(f"simulating the base of {stack} ({base})")
                _teach(plane, folder / f"Pulumi.{stack}.yaml")
                before, world = _make(replace(apart, root=folder), tools, stack, say)
            yield Played(apart, before, world)
    finally:
        _forget(plane, apart)


def _teach(plane: ControlPlane, file: Path) -> None:
    """Install the kinds of monitoring and run the controllers that the stack has.

    The stand-in for the chart of monitoring has no CRDs, and a controller's own chart needs its program.
    """
    try:
        env = load(file)
    except InputError:
        return  # reported by the next reader of the file
    if names := controlling.declared(env):
        plane.controlled(*names)
    if env.monitoring:
        plane.knows_monitoring()


def _make(paths: Paths, tools: Tools, stack: str, say: Say) -> tuple[Environment | None, World]:
    file = paths.root / f"Pulumi.{stack}.yaml"
    if not file.exists():
        return None, declared(None)
    before = load(file)
    if before.cluster.kind not in PLAYED:
        say(f"the base of {stack} is not simulated: own hosts and existing clusters cannot be simulated here")
        return before, declared(before)
    if before.cluster.kind in nodes.KINDS:
        nodes.play(before, paths, tools, lenient=True)
    Engine(paths, tools, say=say, offline=True).up(stack, on_event=lambda event: None)
    return before, read(paths.kubeconfig)


def _forget(plane: ControlPlane, paths: Paths) -> None:
    plane.stop(delete=True)
    shutil.rmtree(paths.state, ignore_errors=True)

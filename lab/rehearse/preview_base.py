"""The base of an offline preview: a control plane on which its stack has been created."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from gpuform.engine.places import Tools
from gpuform.stack.preview.base import checkout
from gpuform.stack.preview.run import Played
from gpuform.stack.preview.world import World, declared, read
from infra.config import load
from infra.model.environment import Environment
from lab.plane import ControlPlane, controlling
from lab.rehearse import nodes
from lab.rehearse.plane import Say, plane


@contextmanager
def played(paths: Paths, tools: Tools, stack: str, base: str | None, say: Say) -> Iterator[Played]:
    """A temporary control plane and state on which the base's stack has been created."""
    say("starting a control plane for the preview")
    with plane(paths, tools, stack, say, verb="preview") as own:
        control_plane = ControlPlane(own, tools)
        _teach(control_plane, paths.root / f"Pulumi.{stack}.yaml")
        if base is None:
            yield Played(own, None, declared(None))
            return
        with checkout(paths.root, base) as folder:
            say(f"simulating the base of {stack} ({base})")
            _teach(control_plane, folder / f"Pulumi.{stack}.yaml")
            before, world = _make(replace(own, root=folder), tools, stack, say)
        yield Played(own, before, world)


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
    if not before.cluster.created:
        say(f"the base of {stack} is not simulated: own hosts and existing clusters cannot be simulated here")
        return before, declared(before)
    if nodes.of(before).by_cloud:
        nodes.play(before, paths, tools, lenient=True)
    Engine(paths, tools, say=say, offline=True).up(stack, on_event=lambda event: None)
    return before, read(paths.kubeconfig)

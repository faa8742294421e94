"""A temporary control plane for one rehearsal, or one offline preview with its base, with its own state.

It is independent of the one of `make up`: other ports, other data, its own engine state. Whatever a killed
run has left is removed by the next one of the same stack.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import keeping_logs
from gpuform.engine import Engine
from gpuform.engine.places import Tools
from gpuform.stack.preview.run import Played, checkout
from gpuform.stack.preview.world import World, declared, read
from gpuform.usage.prometheus import NOT_STARTED, Prometheus, direct
from gpuform.usage.rehearsal import Scraped
from infra.config import load
from infra.model.environment import Environment
from infra.plan.scraping import JOB
from lab.plane import ControlPlane, controlling, lock
from lab.plane.processes import PROMETHEUS
from lab.rehearse import nodes

Say = Callable[[str], None]
PATIENCE_S = 20.0
"""Until a node is scraped: discovery takes a few seconds, a scrape six at most."""
_EVERY_S = 0.5
_QUERY = f'up{{job="{JOB}"}} == 1'


def apart(paths: Paths, stack: str, verb: str = "rehearse") -> Paths:
    """The folders of a run: a state of its own below the checkout's, the cache shared."""
    return replace(paths, state=paths.state.resolve() / verb / stack)


@contextmanager
def plane(
    paths: Paths, tools: Tools, stack: str, say: Say, controllers: Sequence[str] = (), verb: str = "rehearse"
) -> Iterator[Paths]:
    """A fresh control plane with a way to these controllers while the context lasts; yields its folders.

    One run of a verb for a stack at a time: a second one waits. On SIGTERM, or SIGHUP from a closed terminal,
    it still ends what it started. Raises InputError if the state cannot be written, Failure if a member does
    not come up.
    """
    writable.require_state(paths.state)
    own = apart(paths, stack, verb)
    busy = own.state.with_name(f"{stack}.lock")
    waits = f"waiting for another `gpuform {verb} {stack}` to end"
    with lock.held(busy, lambda: say(waits)), _ended_in_order():
        started = ControlPlane(own, tools)
        _forget(started, own)  # of a run that was killed
        try:
            with keeping_logs(own):
                if controllers:
                    started.controlled(*controllers, progress=say)
                started.start(progress=lambda text: None)
                yield own
        finally:
            _forget(started, own)


def _forget(started: ControlPlane, own: Paths) -> None:
    started.stop(delete=True)
    shutil.rmtree(own.state, ignore_errors=True)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP as Ctrl-C unless ignored; only the main thread may set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    heard = {number: was for number, was in before.items() if was != signal.SIG_IGN}
    for number in heard:
        signal.signal(number, interrupted)
    try:
        yield
    finally:
        for number, was in heard.items():
            signal.signal(number, was)


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


def _teach(started: ControlPlane, file: Path) -> None:
    """Install the kinds of monitoring and run the controllers that the stack has.

    The stand-in for the chart of monitoring has no CRDs, and a controller's own chart needs its program.
    """
    try:
        env = load(file)
    except InputError:
        return  # reported by the next reader of the file
    if names := controlling.declared(env):
        started.controlled(*names)
    if env.monitoring:
        started.knows_monitoring()


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


def scraped(started: ControlPlane, names: Collection[str]) -> Scraped:
    """Wait until every node was scraped, at most ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        status = started.status()
        port = next((one.port for one in status.members if one.name == PROMETHEUS), None)
        there = _nodes(port) if port else None
        missing = tuple(sorted(set(names) - (there or set())))
        if (there is not None and not missing) or time.monotonic() > deadline:
            trouble = status.unmonitored if there is not None else (*status.unmonitored, "it does not answer")
            return Scraped(len(names), missing, "; ".join(trouble))
        time.sleep(_EVERY_S)


def _nodes(port: int) -> set[str] | None:
    """Nodes with a successful last scrape of their exporter; None if Prometheus does not answer."""
    with direct(f"http://127.0.0.1:{port}") as transport:
        try:
            return {one.labels.get("node", "") for one in Prometheus(transport, NOT_STARTED).query(_QUERY)}
        except Failure:
            return None

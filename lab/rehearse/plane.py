"""A temporary control plane for one rehearsal, or one offline preview, with its own state.

It is independent of the one of `make up`: other ports, other data, its own engine state. Whatever a killed
run has left is removed by the next one of the same stack.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from gpuform.checkout import writable
from gpuform.checkout.paths import Paths
from gpuform.checkout.scratch import keeping_logs
from gpuform.engine.places import Tools
from lab.plane import ControlPlane, lock

Say = Callable[[str], None]


def apart(paths: Paths, stack: str, verb: str = "rehearse") -> Paths:
    """The folders of a run: a state of its own below the checkout's, the cache shared."""
    return replace(paths, state=paths.state.resolve() / verb / stack)


@contextmanager
def plane(
    paths: Paths,
    tools: Tools,
    stack: str,
    say: Say,
    controllers: Sequence[str] = (),
    verb: str = "rehearse",
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

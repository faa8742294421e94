"""Runs one engine process and passes on its events while it runs."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpuform.checkout import scratch
from gpuform.engine.events import Event, parse

INTERRUPTED = "interrupted: the engine finishes what it has begun; again: it ends at once"
_POLL_S = 0.05
_CHUNK = 256 * 1024  # bytes
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def follow(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    runs: Path,
    output: IO[bytes],
    on_event: Callable[[Event], None],
) -> int:
    """Run an engine command that changes or previews a stack; returns its exit code, negative for a signal.

    ``output`` takes its display. SIGINT and SIGTERM to this process become a SIGINT to the engine, which then
    finishes the operations it has begun; a second one ends it at once. An exception of ``on_event`` ends the
    engine as well, and is raised once that has ended.
    Events pass through a pipe, because the engine writes secrets into them; it lies in a folder of this run
    below ``runs``. On Linux the engine does not outlive this process, even if that is killed.
    """
    with scratch.folder(runs) as folder:
        pipe = folder / "events"
        os.mkfifo(pipe, 0o600)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            process = subprocess.Popen(
                [*command, "--event-log", str(pipe)],
                env={**env, "PULUMI_DEBUG_COMMANDS": "true"},  # --event-log requires it
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=_die_with_parent,  # one system call, no locks, no allocation
            )
            with _forward_signals(process):
                try:
                    for text in _read_lines(reader, process):
                        event = parse(text)
                        if event is not None:
                            on_event(event)
                except BaseException:
                    _stop(reader, process)
                    raise
                return process.wait()
        finally:
            os.close(reader)


def _stop(reader: int, process: subprocess.Popen[bytes]) -> None:
    """Let the engine finish the operations it has begun; its events are dropped."""
    process.send_signal(signal.SIGINT)
    for _ in _read_lines(reader, process):  # a full pipe would block the engine
        pass
    process.wait()


def _read_lines(reader: int, process: subprocess.Popen[bytes]) -> Iterator[str]:
    remainder = b""
    while True:
        ended = process.poll() is not None  # polled first, so that nothing written before the end is missed
        ready, _, _ = select.select([reader], [], [], _POLL_S)
        data = os.read(reader, _CHUNK) if ready else b""
        if data:
            *lines, remainder = (remainder + data).split(b"\n")
            yield from (text.decode(errors="replace") for text in lines if text.strip())
        elif ended:
            return
        elif ready:
            time.sleep(_POLL_S)  # the engine has not opened the pipe yet, or has closed it and is exiting


@contextmanager
def _forward_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Turn signals that would end this process into a request to the engine to end.

    Raises KeyboardInterrupt when the engine has ended after a SIGINT; its result is then not needed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    received = set[int]()

    def forward(number: int, frame: object) -> None:
        if not received:
            print(INTERRUPTED, file=sys.stderr)
        received.add(number)
        process.send_signal(signal.SIGINT)

    handlers = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if signal.SIGINT in received:
        raise KeyboardInterrupt


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

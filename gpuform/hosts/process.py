"""The process of one run: starts ansible-runner, and makes sure that nothing is left afterwards.

    python -P -m gpuform.hosts.process

The first line of stdin is JSON: ``run`` has arguments of ``ansible_runner.run``, ``folders`` are removed at
the end. Events are printed as JSON, one to a line, the last one ``{"kind": "end"}``. SIGTERM, and the end
of stdin (its parent was told to end, or was killed), end the run: ansible-playbook and its workers get a
SIGTERM first, and processes that still run after a few seconds are killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuform.hosts.events import parse_event

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2): orphans of our children become ours, and can be ended
_GRACE_S = 5.0  # ansible-playbook ends its workers and ssh within a second of a SIGTERM
_PROC = Path("/proc")


def main() -> int:
    job = json.loads(sys.stdin.readline())
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)  # other output is not an event

    def emit(item: Mapping[str, Any]) -> None:
        try:
            print(json.dumps(item), file=events, flush=True)
        except BrokenPipeError:
            cancel.set()  # the reader has gone

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    cancel = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: cancel.set())
    threading.Thread(target=_wait_for_parent, args=(cancel,), daemon=True).start()
    try:
        rc = _run_playbook(job["run"], emit, cancel)
    finally:
        _end_children(_GRACE_S)
        for folder in job["folders"]:
            shutil.rmtree(folder, ignore_errors=True)
    emit({"kind": "end", "rc": rc, "cancelled": cancel.is_set()})
    return 0


def _wait_for_parent(cancel: threading.Event) -> None:
    """Wait for the end of stdin: the parent has ended, or wants this run to end."""
    while os.read(0, 4096):
        continue
    cancel.set()


def _run_playbook(
    arguments: Mapping[str, Any], emit: Callable[[Mapping[str, Any]], None], cancel: threading.Event
) -> int:
    import ansible_runner

    terminated: list[float] = []

    def must_kill() -> bool:
        """Whether ansible-runner shall kill now; ansible-playbook gets a SIGTERM first."""
        if cancel.is_set() and not terminated:
            terminated.append(time.monotonic())
            for pid in _children():
                _signal(pid, signal.SIGTERM)
        return bool(terminated) and time.monotonic() - terminated[0] > _GRACE_S

    def on_event(raw: dict[str, Any]) -> bool:
        event = parse_event(raw)
        if event is not None:
            emit(asdict(event))
        return False  # not to be written into the artifacts

    runner = ansible_runner.run(
        **arguments,
        settings={"suppress_output_file": True, "pexpect_timeout": 1},
        quiet=True,
        event_handler=on_event,
        cancel_callback=must_kill,
    )
    return int(runner.rc if runner.rc is not None else 254)


def _children() -> list[int]:
    pids = []
    for task in (_PROC / "self" / "task").glob("*/children"):
        pids += [int(pid) for pid in task.read_text().split()]
    return pids


def _end_children(grace: float) -> None:
    """End processes that the run has left: orphaned workers, and ssh masters, which outlive it by design."""
    deadline = time.monotonic() + grace
    number = signal.SIGTERM
    while children := _children():
        for pid in children:
            _signal(pid, number)
        time.sleep(0.05)
        for pid in children:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        if time.monotonic() > deadline + grace:
            return


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main())

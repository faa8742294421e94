"""Processes that a rehearsal runs beside its control plane, as a Deployment runs its pod.

Each runs a file in one folder, by which it is recognised. The kernel ends it with the thread that started it.
One that is left all the same is ended by the next `Children.end_left` of that folder, and nothing else is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Generic, TypeVar

import httpx

from gpuform.checkout.errors import Failure
from lab.plane.processes import Process, end_processes_by, scan_by
from lab.rehearse import no_open_ports
from lab.rehearse.cluster import Cluster

GRACE_S = 5.0  # for a process that is asked to end
INTERVAL_S = 0.5  # seconds between two reads of the cluster
LONGEST_BACK_OFF_S = 10.0  # a kubelet goes up to five minutes, too long here

Wanted = TypeVar("Wanted")
TROUBLE = (httpx.HTTPError, OSError, ValueError, KeyError, IndexError)


class Children:
    """The processes that run from one folder, which is created if missing."""

    def __init__(self, folder: Path) -> None:
        """The path is resolved, because processes are recognised by it."""
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def start(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program with exactly this environment; its ports stay closed, its output goes to ``log``.

        One of the arguments is a file of the folder: the program itself, or a script for Python. The output
        is appended. The process ends with the calling thread.
        """
        assert any(Path(word).parent == self.folder for word in command), command
        wrapper = [sys.executable, "-I", "-S", str(Path(no_open_ports.__file__)), str(os.getpid())]
        with log.open("ab") as out:
            return subprocess.Popen(
                [*wrapper, *command],
                env=dict(env),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )

    def program_name(self, arguments: Sequence[str]) -> str | None:
        """The name of the folder's file that runs, by itself or as a script of Python; None if neither."""
        program = Path(arguments[0])
        if program.parent == self.folder:
            return program.name
        if program.name.startswith("python"):
            return next((Path(word).name for word in arguments if Path(word).parent == self.folder), None)
        return None

    def running(self) -> list[Process]:
        """The processes that run from the folder now, whichever process started them."""
        return scan_by(self.program_name)

    def end_left(self) -> None:
        end_processes_by(self.program_name, self.running(), GRACE_S)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End it as a kubelet does: SIGTERM, then SIGKILL after ``GRACE_S``."""
    process.terminate()
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Supervisor(Generic[Wanted]):
    """Reads the cluster from a thread of its own while the context lasts.

    ``read_wanted`` returns what is wanted, None for nothing; ``start`` starts one of ``children`` for it,
    which is restarted when something else is wanted and, with a back-off, when it has exited. An error, such
    as a cluster that does not answer, is in ``trouble`` and in the log, and leaves things as they are.
    Processes left by an earlier rehearsal are ended first.
    """

    def __init__(
        self,
        kubeconfig: Path,
        read_wanted: Callable[[Cluster], Wanted | None],
        start: Callable[[Wanted], subprocess.Popen[bytes]],
        children: Children,
        log: Path,
    ) -> None:
        self._kubeconfig, self._read_wanted, self._start, self.log = kubeconfig, read_wanted, start, log
        self.children = children
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.ended = 0
        """How often the process has exited by itself since something else was wanted; the log says why."""
        self.trouble = ""
        """Why it does not run, in one line; empty while it runs or is not wanted."""

    @property
    def running(self) -> bool:
        process = self.process
        return process is not None and process.poll() is None

    @property
    def rss_bytes(self) -> int:
        """Resident bytes now; 0 while it does not run."""
        return sum(process.rss_bytes for process in self.children.running())

    def __enter__(self) -> Supervisor[Wanted]:
        self.children.end_left()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process through its thread: the thread that started it has to outlive it."""
        self._stop.set()
        self._thread.join(timeout=60)
        self.children.end_left()

    def _follow(self) -> None:
        current: Wanted | None = None
        restart_at = 0.0
        try:
            with closing(Cluster(self._kubeconfig)) as cluster:
                while not self._stop.wait(INTERVAL_S):
                    try:
                        current, restart_at = self._step(self._read_wanted(cluster), current, restart_at)
                        self.trouble = "" if self.running or not current else self.trouble
                    except Failure as error:
                        self._log_trouble(str(error))
                    except TROUBLE as error:
                        self._log_trouble(f"{type(error).__name__}: {error}")
        finally:
            self._end()

    def _step(
        self, wanted: Wanted | None, current: Wanted | None, restart_at: float
    ) -> tuple[Wanted | None, float]:
        """Make the process match ``wanted``; returns what it runs, and when it may be started again."""
        if wanted != current:
            self._end()
            restart_at = 0.0
            self.ended = 0
        elif wanted is None or self.running:
            return current, restart_at
        elif self.process is not None:
            self._log_trouble(f"ended with {self.process.returncode}")
            self.process = None
            self.ended += 1
            return current, time.monotonic() + min(2.0 ** (self.ended - 1), LONGEST_BACK_OFF_S)
        if wanted is not None and time.monotonic() >= restart_at:
            self.process = self._start(wanted)
        return wanted, restart_at

    def _end(self) -> None:
        if self.process is not None:
            end_process(self.process)
            self.process = None

    def _log_trouble(self, text: str) -> None:
        if text != self.trouble:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
        self.trouble = text

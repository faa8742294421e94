"""Processes that a rehearsal starts beside its control plane; they do not outlive it for long.

Each runs a file in one folder, by which it is recognised. The kernel ends it with the thread that started it.
One that is left all the same is ended by the next ``end_left`` of that folder, which ends nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.plane.processes import Process, end_for, scan_for
from lab.rehearse import born

GRACE_S = 5.0  # for a process that is asked to end


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
        mine = [sys.executable, "-I", "-S", str(Path(born.__file__)), str(os.getpid())]
        with log.open("ab") as out:
            return subprocess.Popen(
                [*mine, *command],
                env=dict(env),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )

    def name_of(self, arguments: Sequence[str]) -> str | None:
        """The name of the folder's file that runs, by itself or as a script of Python; None if neither."""
        program = Path(arguments[0])
        if program.parent == self.folder:
            return program.name
        if program.name.startswith("python"):
            return next((Path(word).name for word in arguments if Path(word).parent == self.folder), None)
        return None

    def running(self) -> list[Process]:
        """The processes that run from the folder now, whichever process started them."""
        return scan_for(self.name_of)

    def end_left(self) -> None:
        end_for(self.name_of, self.running(), GRACE_S)


def end(process: subprocess.Popen[bytes]) -> None:
    """End it as a kubelet does: SIGTERM, then SIGKILL after ``GRACE_S``."""
    process.terminate()
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""Processes that a rehearsal starts beside its control plane; none of them outlives it for long.

Each runs a file that lies in one folder, and is known by that. The kernel ends it with the thread that
started it; one that is left all the same is ended by the next ``end_left`` of that folder, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuform.embedded.processes import Process, end_for, scan_for
from gpuform.rehearse import born

GRACE_S = 5.0  # for a process that is asked to end


class Children:
    """What runs from one folder, which is made if it is missing."""

    def __init__(self, folder: Path) -> None:
        """A path that is spelled in one way only, because processes are known by it."""
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def start(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program with exactly this environment; it answers on no port, and its output is appended.

        One of the arguments is a file of the folder, the program itself or what Python is given. It ends when
        the calling thread does.
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
        """The file's name: what runs is it, or Python that was given it."""
        program = Path(arguments[0])
        if program.parent == self.folder:
            return program.name
        if program.name.startswith("python"):
            return next((Path(word).name for word in arguments if Path(word).parent == self.folder), None)
        return None

    def running(self) -> list[Process]:
        """What runs from the folder now, whoever started it."""
        return scan_for(self.name_of)

    def end_left(self) -> None:
        """End everything that runs from the folder."""
        end_for(self.name_of, self.running(), GRACE_S)


def end(process: subprocess.Popen[bytes]) -> None:
    """As a kubelet ends a pod: asked first, then not."""
    process.terminate()
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

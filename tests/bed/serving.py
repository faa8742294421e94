"""Starts the bed's web server (``web``), which ends with the bed's control group."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.bed import cgroups, mirror
from tests.bed.host import group

PORT = 80
START_SECONDS = 30


def ensure(folder: Path, address: str) -> None:
    """Return when the server of the bed in ``folder`` answers; starts it if none runs."""
    at = f"{group(folder)}/web"
    if not cgroups.members(at):
        _start(folder, address, at)
    deadline = time.monotonic() + START_SECONDS
    while not _answers(address):
        if time.monotonic() > deadline or not cgroups.members(at):
            raise RuntimeError(
                f"the bed's web server does not answer: {(folder / 'web.log').read_text()[-2000:]}"
            )
        time.sleep(0.05)


def _start(folder: Path, address: str, at: str) -> None:
    (folder / "web").mkdir(exist_ok=True)
    archives = [source.url for source in mirror.sources()]
    server = [sys.executable, "-m", "tests.bed.web", str(folder), address, *archives]
    with (folder / "web.log").open("ab") as log:
        subprocess.Popen(
            [*cgroups.entering(cgroups.make(at)), *server],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
    deadline = time.monotonic() + START_SECONDS
    while not cgroups.members(at) and time.monotonic() < deadline:
        time.sleep(0.01)


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, PORT), timeout=2).close()
    except OSError:
        return False
    return True

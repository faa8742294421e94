"""Keeps one program running: restarts it after an exit or a change of what is wanted, and ends it."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import yaml

from lab.sidecars.shared.files import write_private
from lab.sidecars.shared.server import SERVER_ERRORS

MESSAGES_FILE = "said.json"
"""File in a keeper's folder: what is not as declared, for `gpuform local status`."""
LONGEST_BACK_OFF_S = 10.0
_GRACE_S = 2.0
_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), linux/prctl.h
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Folders:
    """``home`` is the folder of all files, with the programs as links in ``home/bin``."""

    home: Path
    logs: Path

    def program(self, name: str) -> Path:
        return self.home / "bin" / name


class Messages:
    """A keeper's messages on stderr; a message is not repeated directly after itself."""

    def __init__(self, home: Path) -> None:
        """``home`` is the keeper's folder."""
        self._file, self._last = home / MESSAGES_FILE, ""

    def __call__(self, text: str) -> None:
        if text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._last = text

    def store(self, lines: Sequence[str]) -> None:
        """Store what is not as declared, for `gpuform local status`; each change is a message as well."""
        text = json.dumps(list(lines))
        if not self._file.is_file() or self._file.read_text() != text:
            write_private(self._file, text)
            for line in lines:
                self(line)


class Child:
    """One program, which does not outlive this process."""

    def __init__(self, name: str, log: Path, say: Messages, folder: Path | None = None) -> None:
        """Output is appended to ``log``; ``folder`` is the working directory."""
        self.name = name
        self.environment: Mapping[str, str] = {}
        """Variables of the next start, in addition to those of this process."""
        self._log, self._say, self._folder = log, say, folder
        self._wanted: object = None
        self._process: subprocess.Popen[bytes] | None = None
        self._restart_at, self._ended = 0.0, 0

    @property
    def running(self) -> bool:
        """Whether it was running at the last ``keep``."""
        return self._process is not None

    @property
    def trouble(self) -> str:
        """A message if it is down and has ended by itself at least twice; empty otherwise."""
        if self._process is not None or self._ended < 2:
            return ""
        return f"{self.name} has ended {self._ended} times; see {self._log}"

    def keep(self, wanted: object, command: Callable[[], Sequence[str]]) -> None:
        """Run it while ``wanted`` is not None; restart it if that changes. Each start calls ``command``."""
        if wanted != self._wanted:
            self.end()
            self._wanted, self._restart_at, self._ended = wanted, 0.0, 0
        elif self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._restart_at = time.monotonic() + min(2.0**self._ended, LONGEST_BACK_OFF_S)
            self._ended += 1
            self._say(f"{self.name} has ended with {code}; see {self._log}")
        if self._wanted is not None and self._process is None and time.monotonic() >= self._restart_at:
            self._process = self._start(command())
            self._say(f"{self.name} runs")

    def end(self) -> None:
        """End it if it runs: SIGTERM, then SIGKILL after ``_GRACE_S``."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, **self.environment},
                preexec_fn=_end_with_parent,
            )


def _end_with_parent() -> None:
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def run_until_stopped(
    stop: threading.Event,
    interval_s: float,
    step: Callable[[], None],
    say: Messages,
    *end_functions: Callable[[], None],
) -> None:
    """Call ``step`` every so many seconds until ``stop``, then ``end_functions``.

    While the server is unreachable or refuses, what runs goes on.
    """
    try:
        while not stop.is_set():
            try:
                step()
            except (*SERVER_ERRORS, yaml.YAMLError, subprocess.SubprocessError) as error:
                say(f"{type(error).__name__}: {error}")
            stop.wait(interval_s)
    finally:
        for end_function in end_functions:
            end_function()


def free_port() -> int:
    """A port that is free now; if it is taken before use, the next start chooses another one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def argument_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with what every keeper of programs needs; ``said`` is the description."""
    parser = argparse.ArgumentParser(prog=module, description=description)
    for name, help_text in (
        ("--kubeconfig", "kubeconfig of the cluster; the programs use the same server"),
        ("--pki", "folder with ca.crt, admin.crt and admin.key"),
        ("--home", "folder for all files; its folder bin has links to the programs"),
        ("--logs", "folder for the programs' logs"),
    ):
        parser.add_argument(name, type=Path, required=True, help=help_text)
    return parser


def stop_event() -> threading.Event:
    """An event that SIGTERM or SIGINT sets; call it from the main thread."""
    stop = threading.Event()

    def set_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, set_stop)
    return stop

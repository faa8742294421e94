"""keystone, and Magnum's API with its conductor, as children of this process on loopback ports.

The real services of ``services.lock``: keystone on sqlite under gunicorn with one worker and one thread
(sqlite allows one writer), Magnum's API under gunicorn, with its conductor in threads of the same process;
both share a database (see ``driver/locking.py``), and readers do not block a writer. Only Magnum's driver and
the services beside it (``neighbours``) are played.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.openstack import settings
from tests.openstack.installed import HERE, ServicesEnvironment
from tests.openstack.settings import Ports
from tests.ports import free_port
from tests.waiting import until

_READY_S = 240  # they take seconds; minutes if other runs use the processors
_GRACE_S = 2  # they keep nothing that outlives the session
_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), linux/prctl.h
_LIBC = ctypes.CDLL(None)
_ENTRY_POINT = "[magnum.drivers]\nplayed = played:Driver\n"
_METADATA = "Metadata-Version: 2.1\nName: gpuform-played-driver\nVersion: 1\n"


@dataclass
class Services:
    """The services of one session; their files are in ``state``, their output in ``state/logs``."""

    installed: ServicesEnvironment
    state: Path
    ports: Ports
    _running: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)

    @property
    def played(self) -> Path:
        """Folder of the driver's instructions and of the nodes that would exist."""
        return self.state / "played"

    @property
    def recorded(self) -> Path:
        return self.state / "requests.jsonl"

    @property
    def auth_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.keystone}/v3"

    @property
    def magnum_url(self) -> str:
        return f"http://127.0.0.1:{self.ports.magnum}/v1"

    def write_files(self) -> None:
        for folder in (
            "logs",
            "locks",
            "played/told",
            "path/played-1.dist-info",
            "keystone",
            "magnum/.magnum",
        ):
            (self.state / folder).mkdir(parents=True)
        for name in ("keystone.db", "magnum.db"):
            shutil.copy(self.installed.databases / name, self.state / name)
            # A thread of Magnum's API may keep its read transaction open until its next request: without a
            # write-ahead log, this would block every writer.
            with closing(sqlite3.connect(self.state / name)) as database:
                database.execute("PRAGMA journal_mode=WAL")
        settings.keys(self.state)
        (self.state / "keystone.conf").write_text(settings.keystone(self.state))
        (self.state / "magnum/.magnum/magnum.conf").write_text(settings.magnum(self.state, self.ports))
        (self.state / "api-paste.ini").write_text(settings.paste(self.installed.paste.read_text()))
        for name, port, threads in (("keystone", self.ports.keystone, 1), ("magnum", self.ports.magnum, 8)):
            text = settings.gunicorn(f"{name}.wsgi.api:application", port, threads)
            text += settings.CONDUCTOR if name == "magnum" else ""
            (self.state / f"{name}/gunicorn.conf.py").write_text(text)
        info = self.state / "path/played-1.dist-info"
        (info / "METADATA").write_text(_METADATA)
        (info / "entry_points.txt").write_text(_ENTRY_POINT)

    def start(self) -> None:
        """Start everything at once, wait until each answers; raises AssertionError with its output."""
        gunicorn = (str(self.installed.python), "-m", "gunicorn")
        self._spawn("keystone", gunicorn, {"OS_KEYSTONE_CONFIG_DIR": str(self.state)}, "keystone")
        self._spawn("magnum", gunicorn, {}, "magnum")  # its configuration is below its home
        for name, port in (("keystone", self.ports.keystone), ("magnum", self.ports.magnum)):
            self._wait(name, port)

    def _spawn(self, name: str, command: Sequence[str], extra: Mapping[str, str], folder: str) -> None:
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.state / folder),
            "XDG_CACHE_HOME": str(self.state / "cache"),
            "PYTHONPATH": f"{self.state / 'path'}:{HERE / 'driver'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GPUFORM_PLAYED": str(self.played),
            "GPUFORM_RECORDED": str(self.recorded),
        }
        with (self.state / f"logs/{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.state / folder,
                env=variables | extra,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._running.append((name, process))

    def _wait(self, name: str, port: int) -> None:
        process = dict(self._running)[name]

        def answers() -> bool:
            assert process.poll() is None, f"{name} has ended:\n{self.log_tail(name)}"
            return _answers(port)

        until(answers, seconds=_READY_S, what=lambda: f"{name} does not answer:\n{self.log_tail(name)}")

    def log_tail(self, name: str, lines: int = 15) -> str:
        return "\n".join((self.state / f"logs/{name}.log").read_text().splitlines()[-lines:])

    def end(self) -> None:
        """End every child in reverse order: SIGTERM first, then SIGKILL."""
        for _, process in reversed(self._running):
            process.terminate()
        for _, process in reversed(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_GRACE_S)
            _end_group(process.pid)
            process.wait()
        self._running.clear()


def _die_with_parent() -> None:
    _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _end_group(group: int) -> None:
    """Kill what a service left behind: each service leads its own process group."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def run_services(installed: ServicesEnvironment, state: Path) -> Iterator[Services]:
    """The services with fresh databases; ended afterwards."""
    services = Services(installed, state, Ports(free_port(), free_port()))
    services.write_files()
    try:
        services.start()
        yield services
    finally:
        services.end()

"""The services' own environment, made once per lock file and kept in gpuform's cache.

gpuform does not see it: it has its own virtual environment with the packages of ``services.lock``, and the
databases of keystone and Magnum as their own tools create them; every start copies these. Made under a lock,
so that two test processes make it once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.checkout.paths import Paths
from lab.toolchain.progress import Reporter
from lab.toolchain.store import Store
from tests.openstack import settings

HERE = Path(__file__).parent
LOCK = HERE / "services.lock"
_NAME = "openstack-services"
_LAYOUT = 1  # of the folder; another number makes it anew


class NotInstallable(Exception):
    """The services cannot be installed here: the message of pip."""


@dataclass(frozen=True)
class ServicesEnvironment:
    """A complete environment, read-only from now on."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter; programs are run as modules, since their scripts name another folder."""
        return self.folder / "venv/bin/python"

    @property
    def databases(self) -> Path:
        """The databases of keystone and Magnum, with their tables and keystone's first account."""
        return self.folder / "databases"

    @property
    def paste(self) -> Path:
        return self.folder / "venv/etc/magnum/api-paste.ini"


def install_services(report: Reporter) -> ServicesEnvironment:
    """The environment, created if missing; raises NotToBeHad if a registry is unreachable."""
    store = Store(Paths.here().cache)
    tables = (HERE / "driver/tables.py").read_bytes()
    content = repr((_LAYOUT, LOCK.read_bytes(), tables, settings.PASSWORD)).encode()
    version = f"py{sys.version_info[0]}{sys.version_info[1]}-{hashlib.sha256(content).hexdigest()[:12]}"
    folder = store.tools / f"{_NAME}-{version}"
    if folder.is_dir():
        return ServicesEnvironment(folder)
    with store.lock(_NAME, report):
        if not folder.is_dir():
            with store.scratch(_NAME) as scratch:
                temporary = scratch / "made"
                temporary.mkdir()
                _make(ServicesEnvironment(temporary), report)
                store.publish(temporary, folder.name)
    return ServicesEnvironment(folder)


def _make(target: ServicesEnvironment, report: Reporter) -> None:
    report.line(f"installing keystone and Magnum from {LOCK.name}")
    _run((sys.executable, "-m", "venv", str(target.folder / "venv")))
    pip = (str(target.python), "-m", "pip", "--disable-pip-version-check", "install", "--no-deps")
    _run((*pip, "--progress-bar", "off", "-r", str(LOCK)), report)
    report.line("making the databases of keystone and Magnum")
    target.databases.mkdir()
    keystone = target.databases / "keystone.conf"
    keystone.write_text(settings.keystone(target.databases))
    settings.keys(target.databases)
    manage = program(target, "keystone.cmd.manage", "--config-file", str(keystone))
    _run((*manage, "db_sync"))
    account = ("--bootstrap-password", settings.PASSWORD, "--bootstrap-region-id", settings.REGION)
    _run((*manage, "bootstrap", *account))
    magnum = target.databases / "magnum.conf"
    magnum.write_text(settings.magnum(target.databases, settings.Ports(0, 0)))
    _run(program(target, "tables", "--config-file", str(magnum)), path=HERE / "driver")


def program(made: ServicesEnvironment, module: str, *arguments: str) -> tuple[str, ...]:
    """Command of a program, by the module with its ``main``."""
    return (str(made.python), "-c", f"from {module} import main; main()", *arguments)


def _run(command: Sequence[str], report: Reporter | None = None, path: Path | None = None) -> None:
    """Run it and report each line; raises NotToBeHad with its last lines if it fails."""
    with subprocess.Popen(
        command,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OS_"))}
        | ({"PYTHONPATH": str(path)} if path else {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout
        words: deque[str] = deque(maxlen=3)
        for line in filter(str.strip, process.stdout):
            words.append(line.strip())
            if report:
                report.update(line.strip()[:100])
    if process.returncode:
        raise NotInstallable(f"{' '.join(command[1:4])} ...: {' / '.join(words)}")

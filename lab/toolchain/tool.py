"""Tools and their Go modules, and how one is found on PATH by the version that it prints."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infra.model.base.quantities import version_numbers

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_BUSY_ATTEMPTS = 20
When = Literal["up", "gate", "nightly"]
"""First command that needs a tool: `make up`, `make test`, `make test-all`. Rehearsals get what they need."""


def this_platform() -> str:
    """``os/arch`` of this machine in Go's words, for example ``linux/amd64``."""
    machine = platform.machine()
    return f"{platform.system().lower()}/{_MACHINES.get(machine, machine)}"


@dataclass(frozen=True, kw_only=True)
class Module:
    """One Go module: the folder ``toolchain/<name>`` with its own go.mod and go.sum.

    ``module_path`` is the module that its go.mod requires at ``version``. ``mb`` is the disk space of a first
    build in MB of 10^6 bytes: Go's downloads, its build cache and the binaries, as measured on linux/amd64
    and rounded up: for those that `up` builds after those above it in the catalogue, for `nvidia-config` and
    all others alone. ``cgo`` says that a C compiler is needed,
    ``tags`` are Go's build tags. ``tool_version`` is the tools' own version, if it differs from the module's.
    """

    name: str
    module_path: str
    version: str
    mb: int
    ldflags: tuple[str, ...] = ()
    cgo: bool = False
    tags: tuple[str, ...] = ()
    tool_version: str = ""

    @property
    def displayed_version(self) -> str:
        return self.tool_version or self.version


@dataclass(frozen=True)
class Tool:
    """One binary.

    ``package_path`` is its Go package, below the module's ``module_path`` if empty or beginning with ``/``.
    ``version_arguments`` are the arguments that make it print its version; a tool without them, such as our
    own, is never looked for on PATH. ``version_range`` is the range of versions accepted from PATH, from the
    first up to and without the second; default: only the module's own. ``plugin`` is the version of an
    official Pulumi plugin, downloaded where possible. ``needed_by`` is the first command that builds it; a
    program that needs a missing tool later builds it then.
    """

    name: str
    module: Module
    package_path: str
    version_arguments: tuple[str, ...] | None = None
    version_range: tuple[str, str] | None = None
    plugin: str = ""
    needed_by: When = "up"
    official: str = ""
    """Version of the official binary, if it is not the module's."""
    files: tuple[tuple[str, str], ...] = ()
    """Folders of the module that are kept next to the binary, each with its folder there."""
    relocated: bytes = b""
    """A folder that the program names by a fixed absolute path; `relocate` makes it one of its own."""

    @property
    def accepted(self) -> tuple[str, str]:
        """``version_range``, or a range with only the module's own version."""
        major, minor, patch = self.module.displayed_version.split(".")
        return self.version_range or (self.module.displayed_version, f"{major}.{minor}.{int(patch) + 1}")

    @property
    def package(self) -> str:
        below = self.module.module_path if self.package_path[:1] in ("", "/") else ""
        return f"{below}{self.package_path}"

    @property
    def output(self) -> str:
        """File name that ``go build`` gives it: the last part of the package that is not a major version."""
        parts = [part for part in self.package.split("/") if not re.fullmatch(r"v\d+", part)]
        return self.module.name if parts == ["."] else parts[-1]


Source = Literal["path", "official", "built", "missing"]


@dataclass(frozen=True)
class ToolLocation:
    """Where a tool comes from; ``path`` is None and ``version`` the wanted one when it is missing."""

    name: str
    version: str
    source: Source
    path: Path | None


def relocate(binary: Path, folder: bytes) -> None:
    """Make a folder that the program names by an absolute path relative to its working directory.

    ``/opt/name`` becomes ``opt//name``, of the same length, so that no address in the binary changes.
    """
    first, _, rest = folder[1:].partition(b"/")
    binary.write_bytes(binary.read_bytes().replace(folder, first + b"//" + rest))


def in_range(version: str, accepts: tuple[str, str]) -> bool:
    """Whether a version lies in the range; a pre-release never does."""
    lowest, above = map(version_numbers, accepts)
    is_released = re.fullmatch(r"\d+\.\d+\.\d+", version) is not None
    return is_released and lowest <= version_numbers(version) < above


def ask_version(binary: Path, ask: tuple[str, ...]) -> str | None:
    """The version that a binary prints, pre-release part included; None if none comes within 10 seconds."""
    environment = os.environ | {"PULUMI_SKIP_UPDATE_CHECK": "true"}
    for _ in range(_BUSY_ATTEMPTS):
        try:
            answer = subprocess.run(
                [binary, *ask],
                capture_output=True,
                text=True,
                timeout=10,
                env=environment,
                stdin=subprocess.DEVNULL,
            )
            break
        except (OSError, subprocess.TimeoutExpired) as error:
            if not (isinstance(error, OSError) and error.errno == errno.ETXTBSY):
                return None
            time.sleep(0.1)  # another thread's child still has the descriptor that wrote it
    else:
        return None
    match = re.search(r"\bv?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)", answer.stdout)
    return match[1] if match and answer.returncode == 0 else None


def on_path(tool: Tool) -> ToolLocation | None:
    """The first binary on PATH with an accepted version; others of that name are skipped."""
    for candidate in _candidates(tool.name) if tool.version_arguments else ():
        version = ask_version(candidate, tool.version_arguments or ())
        if version and in_range(version, tool.accepted):
            return ToolLocation(tool.name, version, "path", candidate)
    return None


def _candidates(name: str) -> Iterator[Path]:
    seen = set()
    for folder in os.get_exec_path():
        candidate = shutil.which(name, path=folder)
        if candidate and (real := Path(candidate).resolve()) not in seen:
            seen.add(real)
            yield Path(candidate).absolute()

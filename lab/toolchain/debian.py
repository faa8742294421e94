"""A tool from the distribution's package: fetched by apt, unpacked into the cache, never installed.

No service is started and no file outside the cache is written, except apt's lists, which are updated only by
root and only if they do not know the package. apt compares the package with its signed lists and refuses
anything else. Without apt, without network, or with a version outside the tool's range, the Go module is
built instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.model.quantity import numbers
from lab.toolchain.catalogue import Package, Tool
from lab.toolchain.found import ask_version, fits
from lab.toolchain.progress import Reporter

_LOOK_S = 10
_FETCH_S = 120
_PROGRAMS = ("apt-get", "apt-cache", "dpkg-deb")
# apt's default is to wait two minutes for a server that does not answer, and to retry.
_IMPATIENT = (
    "-o",
    "Acquire::http::Timeout=10",
    "-o",
    "Acquire::https::Timeout=10",
    "-o",
    "Acquire::Retries=0",
)


@dataclass(frozen=True)
class Packed:
    """A binary from a package, and the version that it prints."""

    version: str
    binary: Path


def package_folder(tool: Tool, version: str) -> str:
    """The tool's folder in the cache; without a hash, as only the version is known beforehand."""
    return f"{tool.name}-{version}-package"


def cached_package(tool: Tool, tools: Path) -> Packed | None:
    """The newest cached package with a version in the tool's range."""
    if tool.debian is None:
        return None
    found = {}
    for folder in tools.glob(package_folder(tool, "*")):
        version = folder.name.removeprefix(f"{tool.name}-").removesuffix("-package")
        if fits(version, tool.accepted) and (folder / tool.name).is_file():
            found[numbers(version)] = Packed(version, folder / tool.name)
    return found[max(found)] if found else None


class Packages:
    """Fetches packages; a package that could not be fetched is not tried again."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def fetch(self, tool: Tool, scratch: Path, report: Reporter) -> Packed | None:
        """The tool's binary below ``scratch``; None, after a line with the reason, if it is unavailable."""
        package = tool.debian
        if package is None or package.name in self._refused or not all(map(shutil.which, _PROGRAMS)):
            return None
        try:
            packed = _unpacked(tool, package, scratch, report)
        except _No as reason:
            self._refused.add(package.name)
            report.line(f"{tool.name}: {reason}; building from the Go module")
            return None
        source = f"from the package {package.name}, unpacked but not installed"
        report.line(f"{tool.name} {packed.version}: {source}")
        return packed


class _No(Exception):
    """Why a package cannot be fetched here."""


def _unpacked(tool: Tool, package: Package, scratch: Path, report: Reporter) -> Packed:
    folder = scratch / f"package-{package.name}"
    if not folder.is_dir():  # two tools of one package are fetched once
        candidate = _candidate(package, tool.accepted, report)
        report.update(f"{tool.name}: apt-get download {package.name} {candidate}")
        download = scratch / f"download-{package.name}"
        download.mkdir()
        _run(("apt-get", *_IMPATIENT, "--quiet", "download", package.name), download, _FETCH_S)
        file = next(iter(download.glob("*.deb")), None)
        if file is None:
            raise _No(f"apt-get download left no file of {package.name}")
        _run(("dpkg-deb", "--extract", str(file), str(folder)), scratch, _FETCH_S)
    binary = folder / package.member
    version = ask_version(binary, tool.ask or ())
    if version is None or not fits(version, tool.accepted):
        found = version or "nothing"
        raise _No(f"{package.member} of the package {package.name} reports version {found} here")
    return Packed(version, binary)


def _candidate(package: Package, accepts: tuple[str, str], report: Reporter) -> str:
    """The version that apt would install, as the distribution writes it. Raises _No."""
    candidate = _policy(package)
    if candidate is None and os.geteuid() == 0:
        report.update(f"{package.name}: apt-get update")
        _run(("apt-get", *_IMPATIENT, "--quiet", "update"), Path("/"), _FETCH_S)
        candidate = _policy(package)
    if candidate is None:
        raise _No(f"apt knows no package {package.name}")
    upstream = re.match(r"(?:\d+:)?(\d+\.\d+\.\d+)", candidate)
    if not upstream or not fits(upstream[1], accepts):
        low, high = accepts
        raise _No(f"the package {package.name} is {candidate}, not from {low} up to {high}")
    return candidate


def _policy(package: Package) -> str | None:
    found = re.search(
        r"^\s*Candidate: (\S+)$", _run(("apt-cache", "policy", package.name), Path("/"), _LOOK_S), re.M
    )
    return found[1] if found and found[1] != "(none)" else None


def _run(command: Sequence[str], folder: Path, seconds: int) -> str:
    """Output of a command; raises _No with its last line if it fails or takes too long."""
    shown = " ".join(word for word in command if word not in _IMPATIENT)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _No(f"{shown}: {error}") from error
    if done.returncode:
        words = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise _No(f"{shown}: {words[-1] if words else f'ended with {done.returncode}'}")
    return done.stdout

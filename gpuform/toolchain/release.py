"""Official releases: one probe per run says whether they can be reached, a pinned SHA-256 what is kept.

The catalogue pins no release yet: no checksum is written down that was not checked against the file, and that
could not be done where the catalogue was made. A tool without a pinned release goes on to the Go build.
"""

from __future__ import annotations

import hashlib
import platform
import tarfile
from pathlib import Path

from gpuform.errors import Failure
from gpuform.toolchain.catalogue import Release, Tool
from gpuform.toolchain.progress import Reporter

PROBE_SECONDS = 3.0
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def this_platform() -> str:
    """``os/arch`` of this machine in Go's words, for example ``linux/amd64``."""
    machine = platform.machine()
    return f"{platform.system().lower()}/{_MACHINES.get(machine, machine)}"


def release_of(tool: Tool) -> Release | None:
    """The pinned release for this machine, None if there is none."""
    return tool.releases.get(this_platform())


class Releases:
    """Fetches releases; after one failed probe it does not try again."""

    def __init__(self) -> None:
        """Nothing is probed before the first release is asked for."""
        self._reachable: bool | None = None

    def fetch(self, tool: Tool, scratch: Path, report: Reporter) -> Path | None:
        """The tool's binary below ``scratch``; None if it has no release or the release cannot be reached.

        Raises Failure if what came is not what was pinned: that is never passed over in silence.
        """
        release = release_of(tool)
        if release is None or not self._probe(release, report):
            return None
        file = scratch / f"{tool.name}.download"
        report.update(f"{tool.name}: downloading {release.url}")
        if not _download(release.url, file, report):
            return None
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != release.sha256:
            raise Failure(
                tool.name,
                f"{release.url} has SHA-256 {digest}, pinned is {release.sha256}",
                "do not use that file; find out which of the two is wrong before the pin is changed",
            )
        binary = scratch / f"{tool.name}.binary"
        _unpack(file, release.member, binary)
        binary.chmod(0o755)
        report.line(f"{tool.name} {tool.module.says}: official release, SHA-256 checked")
        return binary

    def _probe(self, release: Release, report: Reporter) -> bool:
        if self._reachable is None:
            import httpx

            try:
                httpx.head(release.url, timeout=PROBE_SECONDS, follow_redirects=True).raise_for_status()
                self._reachable = True
            except httpx.HTTPError as error:
                self._reachable = False
                report.line(
                    f"releases cannot be reached ({error or type(error).__name__}); building from Go modules"
                )
        return self._reachable


def _download(url: str, target: Path, report: Reporter) -> bool:
    import httpx

    try:
        with httpx.stream("GET", url, timeout=30, follow_redirects=True) as answer, target.open("wb") as out:
            answer.raise_for_status()
            for chunk in answer.iter_bytes(1 << 20):
                out.write(chunk)
    except httpx.HTTPError as error:
        report.line(f"{url}: {error or type(error).__name__}; building from the Go module")
        return False
    return True


def _unpack(file: Path, member: str | None, binary: Path) -> None:
    if member is None:
        file.replace(binary)
        return
    with tarfile.open(file) as archive:
        content = archive.extractfile(member)
        if content is None:
            raise Failure(
                str(file), f"{member} is no file in the release", "correct the member in the catalogue"
            )
        with binary.open("wb") as out:
            while chunk := content.read(1 << 20):
                out.write(chunk)
    file.unlink()

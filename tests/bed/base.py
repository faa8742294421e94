"""The root file system below every host: made once by debootstrap, then read-only.

The Debian mirror is that of this machine's own apt configuration; the tests do not name one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.plane import lock
from tests.bed import places
from tests.bed.refusal import Refused

# Packages of a fresh installation: an init, ssh, what Ansible needs, an administrator's tools.
PACKAGES = [
    *("systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "openssh-server", "python3"),
    *("python3-apt", "iproute2", "iputils-ping", "ca-certificates", "sudo", "procps", "kmod", "less"),
]
SUITE = "bookworm"  # Debian 12
MADE = "made"  # written last: a base without it was interrupted


def base(say: Callable[[], None] = lambda: None) -> Path:
    """Folder of the base image; the first call announces and makes it, in 72 s on two cores."""
    main = next(source for source in sources() if SUITE in source.suites)
    key = hashlib.sha256(repr((SUITE, PACKAGES)).encode()).hexdigest()[:12]
    root = places.shared() / f"base-{key}"
    if (root / MADE).exists():
        return root / "root"
    with lock.file_lock(places.shared() / "base.lock", busy=lambda: None):
        if not (root / MADE).exists():
            say()
            _make(root, main.url)
    return root / "root"


def _make(root: Path, url: str) -> None:
    if root.exists():
        shutil.rmtree(root)
    work = Path(tempfile.mkdtemp(prefix="making-", dir=places.shared()))
    try:
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        log = places.shared() / "debootstrap.log"
        with log.open("w") as out:
            done = subprocess.run(
                [*command, SUITE, str(work / "root"), url], stdout=out, stderr=subprocess.STDOUT
            )
        if done.returncode:
            tail = " | ".join(log.read_text().splitlines()[-3:])
            raise Refused(f"debootstrap from {url} ended with {done.returncode}: {tail} (log: {log})")
        _settle(work / "root")
        (work / MADE).touch()
        work.rename(root)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _settle(root: Path) -> None:
    """Remove what must differ between hosts, and what a container cannot have."""
    for left in [*(root / "etc/ssh").glob("ssh_host_*"), *(root / "var/cache/apt/archives").glob("*.deb")]:
        left.unlink()
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)
    units = ["systemd-networkd", "ssh"]
    subprocess.run(["chroot", str(root), "systemctl", "enable", *units], check=True, capture_output=True)


@dataclass(frozen=True)
class Source:
    url: str
    suites: tuple[str, ...]


def sources(etc: Path = Path("/etc/apt")) -> list[Source]:
    """The machine's own archives of Debian 12, or the one in $GPUFORM_DEBIAN_MIRROR."""
    given = os.environ.get("GPUFORM_DEBIAN_MIRROR")
    if given:
        return [Source(given.rstrip("/"), (SUITE,))]
    result = [*_deb822(etc), *_lines(etc)]
    ours = [source for source in result if any(suite.split("-")[0] == SUITE for suite in source.suites)]
    if not any(SUITE in source.suites for source in ours):
        raise Refused(f"apt here has no mirror of Debian {SUITE}; set GPUFORM_DEBIAN_MIRROR to one")
    return ours


def _deb822(etc: Path) -> list[Source]:
    result = []
    for file in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", file.read_text()):
            fields = dict(
                re.findall(r"^(Types|URIs|Suites|Components|Enabled):\s*(.+)$", stanza, re.MULTILINE)
            )
            usable = "main" in fields.get("Components", "").split() and fields.get("Enabled") != "no"
            if "deb" in fields.get("Types", "").split() and usable:
                url = fields["URIs"].split()[0].rstrip("/")
                result.append(Source(url, tuple(fields["Suites"].split())))
    return result


def _lines(etc: Path) -> list[Source]:
    result = []
    for file in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]:
        for line in file.read_text().splitlines() if file.is_file() else []:
            match = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
            if match and "main" in match[3].split():
                result.append(Source(match[1].rstrip("/"), (match[2],)))
    return result

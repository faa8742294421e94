"""The root file system below every host: made once by debootstrap, then read-only."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bed import mirror, places
from tests.bed.locks import held
from tests.bed.refusal import Refused

# Packages of a fresh installation: an init, ssh, what Ansible needs, an administrator's tools.
PACKAGES = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "libpam-systemd",
    "udev",
    "openssh-server",
    "python3",
    "python3-apt",
    "iproute2",
    "iputils-ping",
    "ca-certificates",
    "sudo",
    "procps",
    "kmod",
    "less",
]
MADE = "made"  # written last: a base without it was interrupted


def base(say: Callable[[], None] = lambda: None) -> Path:
    """Folder of the base image; the first call announces and makes it, in 72 s on two cores."""
    main = next(source for source in mirror.sources() if mirror.SUITE in source.suites)
    key = hashlib.sha256(repr((mirror.SUITE, PACKAGES)).encode()).hexdigest()[:12]
    root = places.shared() / f"base-{key}"
    if (root / MADE).exists():
        return root / "root"
    with held(places.shared() / "base.lock"):
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
                [*command, mirror.SUITE, str(work / "root"), url], stdout=out, stderr=subprocess.STDOUT
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

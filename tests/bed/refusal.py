from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.bed import cgroups

# tool -> Debian package
TOOLS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "unshare": "util-linux",
    "dpkg-deb": "dpkg",
    "apt-ftparchive": "apt-utils",
    "gpg": "gnupg",
}


class Refused(Exception):
    """This machine cannot boot hosts; ``str()`` gives the reason and the remedy."""


def check() -> None:
    """Raise Refused unless this user on this machine has everything that a bed needs."""
    if os.geteuid() != 0:
        raise Refused("hosts are booted by root only (mounts, bridges): run the tests as root")
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise Refused(f"missing here: {', '.join(missing)}; on Debian: apt-get install {' '.join(missing)}")
    for what, command in _TRIALS.items():
        done = subprocess.run(["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True)
        if done.returncode:
            raise Refused(f"{what} is refused here: {done.stderr.strip()}")


def make_room() -> None:
    """Raise the machine's limit on inotify instances, which all hosts share because they run as root.

    systemd and its services hold about ten in each host; the kernel's default of 128 suffices for eleven.
    The twelfth host fails with "Failed to create control group inotify object: Too many open files".
    """
    if int(_INSTANCES.read_text()) >= INSTANCES:
        return
    try:
        _INSTANCES.write_text(f"{INSTANCES}\n")
    except OSError as error:
        raise Refused(f"{_INSTANCES} is below {INSTANCES} and cannot be raised: {error}") from error


@cache
def boot(root: Path) -> None:
    """Raise Refused unless a container starts here, on a read-only root file system."""
    group = f"trial-{os.getpid()}"
    start = ["systemd-nspawn", "--quiet", f"--directory={root}", "--read-only", "--register=no"]
    try:
        enter = cgroups.entering(cgroups.make(group))
        command = [*enter, *start, "--keep-unit", "--resolv-conf=off", "--timezone=off", "--pipe", "true"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    except OSError as error:
        raise Refused(f"a control group is refused here: {error}") from error
    finally:
        cgroups.end(group)
    if done.returncode:
        raise Refused(f"systemd-nspawn starts no container here: {done.stderr.strip()}")


INSTANCES = 8192
_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")

_TRIALS = {
    "an overlay mount": (
        "mount -t tmpfs none /mnt && mkdir /mnt/low /mnt/up /mnt/work /mnt/root && "
        "mount -t overlay none -o lowerdir=/mnt/low,upperdir=/mnt/up,workdir=/mnt/work /mnt/root"
    ),
    "a network bridge": "unshare --net ip link add name probe type bridge",
}

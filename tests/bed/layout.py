"""Files written over the base image: those of all test hosts, and those of a single host."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import yaml

from tests.bed import places
from tests.bed.host import Host

IMAGE = Path(__file__).with_name("image")  # the fakes, at their places in a host
MACHINE_KEY = "usr/share/keyrings/bed-machine.asc"  # of the repository for this machine's kernel
FAKES = Path("usr/local/lib/fake-gpu")


def _files() -> dict[Path, Path]:
    """Place in a host -> file: the fakes, and beside them the modules that they import."""
    root = Path(__file__).parents[2]
    result = {path.relative_to(IMAGE): path for path in IMAGE.rglob("*") if path.is_file()}
    for name in ("__init__", "hardware", "mig_geometry"):
        module = Path("lab/simulator") / f"{name}.py"
        result[FAKES / module] = root / module
    for path in Path(yaml.__file__).parent.glob("*.py"):
        result[FAKES / "yaml" / path.name] = path
    return {place: path for place, path in sorted(result.items()) if path.suffix != ".pyc"}


def layer() -> Path:
    """A folder with ``IMAGE``'s files, a layer between the base and each host; made once per content."""
    files = _files()
    digest = hashlib.sha256()
    for place, file in files.items():
        digest.update(f"{place}\0".encode() + file.read_bytes() + b"\0")
    folder = places.shared() / f"layer-{digest.hexdigest()[:12]}"
    if folder.exists():
        return folder
    places.shared().mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="making-", dir=places.shared()))
    for place, file in files.items():
        _place(work, place, file)
    for path, _, _ in os.walk(work):
        Path(path).chmod(0o755)
    try:
        work.rename(folder)
    except OSError:  # another session was faster
        shutil.rmtree(work)
    return folder


def _place(work: Path, place: Path, file: Path) -> None:
    copy = work / place
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    copy.chmod(0o755 if file.read_bytes().startswith((b"#!", b"\x7fELF")) else 0o644)
    if copy.suffix == ".service":
        target = re.findall(r"^WantedBy=(.+)$", file.read_text(), re.MULTILINE)[0]
        wanted = work / f"etc/systemd/system/{target}.wants" / copy.name
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.symlink_to(f"/{place}")


def keys(folder: Path) -> None:
    if not (folder / "key").exists():
        _keygen(folder / "key", "gpuform-bed")


def furnish(host: Host, gateway: str, apt: str, machine_key: Path) -> None:
    up = host.folder / "up"
    done = host.folder / "furnished"
    if done.exists():
        return  # later changes are the host's own
    host.folder.mkdir(parents=True, exist_ok=True)
    key = host.folder / "ssh_host_ed25519_key"
    key.unlink(missing_ok=True)
    _keygen(key, host.name)
    files = {
        "etc/machine-id": f"{uuid.uuid4().hex}\n",
        "etc/hostname": f"{host.name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n::1 localhost\n{gateway} mirror.bed\n",
        "etc/resolv.conf": "",
        "etc/systemd/network/10-host0.network": _NETWORK.format(address=host.address),
        "etc/ssh/ssh_host_ed25519_key": key.read_text(),
        "etc/ssh/ssh_host_ed25519_key.pub": key.with_suffix(".pub").read_text(),
        "root/.ssh/authorized_keys": (host.bed / "key.pub").read_text(),
        "etc/apt/sources.list": apt,
        MACHINE_KEY: machine_key.read_text(),
    }
    for name, text in files.items():
        path = up / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (up / "etc/ssh/ssh_host_ed25519_key").chmod(0o600)
    for private in ("root", "root/.ssh"):
        (up / private).chmod(0o700)
    done.touch()


def ssh_files(folder: Path, hosts: list[Host]) -> None:
    lines = []
    for host in hosts:
        kind, key = (host.folder / "ssh_host_ed25519_key.pub").read_text().split()[:2]
        lines.append(f"{host.name},{host.address} {kind} {key}\n")
    (folder / "known_hosts").write_text("".join(lines))
    blocks = [f"Host {host.name}\n  HostName {host.address}\n  Port {host.port}\n" for host in hosts]
    (folder / "ssh_config").write_text("".join(blocks) + _CONFIG.format(folder=folder))


def _keygen(path: Path, comment: str) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


_NETWORK = """\
[Match]
Name=host0

[Network]
Address={address}/24
LinkLocalAddressing=no
"""

# ssh must print no warnings: testinfra's is_valid fails on them.
_CONFIG = """\
Host *
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
  LogLevel ERROR
"""

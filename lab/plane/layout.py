"""Paths of what the control plane keeps between starts: its record, data, certificates and logs."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import yaml

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from lab.sidecars.shared.files import write_private

CLUSTER = "gpuform"  # kwokctl's name of the cluster; one per checkout, so it need not differ between them
_ALLOWED = "/._-+@"
PKI_FILES = ("ca.crt", "ca.key", "admin.crt", "admin.key")


@dataclass(frozen=True)
class Layout:
    """The folders below ``paths.plane``; nothing here creates them.

    etcd's data and the certificates lie outside kwokctl's folder, since kwokctl removes that whole folder
    when a create fails.
    """

    paths: Paths

    @property
    def home(self) -> Path:
        """Everything of the control plane but the kubeconfig and the logs; mode 0700."""
        return self.paths.plane / "embedded"

    @property
    def lock(self) -> Path:
        """Held during a start or stop; outside what a delete removes."""
        if self.paths.plane == self.paths.state:
            return self.paths.state / "embedded.lock"
        return self.paths.plane.with_name(f".{self.paths.stack}.lock")

    @property
    def logs(self) -> Path:
        return self.paths.plane / "logs"

    @property
    def record(self) -> Path:
        return self.home / "cluster.json"

    @property
    def etcd(self) -> Path:
        return self.home / "etcd"

    @property
    def pki(self) -> Path:
        """Certificates, kept so that a new install keeps the kubeconfig and service account tokens valid."""
        return self.home / "pki"

    @property
    def packer(self) -> Path:
        """The second scheduler's program: a link in its own folder, by which its process is recognised."""
        return self.home / "packer" / "gpuform-packer"

    @property
    def monitor(self) -> Path:
        """Folder of monitoring's files and programs: links, by which their processes are recognised."""
        return self.home / "monitor"

    @property
    def controllers(self) -> Path:
        """Folder of the controllers' files and programs: links, by which their processes are recognised."""
        return self.home / "controllers"

    @property
    def operator(self) -> Path:
        """NVIDIA's operator as a program; exists if it runs here, and is not simulated."""
        return self.controllers / "bin" / "gpu-operator"

    @property
    def egress(self) -> Path:
        """The API server's way to the controllers; exists once a stack has declared one."""
        return self.controllers / "egress.yaml"

    @property
    def config(self) -> Path:
        return self.home / "kwokctl.yaml"

    @property
    def kwok_home(self) -> Path:
        return self.home / "kwok"

    @property
    def workdir(self) -> Path:
        """kwokctl's folder of our cluster: links to binaries, process ids, own kubeconfig, certificates."""
        return self.kwok_home / "clusters" / CLUSTER

    def require_plain(self) -> None:
        """Raise InputError for a path that kwokctl cuts at a blank, or splits at ``#``, ``%`` or a comma."""
        if not all(letter.isalnum() or letter in _ALLOWED for letter in str(self.home)):
            raise InputError(
                str(self.home),
                "kwokctl accepts no path with blanks or special characters",
                "move the project, or set GPUFORM_STATE, to a path of letters, digits and . _ - + @ only",
            )

    def log(self, member: str) -> Path:
        """Log of one member; kwokctl's folder of logs is a link to ``logs``."""
        return self.logs / f"{'kwok-controller' if member == 'kwok' else member}.log"


@dataclass(frozen=True)
class Record:
    """What must stay the same from start to start; read by the next start, written before anything runs.

    ``digest`` covers the whole installed configuration except the binaries' paths; it is empty while a create
    is in progress.
    """

    ports: dict[str, int] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def load(cls, layout: Layout) -> Record:
        """The stored record; an empty one if it is absent or unreadable, since it holds no user data."""
        try:
            stored = json.loads(layout.record.read_text())
            return cls(stored["ports"], stored["digest"])
        except (OSError, ValueError, TypeError, KeyError):
            return cls()

    def store(self, layout: Layout) -> None:
        """Write atomically, so that a kill leaves the old or the new record."""
        write_private(layout.record, json.dumps(asdict(self), indent=1))


def keep_pki(layout: Layout) -> None:
    """Copy kwokctl's certificates to ``layout.pki``, unless a complete copy exists."""
    if complete_pki(layout.pki):
        return
    draft = layout.pki.with_name("pki.new")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(layout.pki, ignore_errors=True)
    shutil.copytree(layout.workdir / "pki", draft)
    draft.replace(layout.pki)


def complete_pki(folder: Path) -> bool:
    return all((folder / name).is_file() and (folder / name).stat().st_size > 0 for name in PKI_FILES)


def rotate_log(log: Path) -> None:
    if log.exists():
        log.replace(log.with_name(f"{log.stem}.previous.log"))


def prometheus_port(paths: Paths) -> int | None:
    """Loopback port of the control plane's Prometheus; None if it was never started."""
    return Record.load(Layout(paths)).ports.get("prometheus")


def kubeconfig(server: str, pki: Path) -> str:
    """A kubeconfig for ``server`` with the administrator's certificate inside; it names no file."""

    def data(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    name = "gpuform-local"
    cluster = {"server": server, "certificate-authority-data": data("ca.crt")}
    user = {"client-certificate-data": data("admin.crt"), "client-key-data": data("admin.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)

"""A flat apt repository with its own key, served by the bed: signatures, pins and upgrades are real."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bed import places

SUITE = "./"  # path that apt expects after the address of a flat repository
# NVIDIA's own repositories have these in their Release file.
_RELEASE = {"Origin": "NVIDIA", "Label": "NVIDIA CUDA"}


@dataclass(frozen=True)
class Package:
    """One binary package; ``files``: absolute path -> text, or a file to copy.

    A text with ``#!`` is executable. ``fields`` are further fields of the control file, ``scripts`` the
    maintainer scripts by name.
    """

    name: str
    version: str
    files: Mapping[str, str | Path] = field(default_factory=dict)
    depends: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def control(self) -> str:
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            "Maintainer": "gpuform tests <packages@localhost>",
            **({"Depends": ", ".join(self.depends)} if self.depends else {}),
            **self.fields,
            "Description": "a stand-in for the tests of gpuform\n It drives no hardware.",
        }
        return "".join(f"{name}: {value}\n" for name, value in lines.items())

    @property
    def digest(self) -> str:
        digest = hashlib.sha256(repr((self.control, sorted(self.scripts.items()))).encode())
        for path, content in sorted(self.files.items()):
            data = content.read_bytes() if isinstance(content, Path) else content.encode()
            digest.update(f"{path}\0".encode() + hashlib.sha256(data).digest())
        return digest.hexdigest()[:16]


def build(package: Package) -> Path:
    built = places.shared() / "packages" / f"{package.name}_{package.digest}.deb"
    if built.exists():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built.parent, prefix=".") as folder:
        root = Path(folder) / "root"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(package.control)
        for name, text in package.scripts.items():
            (root / "DEBIAN" / name).write_text(text)
            (root / "DEBIAN" / name).chmod(0o755)
        for name, content in package.files.items():
            _place(root / name.lstrip("/"), content)
        conffiles = sorted(name for name in package.files if name.startswith("/etc/"))
        (root / "DEBIAN/conffiles").write_text("".join(f"{name}\n" for name in conffiles))
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root)]
        subprocess.run([*command, f"{folder}/out.deb"], check=True, capture_output=True)
        (Path(folder) / "out.deb").replace(built)
    return built


def _place(path: Path, content: str | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
        path.chmod(content.stat().st_mode & 0o777)
    else:
        path.write_text(content)
        path.chmod(0o755 if content.startswith("#!") else 0o644)


class Repository:
    """Packages at ``url``; hosts see changes only after ``publish``."""

    def __init__(self, folder: Path, private: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.key = folder / "key.asc"
        self._private = private
        if not self.key.exists():
            self._make_key()

    @property
    def fingerprint(self) -> str:
        with self._gpg() as home:
            listed = _run(home, "--with-colons", "--fingerprint", "--list-keys")
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    @property
    def settings(self) -> dict[str, str]:
        """The repository as an environment declares it."""
        return {"url": self.url, "suite": SUITE, "key": str(self.key), "fingerprint": self.fingerprint}

    @property
    def variables(self) -> dict[str, str]:
        """The repository as role variables: with the key's text."""
        return {**self.settings, "key": self.key.read_text()}

    def put(self, *packages: Package) -> None:
        for package in packages:
            built = build(package)
            name = f"{package.name}_{package.version.replace(':', '%3a')}_amd64.deb"
            shutil.copyfile(built, self.folder / name)

    def remove(self, package: str, version: str = "*") -> None:
        for file in self.folder.glob(f"{package}_{version}_*.deb"):
            file.unlink()

    def publish(self) -> None:
        index = self._archive("packages", ".")
        (self.folder / "Packages").write_text(index)
        for old in ("Release", "InRelease", "Release.gpg"):
            (self.folder / old).unlink(missing_ok=True)
        options = [f"APT::FTPArchive::Release::{name}={value}" for name, value in _RELEASE.items()]
        release = self._archive(*(word for option in options for word in ("-o", option)), "release", ".")
        with self._gpg() as home:
            plain = home / "Release"
            plain.write_text(release)
            _run(home, "--clearsign", "--output", str(home / "InRelease"), str(plain))
            _run(home, "--armor", "--detach-sign", "--output", str(home / "Release.gpg"), str(plain))
            for name in ("Release", "Release.gpg", "InRelease"):
                shutil.copyfile(home / name, self.folder / name)

    def _archive(self, *args: str) -> str:
        done = subprocess.run(
            ["apt-ftparchive", *args], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout

    def _make_key(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._gpg() as home:
            who = f"gpuform tests {self.folder.name} <packages@localhost>"
            _run(home, "--passphrase", "", "--quick-generate-key", who, "ed25519", "sign", "never")
            self._private.write_text(_run(home, "--armor", "--export-secret-keys"))
            self.key.write_text(_run(home, "--armor", "--export"))

    @contextmanager
    def _gpg(self) -> Iterator[Path]:
        """A gpg home with the repository's key and its own agent; a short path, for the agent's socket."""
        with tempfile.TemporaryDirectory(prefix="gpg-") as folder:
            home = Path(folder)
            try:
                if self._private.exists():
                    _run(home, "--import", str(self._private))
                yield home
            finally:
                environment = {**os.environ, "GNUPGHOME": folder}
                subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True, capture_output=True)


def _run(home: Path, *args: str) -> str:
    command = ["gpg", "--batch", "--quiet", "--no-tty", "--homedir", str(home), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

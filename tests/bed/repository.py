"""A flat apt repository with its own key, served by the bed: signatures, pins and upgrades are real."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.bed.deb import Package, build

SUITE = "./"  # path that apt expects after the address of a flat repository
# NVIDIA's own repositories have these in their Release file.
_RELEASE = {"Origin": "NVIDIA", "Label": "NVIDIA CUDA"}


class Repository:
    """Packages at ``url``; hosts see changes only after ``publish``."""

    def __init__(self, folder: Path, private: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.suite = SUITE
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
        return {
            "url": self.url,
            "suite": self.suite,
            "key": str(self.key),
            "fingerprint": self.fingerprint,
        }

    @property
    def variables(self) -> dict[str, str]:
        """The repository as role variables: with the key's text."""
        return {**self.settings, "key": self.key.read_text()}

    def add(
        self,
        package: str,
        version: str,
        files: Mapping[str, str | Path] | None = None,
        depends: Iterable[str] = (),
        **more: str,
    ) -> None:
        """Add a package; ``more``: fields of its control file with _ for -, such as ``provides``."""
        fields = {name.replace("_", "-").title(): value for name, value in more.items()}
        self.put(Package(package, version, files or {}, tuple(depends), fields))

    def put(self, *packages: Package) -> None:
        for package in packages:
            built = build(package)
            name = f"{package.name}_{package.version.replace(':', '%3a')}_{package.architecture}.deb"
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

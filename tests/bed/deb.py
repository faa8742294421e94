from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.bed import places


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
    architecture: str = "amd64"

    @property
    def control(self) -> str:
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
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
        command = [
            "dpkg-deb",
            "--root-owner-group",
            "-Zgzip",
            "-z1",
            "--build",
            str(root),
            f"{folder}/out.deb",
        ]
        subprocess.run(command, check=True, capture_output=True)
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

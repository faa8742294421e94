"""A commit as the base of a comparison."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from gpuform.preview.base import checkout

pytestmark = pytest.mark.unit


def test_a_commit_is_extracted_by_python_3_11_2_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12 has 3.11.2; extractall(filter=) and tarfile's filters exist from 3.11.4 on."""

    def extractall(self: tarfile.TarFile, path: Path = Path()) -> None:
        for member in self.getmembers():
            self.extract(member, path)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    monkeypatch.delattr(tarfile, "data_filter")
    (tmp_path / "Pulumi.yaml").write_text("name: before\n")
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.invalid commit -qm before"):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    (tmp_path / "Pulumi.yaml").write_text("name: after\n")
    with checkout(tmp_path, "HEAD") as base:
        assert (base / "Pulumi.yaml").read_text() == "name: before\n"

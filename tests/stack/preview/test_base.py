"""The base of a comparison: a commit, and its nodes."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.stack.preview.base import checkout
from infra.config import load
from infra.model import labels
from lab.rehearse import nodes
from lab.toolchain import Toolchain

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


@pytest.mark.parametrize("lenient", [False, True])
def test_nodes_of_a_base_work_with_the_settings_of_earlier_versions(
    lenient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those set neither WITH_REBOOT nor RUNTIME_CONFIG_SOURCE: layouts failed, or nodes became NotReady."""
    here, applied = Paths.here(), []

    def kubectl(paths: Paths, tools: nodes.Tools, *words: str, input: str | None = None) -> str:
        applied.extend(json.loads(input)["items"] if input else ())
        return '{"items": []}'

    monkeypatch.setattr(nodes, "_kubectl", kubectl)
    nodes.play(load(here.root / "Pulumi.aws-prod.yaml"), here, Toolchain(here), lenient=lenient)
    annotations = [one["metadata"]["annotations"] for one in applied]
    assert any(labels.SIM_GPU_RESET in one for one in annotations) is not lenient
    assert any(labels.SIM_CONTAINER_RUNTIME in one for one in annotations) is not lenient

"""A failed preview keeps the logs that its message names; the base of a comparison, and its nodes."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine import EngineFailure, Result
from gpuform.stack.preview import run
from gpuform.stack.preview.run import Preview, checkout_base
from infra.config import load
from infra.model.base import labels
from lab.rehearse import nodes
from lab.rehearse import plane as planes
from lab.toolchain import Toolchain
from tests.lab.rehearse.fake_cluster import FakeCluster

pytestmark = pytest.mark.unit

STACK = "aws-dev"


class Plane:
    """A control plane that writes a log, and deletes it at its end as the real one does."""

    def __init__(self, paths: Paths, tools: Any) -> None:
        self.logs = paths.logs

    def start(self, progress: Any) -> None:
        self.logs.mkdir(parents=True)
        (self.logs / "etcd.log").write_text("started")

    def define_monitoring_kinds(self) -> None:
        pass

    def stop(self, delete: bool) -> None:
        (self.logs / "etcd.log").unlink(missing_ok=True)


class Engine:
    """An engine of which every run fails; its message names its log as that of the real one does."""

    def __init__(self, paths: Paths, tools: Any, **options: Any) -> None:
        self.logs = paths.logs

    def up(self, stack: str, on_event: Any) -> None:
        self._fails("up", stack)

    def preview(self, stack: str, on_event: Any, policy_packs: Any, acknowledged: Any) -> None:
        self._fails("preview", stack)

    def _fails(self, operation: str, stack: str) -> None:
        log = self.logs / f"pulumi-{operation}-{stack}.log"
        log.write_text(f"why the {operation} failed")
        raise EngineFailure(Result(operation, stack, {}, 1.0), "failed: no reason given", f"see {log}")


@pytest.fixture
def preview(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Runs a preview; what it says and how it fails, as one text."""
    monkeypatch.setattr(planes, "ControlPlane", Plane)
    monkeypatch.setattr(planes, "Engine", Engine)
    monkeypatch.setattr(run, "Engine", Engine)
    monkeypatch.setattr(nodes, "apply_nodes", lambda *of, **options: None)
    paths = replace(Paths.here(), state=tmp_path / "state")

    def previewed(base: str | None = None) -> str:
        message: list[str] = []
        try:
            preview = Preview(paths, Toolchain(paths), STACK, [], offline=True, base=base, say=message.append)
            replace(preview, simulate=planes.preview_base).run()
        except Failure as failure:
            message.append(f"{failure} {failure.remedy}")
        return "\n".join(message)

    return previewed


@pytest.mark.parametrize(("base", "operation"), [(None, "preview"), (str(Paths.here().root), "up")])
def test_the_log_that_a_failed_preview_names_is_there(
    preview: Callable[..., str], base: str | None, operation: str
) -> None:
    named = {Path(path) for path in re.findall(r"/\S+\.log\b", preview(base))}
    assert [path.read_text() for path in named] == [f"why the {operation} failed"]
    (kept,) = {path.parent for path in named}
    assert (kept / "etcd.log").exists(), "the control plane's own, too"


def test_one_set_of_logs_is_kept_for_each_stack(preview: Callable[..., str], tmp_path: Path) -> None:
    preview()
    (state,) = (tmp_path / "state").glob("[!.]*")
    before = sorted(state.rglob("*"))
    preview()
    assert sorted(state.rglob("*")) == before
    assert sorted(one.name for one in state.iterdir()) == [f"{STACK}.lock", f"{STACK}.logs"]


def commit_all(folder: Path) -> None:
    for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.invalid commit -qm all"):
        subprocess.run(["git", "-C", str(folder), *command.split()], check=True)


def test_a_commit_is_extracted_by_python_3_11_2_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12 has 3.11.2; extractall(filter=) and tarfile's filters exist from 3.11.4 on."""

    def extractall(self: tarfile.TarFile, path: Path = Path()) -> None:
        for member in self.getmembers():
            self.extract(member, path)

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    monkeypatch.delattr(tarfile, "data_filter")
    (tmp_path / "Pulumi.yaml").write_text("name: before\n")
    commit_all(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: after\n")
    with checkout_base(tmp_path, "HEAD") as base:
        assert (base / "Pulumi.yaml").read_text() == "name: before\n"


@pytest.mark.parametrize("lenient", [False, True])
def test_nodes_of_a_base_work_with_the_settings_of_earlier_versions(
    lenient: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those set neither WITH_REBOOT nor RUNTIME_CONFIG_SOURCE: layouts failed, or nodes became NotReady."""
    cluster = FakeCluster()
    monkeypatch.setattr(nodes, "_EmbeddedCluster", lambda *_: cluster)
    here = Paths.here()
    paths = replace(here, state=tmp_path)
    paths.kubeconfig.touch()
    nodes.apply_nodes(load(here.root / "Pulumi.aws-prod.yaml"), paths, Toolchain(here), lenient=lenient)
    annotations = [one["metadata"]["annotations"] for one in cluster.applied]
    assert any(labels.SIM_GPU_RESET in one for one in annotations) is not lenient
    assert any(labels.SIM_CONTAINER_RUNTIME in one for one in annotations) is not lenient


def test_a_base_is_the_project_s_folder_of_a_larger_repository(tmp_path: Path) -> None:
    root = tmp_path / "clusters" / "gpus"
    (root / "env").mkdir(parents=True)
    (root / "env" / "pyvenv.cfg").touch()  # a virtual environment, which Pulumi.yaml may name
    (root / "Pulumi.yaml").write_text("name: gpus\n")
    (tmp_path / ".gitignore").write_text("env\n")
    (root / ".gpuform").mkdir()
    (root / ".gpuform" / "kubeconfig").touch()
    (root / "kubectl").symlink_to("/usr/bin/kubectl")
    commit_all(tmp_path)
    with checkout_base(root, "HEAD") as base:
        assert sorted(file.name for file in base.iterdir()) == ["Pulumi.yaml", "env"]
        assert (base / "env").resolve() == root / "env"

"""``gpuform simulate`` without a cluster, or with an unreachable one; with a cluster: tests/simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gpuform.cli.main import app

pytestmark = pytest.mark.unit


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path))
    return tmp_path


def test_never_started(state: Path) -> None:
    result = CliRunner().invoke(app, ["simulate", "health", "node-0", "--gpu", "0"])
    assert result.exit_code == 1
    assert "has never been started; run `gpuform local start`" in result.stderr


def test_not_running(state: Path) -> None:
    here = [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}, "user": {"token": "t"}}]
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    config = {"current-context": "x", "contexts": [context], "clusters": here, "users": here}
    (state / "kubeconfig").write_text(yaml.safe_dump(config))
    result = CliRunner().invoke(app, ["simulate", "health", "node-0", "--gpu", "0"])
    assert result.exit_code == 1
    assert "the embedded control plane: does not answer" in result.stderr
    assert "see `gpuform local status`" in result.stderr


def test_which_gpu_has_to_be_said(state: Path) -> None:
    assert CliRunner().invoke(app, ["simulate", "health", "node-0"]).exit_code == 2

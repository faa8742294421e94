from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuform.cli.main import app
from lab.rehearse.run import Rehearsal

pytestmark = pytest.mark.unit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    def started(self: Rehearsal) -> None:
        raise AssertionError("it was started")

    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(Rehearsal, "run", started)
    return CliRunner()


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_wait_that_is_none(run: CliRunner, seconds: str) -> None:
    result = run.invoke(app, ["rehearse", "local", "--timeout", seconds])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --timeout: ")


def test_a_report_that_is_a_folder(run: CliRunner, tmp_path: Path) -> None:
    result = run.invoke(app, ["rehearse", "local", "--report", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {tmp_path}: is a folder")

"""``gpuform up`` with the real engine: an AWS stack is created only if its account allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.engine import Engine
from gpuform.stack import preflight
from gpuform.stack.preflight.check import Finding
from lab.toolchain import Toolchain
from tests.engine.conftest import aws_checkout

pytestmark = pytest.mark.engine


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = aws_checkout(tmp_path / "checkout")
    for name in [name for name in os.environ if name.startswith(("AWS_", "GPUFORM_STATE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.chdir(root)
    return root


def up(*words: str) -> Result:
    return CliRunner().invoke(app, ["up", "aws-dev", *words])


def test_a_failed_preflight_makes_nothing_and_a_skipped_or_passed_one_goes_on(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = up()
    assert refused.exit_code == 1, refused.output
    assert "preflight of stack aws-dev: 1 of " in refused.stderr
    assert not (checkout / ".gpuform").exists()  # not even a stack

    made = up("--skip-preflight")
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[-1].startswith("3 created in ")

    def fine(*_: Any, **__: Any) -> Iterator[Finding]:
        yield Finding("credentials", "PASS", "x")

    monkeypatch.setattr(preflight, "run_checks", fine)
    again = up()
    assert again.exit_code == 0, again.output
    told = again.stdout.splitlines()
    assert told[0] == "preflight of stack aws-dev: 1 of 1 checks passed, 0 failed"
    assert told[-2].startswith("3 unchanged in ")
    paths = Paths.here()
    assert len(Engine(paths, Toolchain(paths)).export("aws-dev")["deployment"]["resources"]) == 6

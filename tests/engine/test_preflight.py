"""The `pulumi` that ``gpuform local env`` puts on PATH: it runs the AWS preflight before an update."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine.environment import install_tools
from gpuform.engine.files import EngineFiles
from tests.components.aws_stacks import ROOT, own

pytestmark = pytest.mark.tools


class Shell:
    """A checkout with the wrapper, in front of a pulumi that only prints its arguments."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout 'x'"
        self.root.mkdir()
        shutil.copy(ROOT / "Pulumi.yaml", self.root)
        for name in ("aws-dev", "local"):
            (self.root / f"Pulumi.{name}.yaml").write_text(own((ROOT / f"Pulumi.{name}.yaml").read_text()))
        self.pulumi = folder / "pulumi"
        self.pulumi.write_text('#!/bin/sh\necho "pulumi $*"\n')
        self.pulumi.chmod(self.pulumi.stat().st_mode | stat.S_IXUSR)
        self.paths = Paths(self.root, folder / "state", folder / "cache")
        install_tools(EngineFiles(self.paths), self, "local")

    def path(self, name: str) -> Path:
        return self.pulumi

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Without credentials: a preflight fails."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GPUFORM_"))
        }
        alone = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
        return subprocess.run(
            [str(self.paths.shims / "pulumi"), *words],
            env={**kept, "PYTHONPATH": str(ROOT), **alone, "AWS_CONFIG_FILE": "/nowhere", **env},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("words", [("up", "--stack", "aws-dev"), ("-s", "org/gpuform/aws-dev", "update")])
def test_an_update_on_aws_is_not_begun_where_a_check_fails(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.run(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "FAIL  credentials" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("failed: preflight of stack aws-dev: 1 of ")


def test_the_stack_of_the_environment_is_the_one_that_is_asked_about(shell: Shell) -> None:
    assert "preflight of stack aws-dev" in shell.run("up", PULUMI_STACK="aws-dev").stderr


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (("up", "--stack", "aws-dev"), {"GPUFORM_SKIP_PREFLIGHT": "1"}),
        (("up", "--stack", "aws-dev"), {"GPUFORM_OFFLINE": "1"}),
        (("up", "--stack", "aws-dev", "--help"), {}),
        (("preview", "--stack", "aws-dev"), {}),
        (("destroy", "--stack", "aws-dev"), {}),
        (("up", "--stack", "local"), {}),
        (("up", "--stack", "nowhere"), {}),
        (("stack", "ls"), {}),
    ],
    ids=lambda part: "-".join(part) if part else "plain",
)
def test_nobody_is_asked_about_anything_else(
    shell: Shell, words: tuple[str, ...], env: dict[str, str]
) -> None:
    done = shell.run(*words, **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"pulumi {' '.join(words)}\n", "")


def test_a_stack_file_that_is_wrong_stops_as_well(shell: Shell) -> None:
    (shell.root / "Pulumi.aws-dev.yaml").write_text(
        "config: {'gpuform:environment': {cluster: {kind: aws}, name: a}}\n"
    )
    done = shell.run("up", "--stack", "aws-dev")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Pulumi.aws-dev.yaml:1:34: cluster.region: missing" in done.stderr

"""The small steps: list of stacks, acknowledgements, a job's summary, and plugins."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpuform.ci.__main__ import app
from gpuform.ci.stacks import find
from gpuform.paths import Paths
from gpuform.preview.summary import marker

pytestmark = pytest.mark.unit
ROOT = Paths.here().root


def step(*words: str, **env: str) -> Result:
    return CliRunner().invoke(app, list(words), env=env)


def test_stacks_are_those_that_have_a_file_and_need_no_package() -> None:
    # -S: without site-packages, as on a machine before any installation
    done = subprocess.run(
        [sys.executable, "-S", "-m", "gpuform.ci.stacks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == find(ROOT)
    assert {"local", "aws-dev", "aws-prod"} <= set(find(ROOT))


@pytest.mark.parametrize("name", ["$(id)", "a b", "-x", "a" * 101])
def test_a_name_that_is_no_stacks_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(ValueError, match="not a valid stack name; rename the file"):
        find(tmp_path)


def labels(*names: str) -> dict[str, Any]:
    return {"pull_request": {"labels": [{"name": name} for name in names]}}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (labels("bug", "acknowledge: prod-eks", "acknowledge:db", "acknowledge:"), ["prod-eks", "db"]),
        ({"inputs": {"acknowledge": " prod-eks  db prod-eks"}}, ["prod-eks", "db"]),
        ({"inputs": None}, []),
        ({"after": "0123"}, []),
    ],
)
def test_people_acknowledge_by_label_or_by_hand(
    tmp_path: Path, event: dict[str, Any], said: list[str]
) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(event))
    result = step("acknowledged", GITHUB_EVENT_PATH=str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [word for name in said for word in ("--acknowledge", name)]


def test_a_summary_is_added_to_the_jobs(tmp_path: Path) -> None:
    job, file = tmp_path / "job.md", tmp_path / "new" / "summary.md"
    assert step("summary", "local", str(file), GITHUB_STEP_SUMMARY=str(job)).exit_code == 0
    assert (
        file.read_text()
        == f"{marker('local')}\n### 🔴 `local`: there is no preview, see the log of the run\n"
    )
    file.write_text("second\n")
    assert step("summary", "local", str(file), GITHUB_STEP_SUMMARY=str(job)).exit_code == 0
    assert job.read_text().endswith("the run\nsecond\n")


def test_plugins_are_those_of_the_installed_packages() -> None:
    shown = dict(line.split() for line in step("plugins").stdout.splitlines())
    assert shown == {"aws": version("pulumi-aws"), "kubernetes": version("pulumi-kubernetes")}

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuform.stack.project import new_project
from lab.toolchain import Toolchain
from tests.cli.ci.workflows import FILES, ROOT

pytestmark = pytest.mark.engine
# The newest version of each action with inputs known to actionlint; it does not know commits.
KNOWN = {
    "actions/cache/restore": "v5",
    "actions/cache/save": "v5",
    "actions/checkout": "v6",
    "actions/download-artifact": "v7",
    "actions/setup-python": "v6",
    "actions/upload-artifact": "v6",
    "aws-actions/configure-aws-credentials": "v5",
    "pulumi/actions": "v6",
}


def lint(toolchain: Toolchain, *files: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Without the two linters that it would start from PATH: the same result everywhere.
    command = [str(toolchain.path("actionlint")), "-no-color", "-shellcheck=", "-pyflakes=", *map(str, files)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)


def test_every_workflow_passes(toolchain: Toolchain) -> None:
    done = lint(toolchain, *FILES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("target", ["aws", "local"])
def test_the_workflows_of_a_new_project_pass(toolchain: Toolchain, tmp_path: Path, target: str) -> None:
    new_project(tmp_path / "p", target)
    (tmp_path / "p" / ".git").mkdir()
    done = lint(toolchain, root=tmp_path / "p")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_action_gets_inputs_that_it_has(toolchain: Toolchain, tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    (tmp_path / ".git").mkdir()  # actionlint looks for our own actions below it
    for file in tmp_path.glob(".github/**/*.yml"):
        text = re.sub(
            r"([\w./-]+)@[0-9a-f]{40} # \S+", lambda used: f"{used[1]}@{KNOWN[used[1]]}", file.read_text()
        )
        file.write_text(text)
    done = lint(toolchain, root=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    preview = tmp_path / ".github" / "workflows" / "preview.yml"
    preview.write_text(preview.read_text().replace("fetch-depth:", "depth:"))
    assert 'input "depth" is not defined' in lint(toolchain, root=tmp_path).stdout

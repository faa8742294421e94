"""Which plugins a run needs: only those of SDKs that the program uses, not of every installed SDK."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version

import pytest

from gpuform.engine import engine_env
from tests.engine.conftest import Project

pytestmark = pytest.mark.engine

USED = "import pulumi_aws as aws; aws.s3.Bucket('bucket')"


def preview(project: Project, **settings: str) -> subprocess.CompletedProcess[str]:
    env = {**project.engine.prepare(), **settings}
    command = [project.paths.shims / "pulumi", "preview", "--non-interactive"]
    return subprocess.run(command, env=env, cwd=project.paths.root, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def _no_official_plugin() -> None:
    if shutil.which("pulumi-resource-aws"):
        pytest.skip("the official plugin for AWS is installed")


def test_an_sdk_that_is_only_installed_needs_no_plugin(project: Project) -> None:
    project.program("import pulumi; pulumi.export('a', 'b')")
    project.engine.preview()
    # Like a user's own engine: it may download, and every download fails.
    done = preview(
        project, PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION="false", HTTPS_PROXY="http://127.0.0.1:9"
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "ownload" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("kind", "offline", "refused"), [("embedded", False, True), ("aws", False, False), ("aws", True, True)]
)
def test_only_a_stack_of_a_real_cluster_may_download(
    project: Project, kind: str, offline: bool, refused: bool
) -> None:
    project.stack_file(f"config: {{gpuform:environment: {{cluster: {{kind: {kind}}}}}}}")
    env = engine_env(project.paths, project.toolchain, "local", offline)
    assert env["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] == str(refused).lower()
    assert ("GPUFORM_CHARTS" in env) == refused, "the same stacks find their charts here"


def test_one_that_is_used_names_its_plugin_itself(project: Project) -> None:
    project.program(USED)
    project.engine.prepare()
    done = preview(project)
    assert done.returncode != 0
    assert f"pulumi-resource-aws' found in the workspace at version v{version('pulumi-aws')}" in (
        done.stderr + done.stdout
    )

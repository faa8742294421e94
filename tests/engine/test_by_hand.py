from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import engine_env, export_lines, plugins
from gpuform.engine.environment import _clouds_yaml
from tests.engine.conftest import Project

pytestmark = pytest.mark.engine


@pytest.fixture
def shell(project: Project):
    lines = export_lines(engine_env(project.paths, project.toolchain))
    project.engine.prepare()

    def run(command: str) -> str:
        script = f"eval {shlex.quote(lines)}\n{command}"
        done = subprocess.run(
            ["bash", "-euc", script], cwd=project.paths.root, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    return run


def test_plain_pulumi_works_from_the_checkout(project: Project, shell) -> None:
    project.program("import pulumi; pulumi.export('colour', pulumi.Config().require('colour'))")
    assert "+ 1 to create" in shell("pulumi preview")
    assert (project.paths.state / ".gitignore").read_text() == "*\n"
    shell("pulumi up --yes --stack local")
    assert shell("pulumi stack output colour").strip() == "blue"
    project.stack_file("config: {'tried:colour': red}\n")
    shell("pulumi up --yes --skip-preview")
    assert shell("pulumi stack output colour").strip() == "red"
    assert "deleted" in shell("pulumi destroy --yes")


@pytest.mark.nightly
def test_a_shell_has_our_tools_and_settings_however_often_it_takes_them(
    project: Project, shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = project.paths.shims
    ours = [str(shims / name) for name in ("kubectl", "pulumi")]
    assert shell("command -v kubectl pulumi").splitlines() == ours
    assert shell('echo "$KUBECONFIG"').strip() == str(project.paths.kubeconfig)
    assert shell("pulumi config get colour").strip() == "blue"
    shell("pulumi config set colour green")
    text = (project.paths.root / "Pulumi.local.yaml").read_text()
    assert "tried:colour: green" in text
    assert "encryptionsalt" not in text
    for name in ("PULUMI_CONFIG_PASSPHRASE_FILE", "PULUMI_BACKEND_URL", "PULUMI_STACK"):
        monkeypatch.setenv(name, "file:///nowhere")
    shell("pulumi preview")
    real = {name: project.toolchain.path(name).resolve() for name in ("pulumi", "kubectl")}

    class Confused:
        """With our links first on PATH, the toolchain takes them for the tools."""

        def path(self, name: str) -> Path:
            return shims / name

    engine_env(project.paths, Confused())
    assert {name: (shims / name).resolve() for name in real} == real


def test_an_official_plugin_wins_and_is_not_announced(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "user"
    ours = {plugin.name: plugin for plugin in plugins(project.paths)}["pulumi-resource-kubernetes"]
    official = home / "plugins" / f"resource-kubernetes-v{ours.version}" / "pulumi-resource-kubernetes"
    official.parent.mkdir(parents=True)
    official.write_text("#!/bin/sh\n")
    official.chmod(0o755)
    assert ours.official is None
    said = {
        kind: ours.notice(
            project.stack_file(f"config: {{gpuform:environment: {{cluster: {{kind: {kind}}}}}}}")
        )
        for kind in ("embedded", "aws")
    }
    assert said["embedded"] == ""
    assert said["aws"].startswith(
        "gpuform: pulumi-resource-kubernetes is built from source of 2026-01-15, "
        f"not the official {ours.version}; warning: "
    )
    assert said["aws"].endswith(f"'pulumi plugin install resource kubernetes {ours.version}'")
    monkeypatch.setenv("PULUMI_HOME", str(home))
    engine_env(project.paths, project.toolchain)
    placed = project.paths.state / "engine" / "home" / "plugins" / official.parent.name / official.name
    assert str(official) in placed.read_text()
    found = {plugin.name: plugin for plugin in plugins(project.paths)}["pulumi-resource-kubernetes"]
    assert (found.official, found.notice(project.paths.root / "Pulumi.local.yaml")) == (official, "")
    assert not (project.paths.shims / official.name).exists(), "the engine finds it in its home"
    monkeypatch.setenv("PATH", f"{official.parent}{os.pathsep}{os.environ['PATH']}")
    engine_env(project.paths, project.toolchain)
    assert str(official) in (project.paths.shims / official.name).read_text(), "PATH comes before the home"


@pytest.mark.unit
def test_export_lines_are_safe_to_eval_and_leave_nothing_of_an_offline_run() -> None:
    """Otherwise own hosts would not be checked."""
    lines = export_lines({"B": "two words; $(false) 'x'", "A": "1"})
    script = f'{lines}\nprintf %s "$B ${{GPUFORM_OFFLINE-}}${{GPUFORM_CHARTS-}}"'
    before = {"GPUFORM_OFFLINE": "1", "GPUFORM_CHARTS": "x", "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-euc", script], env=before, capture_output=True, text=True, check=True)
    assert done.stdout == "two words; $(false) 'x' "
    assert lines.splitlines()[1] == "export A=1"


@pytest.mark.unit
def test_looking_for_plugins_starts_and_writes_nothing(tmp_path: Path) -> None:
    names = [plugin.name for plugin in plugins(Paths(tmp_path, tmp_path / "state", tmp_path / "cache"))]
    assert names == ["pulumi-language-python", "pulumi-resource-kubernetes", "pulumi-resource-openstack"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.unit
def test_the_openstack_provider_is_told_of_where_it_is_used(tmp_path: Path) -> None:
    plugin = next(one for one in plugins(Paths.here()) if one.name == "pulumi-resource-openstack")
    (tmp_path / "Pulumi.a.yaml").write_text("config: {gpuform:environment: {cluster: {kind: openstack}}}")
    (tmp_path / "Pulumi.b.yaml").write_text("config: {gpuform:environment: {cluster: {kind: embedded}}}")
    told = [plugin.is_needed_by(tmp_path / f"Pulumi.{name}.yaml") for name in ("a", "b", "none")]
    assert told == [True, False, False]
    assert "pulumi-resource-openstack" not in [one.name for one in plugins(Paths.here(), offline=True)]


@pytest.mark.unit
def test_plugins_find_the_clouds_yaml_of_the_checkout(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    assert _clouds_yaml(paths, {}) == {}
    file = tmp_path / "clouds.yaml"
    file.write_text("clouds: {}")
    assert _clouds_yaml(paths, {}) == {"OS_CLIENT_CONFIG_FILE": str(file)}
    assert _clouds_yaml(paths, {"OS_CLIENT_CONFIG_FILE": "/elsewhere/clouds.yaml"}) == {}


@pytest.mark.unit
def test_one_cloud_s_offline_runs_do_not_need_the_sdk_of_the_other() -> None:
    program = (
        "import importlib.util as util; found = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'pulumi_openstack' else found(name, *a)\n"
        "from gpuform.checkout.paths import Paths\n"
        "from gpuform.engine import standins\n"
        "print([plugin.name for plugin in standins._run_plugins(offline=True)])\n"
        "print(standins.plugins(Paths.here())[-1].name)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "'aws']" in done.stdout
    assert "openstack" not in done.stdout


USED = "import pulumi_aws as aws; aws.s3.Bucket('bucket')"


def preview(project: Project, **settings: str) -> subprocess.CompletedProcess[str]:
    env = {**project.engine.prepare(), **settings}
    command = [project.paths.shims / "pulumi", "preview", "--non-interactive"]
    return subprocess.run(command, env=env, cwd=project.paths.root, capture_output=True, text=True)


no_official_plugin = pytest.mark.skipif(
    shutil.which("pulumi-resource-aws") is not None, reason="the official plugin for AWS is installed"
)


@no_official_plugin
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


@no_official_plugin
def test_an_sdk_that_is_used_names_its_plugin_itself(project: Project) -> None:
    project.program(USED)
    project.engine.prepare()
    done = preview(project)
    assert done.returncode != 0
    assert f"pulumi-resource-aws' found in the workspace at version v{version('pulumi-aws')}" in (
        done.stderr + done.stdout
    )

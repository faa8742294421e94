"""The wheel alone: what a user has who never sees the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from tests.docs.pages import ROOT, files
from tests.journey.conftest import HERE, User
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

_SDIST = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"


def _run(*command: str | Path, cwd: Path) -> str:
    without = ("PYTHONPATH", "GPUFORM_STATE", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in without}
    env["GPUFORM_CACHE"] = str(HERE.cache)
    start = time.monotonic()
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600 * PATIENCE)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    print(f"{time.monotonic() - start:.1f} s: {' '.join(map(str, command[-3:]))}")  # with pytest -s
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from an sdist, which is built from a copy of what git tracks."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for path in files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, source / path)
    _run(sys.executable, "-c", _SDIST, folder, cwd=source)
    [sdist] = folder.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
    _run(*pip, "--no-deps", "--no-build-isolation", "-w", folder, sdist, cwd=folder)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def gpuform(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment with the wheel and the dependencies of this one.

    The path file names the folder of this environment's packages; path files in it, among them that of the
    editable installation, are not read then (docs.python.org, site), so the checkout is not found.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python, packages = folder / "bin" / "python", sysconfig.get_path("purelib")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "-q")
    _run(*pip, "--no-deps", "--no-index", wheel, cwd=folder)
    own = _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    Path(own, "dependencies.pth").write_text(f"{packages}\n")
    return folder / "bin" / "gpuform"


def test_the_wheel_has_one_package_with_all_files(wheel: Path, gpuform: Path, tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"gpuform"}
    bundle = {name for name in names if "/_bundle/" in name}
    tracked = {f"gpuform/_bundle/{path}" for path in files()}
    assert bundle <= tracked
    assert {path for path in files() if path.startswith("gpuform/")} == {
        name for name in names - bundle if name.startswith("gpuform/")
    }
    python = gpuform.with_name("python")
    alone = "import importlib.util as u; print([n for n in ('infra', 'lab', 'policies') if u.find_spec(n)])"
    assert _run(python, "-c", alone, cwd=tmp_path) == "[]\n"
    found = _run(python, "-c", "import gpuform, infra; print(infra.__file__)", cwd=tmp_path)
    assert found.startswith(str(gpuform.parents[1]))


def test_a_cluster_in_an_empty_folder(gpuform: Path, tmp_path: Path) -> None:
    assert "A100" in _run(gpuform, "gpus", cwd=tmp_path)
    assert json.loads(_run(gpuform, "schema", cwd=tmp_path))["title"] == "gpuform stack file"
    root = tmp_path / "my@gpus"
    below = root / "deep" / "er"
    root.mkdir()
    try:
        assert _run(gpuform, "local", "up", cwd=root).startswith("wrote Pulumi.yaml, ")
        below.mkdir(parents=True)
        status = json.loads(_run(gpuform, "status", "--json", cwd=below))
        assert [len(pool["nodes"]) for pool in status["pools"]] == [2, 1, 1, 1, 1, 1, 2]
        assert "11 files in out" in _run(gpuform, "render", "local", "-o", "out", cwd=below)
        assert "41 unchanged" in _run(gpuform, "up", "local", cwd=below)
        [state] = root.glob(".gpuform/engine/backend/.pulumi/stacks/*/local.json")
        assert state.parent.name == "my-gpus"
    finally:
        if root.joinpath(".gpuform").exists():
            _run(gpuform, "local", "stop", "--delete", cwd=root)


def test_a_new_project_is_created_changed_previewed_and_rehearsed(gpuform: Path, tmp_path: Path) -> None:
    root = tmp_path / "clusters"
    assert "12 files in clusters" in _run(gpuform, "new", "clusters", cwd=tmp_path)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "new")):
        _run(*git, *command, cwd=root)
    try:
        assert "41 created" in _run(gpuform, "local", "up", cwd=root)
        file = root / "Pulumi.local.yaml"
        file.write_text(file.read_text().replace("replicas: 4}", "replicas: 8}"))
        assert "1 to replace, 3 to update" in _run(gpuform, "preview", "--base", "HEAD", cwd=root)
        assert "9 of 9 pods placed" in _run(gpuform, "rehearse", cwd=root)
        assert "1 replaced" in _run(gpuform, "up", "local", cwd=root)
    finally:
        if root.joinpath(".gpuform").exists():
            _run(gpuform, "local", "stop", "--delete", cwd=root)


def test_plain_pulumi_runs_a_project_of_another_name(gpuform: Path, tmp_path: Path) -> None:
    """With the project's environment, and the plugin of the installation on PATH."""
    root = tmp_path / "project"
    (root / "deploy").mkdir(parents=True)
    options = f"  name: python\n  options: {{virtualenv: {gpuform.parents[1]}}}\n"
    (root / "Pulumi.yaml").write_text(f"name: another\nmain: deploy/\nruntime:\n{options}")
    (root / "deploy" / "__main__.py").write_text("import gpuform.program\n\ngpuform.program.run()\n")
    shutil.copy2(ROOT / "Pulumi.local.yaml", root)
    user = User(Paths(root, root / ".gpuform", HERE.cache), "local", tmp_path / "user")
    plugin = "pulumi-resource-gpuform"
    (tmp_path / "user" / "bin" / plugin).symlink_to(gpuform.with_name(plugin))
    assert "60 to create" in user.preview()

"""The small steps: list of stacks, acknowledgements, a job's summary, and plugins."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from gpuform.checkout.paths import Paths
from gpuform.checkout.stack_names import list_stack_names
from gpuform.cli.ci.__main__ import app
from gpuform.reports.pull_request import marker
from infra import versions
from lab.toolchain.tool import this_platform

pytestmark = pytest.mark.unit
ROOT = Paths.here().root


def step(*words: str, **env: str) -> Result:
    return CliRunner().invoke(app, list(words), env=env)


def test_stacks_are_those_that_have_a_file_and_need_no_package() -> None:
    # -S: without site-packages, as on a machine before any installation
    done = subprocess.run(
        [sys.executable, "-S", "-m", "gpuform.checkout.stack_names"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == list_stack_names(ROOT)
    assert {"local", "aws-dev", "aws-prod"} <= set(list_stack_names(ROOT))


@pytest.mark.parametrize("name", ["$(id)", "a b", "-x", "a" * 101])
def test_a_name_that_is_no_stacks_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "Pulumi.yaml").touch()
    (tmp_path / f"Pulumi.{name}.yaml").touch()
    with pytest.raises(ValueError, match="not a valid stack name; rename the file"):
        list_stack_names(tmp_path)


def labels(*names: str) -> dict[str, Any]:
    return {"pull_request": {"labels": [{"name": name} for name in names]}}


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (labels("bug", "acknowledge: prod-eks", "acknowledge:db", "acknowledge:"), ["prod-eks", "db"]),
        ({"inputs": {"acknowledge": " prod-eks  db prod-eks"}}, ["prod-eks", "db"]),
        ({"inputs": None}, []),
        ({"after": "0123"}, []),
    ],
)
def test_people_acknowledge_by_label_or_by_hand(
    tmp_path: Path, event: dict[str, Any], message: list[str]
) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(event))
    result = step("acknowledged", GITHUB_EVENT_PATH=str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [word for name in message for word in ("--acknowledge", name)]


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


SHA = "0123456789abcdef" * 4


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Files of Pulumi's releases, by the path below its organization; GitHub answers nothing else."""
    found: dict[str, list[dict[str, Any]]] = {}

    def get(url: str, headers: dict[str, str], timeout: float) -> httpx.Response:
        assert headers["Authorization"] == "Bearer ghs_1"
        assets = found.get(url.removeprefix("https://api.github.com/repos/pulumi/"))
        request = httpx.Request("GET", url)
        return httpx.Response(404 if assets is None else 200, json={"assets": assets}, request=request)

    monkeypatch.setattr(httpx, "get", get)
    return found


def test_plugins_are_those_of_the_installed_packages(releases: dict[str, list[dict[str, Any]]]) -> None:
    wanted = {name: version(f"pulumi-{name}") for name in ("aws", "kubernetes")}
    for name, number in wanted.items():
        file = f"pulumi-resource-{name}-v{number}-{this_platform().replace('/', '-')}.tar.gz"
        releases[f"pulumi-{name}/releases/tags/v{number}"] = [{"name": file, "digest": f"sha256:{SHA}"}]
    shown = step("plugins", GITHUB_TOKEN="ghs_1").stdout.splitlines()
    server = "https://get.pulumi.com/releases/plugins"
    machine = this_platform().replace("/", "-")
    assert shown == [
        f"{name} {number} {server}/pulumi-resource-{name}-v{number}-{machine}.tar.gz {SHA}"
        for name, number in wanted.items()
    ]


def test_the_engine_is_the_pinned_one(releases: dict[str, list[dict[str, Any]]]) -> None:
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    file = f"pulumi-v{versions.PULUMI}-linux-{machine}.tar.gz"
    assets = releases[f"pulumi/releases/tags/v{versions.PULUMI}"] = [
        {"name": file, "digest": f"sha256:{SHA}"}
    ]
    shown = step("engine", GITHUB_TOKEN="ghs_1")
    assert shown.stdout == f"https://get.pulumi.com/releases/sdk/{file} {SHA}\n"
    for wrong in ([], [{"name": file, "digest": None}], [{"name": file, "digest": "md5:0"}]):
        assets[:] = wrong
        refused = step("engine", GITHUB_TOKEN="ghs_1")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"GitHub: states no SHA-256 of {file}" in refused.stderr
    assert step("engine").exit_code == 2

"""The steps besides comments: list of stacks, acknowledgements, a job's summary, plugins, and issues."""

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
from gpuform.cli.ci.issue import drift_marker
from gpuform.reports.pull_request import marker
from infra import versions
from lab.toolchain.tool import this_platform
from tests.cli.ci.conftest import TOKEN, Fake

pytestmark = pytest.mark.unit
ROOT = Paths.here().root
SHA = "0123456789abcdef" * 4


def step(*words: str, **env: str) -> Result:
    return CliRunner().invoke(app, list(words), env=env)


def test_stacks_are_those_that_have_a_file_and_need_no_package() -> None:
    # -S: without site-packages, as on a machine before any installation
    command = [sys.executable, "-S", "-m", "gpuform.checkout.stack_names"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
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
    message = "### 🔴 `local`: there is no preview, see the log of the run"
    assert file.read_text() == f"{marker('local')}\n{message}\n"
    file.write_text("second\n")
    assert step("summary", "local", str(file), GITHUB_STEP_SUMMARY=str(job)).exit_code == 0
    assert job.read_text().endswith("the run\nsecond\n")


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
    assets = releases[f"pulumi/releases/tags/v{versions.PULUMI}"] = []
    assets.append({"name": file, "digest": f"sha256:{SHA}"})
    shown = step("engine", GITHUB_TOKEN="ghs_1")
    assert shown.stdout == f"https://get.pulumi.com/releases/sdk/{file} {SHA}\n"
    for wrong in ([], [{"name": file, "digest": None}], [{"name": file, "digest": "md5:0"}]):
        assets[:] = wrong
        refused = step("engine", GITHUB_TOKEN="ghs_1")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert f"GitHub: states no SHA-256 of {file}" in refused.stderr
    assert step("engine").exit_code == 2


def run_issue(fake: Fake, folder: Path, code: int | str, text: str = "", stack: str = "aws-dev") -> Result:
    (folder / "code").write_text(f"{code}\n")
    (folder / "drift.txt").write_text(text)
    result = step("issue", stack, str(folder), **fake.environ)
    assert TOKEN not in result.output
    return result


def test_one_issue_is_opened_updated_and_closed(fake: Fake, tmp_path: Path) -> None:
    assert run_issue(fake, tmp_path, 3, "node a: label gone").stdout == "aws-dev: drift, opened #1\n"
    assert fake.issues[0]["title"] == "Drift: aws-dev"
    assert fake.issues[0]["body"].startswith("<!-- gpuform drift aws-dev -->\n")
    assert "\n```text\nnode a: label gone\n```\n" in fake.issues[0]["body"]
    assert "(https://github.test/acme/gpus/actions/runs/77)" in fake.issues[0]["body"]
    assert run_issue(fake, tmp_path, 3, "node b: too").stdout == "aws-dev: drift, updated #1\n"
    assert "node b: too" in fake.issues[0]["body"]
    assert run_issue(fake, tmp_path, 3, "else", "aws-prod").stdout == "aws-prod: drift, opened #2\n"
    assert run_issue(fake, tmp_path, 0).stdout == "aws-dev: no drift, closed #1\n"
    assert [one["state"] for one in fake.issues] == ["closed", "open"]
    assert "No drift any more" in fake.issues[0]["notes"][0]
    assert run_issue(fake, tmp_path, 0).stdout == "aws-dev: no drift\n"
    assert run_issue(fake, tmp_path, 3, "again").stdout == "aws-dev: drift, opened #3\n"


def test_others_issues_and_pull_requests_are_left_alone(fake: Fake, tmp_path: Path) -> None:
    body = drift_marker("aws-dev") + "\nmine"
    fake.issue(body, "contributor")
    fake.issue(body, pull_request={})
    fake.issue("see\n" + body)
    assert run_issue(fake, tmp_path, 0).stdout == "aws-dev: no drift\n"
    assert fake.writes == []
    assert run_issue(fake, tmp_path, 3, "gone").stdout == "aws-dev: drift, opened #4\n"


def test_the_nightly_tests_have_one_issue(fake: Fake) -> None:
    def ended(result: str) -> Result:
        return step("nightly", result, **fake.environ)

    assert ended("success").stdout == "nightly tests: passed\n"
    assert ended("failure").stdout == "nightly tests: failure, opened #1\n"
    assert ended("cancelled").stdout == "nightly tests: cancelled, updated #1\n"
    assert "[cancelled](https://github.test/acme/gpus/actions/runs/77)" in fake.issues[0]["body"]
    assert ended("success").stdout == "nightly tests: passed, closed #1\n"
    assert [one["state"] for one in fake.issues] == ["closed"]
    assert ended("skipped").exit_code == 2


@pytest.mark.parametrize("code", [1, 2, 137, ""])
def test_a_look_that_failed_or_left_nothing_changes_no_issue(
    fake: Fake, tmp_path: Path, code: int | str
) -> None:
    fake.issue(drift_marker("aws-dev"))
    result = run_issue(fake, tmp_path, code)
    assert result.exit_code == (1 if code else 2)
    assert f"aws-dev: `gpuform drift` ended with {code}" in result.stderr or not code
    assert fake.calls == []


def test_long_text_is_cut_and_cannot_end_its_block(fake: Fake, tmp_path: Path) -> None:
    run_issue(fake, tmp_path, 3, "```\n@team\n" + "x" * 100_000)
    body = fake.issues[0]["body"]
    assert len(body) < 65_536
    assert body.count("```") == 2
    assert "truncated: the run has the full output" in body


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GITHUB_TOKEN", f"{TOKEN}\nX: y", "GITHUB_TOKEN: is not a token"),
        ("GITHUB_TOKEN", "", "GITHUB_TOKEN: is not set"),
        ("GITHUB_API_URL", "http://api.example", "GITHUB_API_URL: http: is not an https address"),
        ("GITHUB_REPOSITORY", "", "GITHUB_REPOSITORY: is not set"),
    ],
)
def test_a_wrong_variable_is_bad_input(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setattr(Fake, "environ", {**fake.environ, name: value})
    result = run_issue(fake, tmp_path, 3, "drift")
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_unreachable_github_is_a_failure_without_the_token(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "environ", {**fake.environ, "GITHUB_API_URL": "http://127.0.0.1:9"})
    result = run_issue(fake, tmp_path, 3, "drift")
    assert result.exit_code == 1
    assert "GitHub: GET /repos/acme/gpus/issues: ConnectError" in result.stderr


def test_facts_that_are_due_have_one_issue(fake: Fake, tmp_path: Path) -> None:
    def ended(code: int, text: str | None = "") -> Result:
        (tmp_path / "code").write_text(f"{code}\n")
        (tmp_path / "facts.txt").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "facts.txt").write_text(text)
        return step("facts", str(tmp_path), **fake.environ)

    assert ended(0).stdout == "facts: nothing is due\n"
    assert ended(3, "ETCD is 3.6.5").stdout == "facts: due, opened #1\n"
    assert "\n```text\nETCD is 3.6.5\n```\n" in fake.issues[0]["body"]
    assert ended(3, "HELM is 3.19.0").stdout == "facts: due, updated #1\n"
    assert ended(1).exit_code == 1, "it was not found out"
    assert ended(0).stdout == "facts: nothing is due, closed #1\n"
    message = f"error: {tmp_path}: has no files code and facts.txt; see the previous step\n"
    assert ended(0, None).stderr == message

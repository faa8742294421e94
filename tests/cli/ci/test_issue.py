"""The issues about a stack's drift and the nightly tests: one, updated, and closed when resolved."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpuform.cli.ci.__main__ import app
from gpuform.cli.ci.issue import drift_marker
from tests.cli.ci.conftest import TOKEN, Fake

pytestmark = pytest.mark.unit


def run_issue(fake: Fake, folder: Path, code: int | str, text: str = "", stack: str = "aws-dev") -> Result:
    (folder / "code").write_text(f"{code}\n")
    (folder / "drift.txt").write_text(text)
    result = CliRunner().invoke(app, ["issue", stack, str(folder)], env=fake.environ)
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
        return CliRunner().invoke(app, ["nightly", result], env=fake.environ)

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
    def ended(code: int, text: str = "") -> Result:
        (tmp_path / "code").write_text(f"{code}\n")
        (tmp_path / "facts.txt").write_text(text)
        return CliRunner().invoke(app, ["facts", str(tmp_path)], env=fake.environ)

    assert ended(0).stdout == "facts: nothing is due\n"
    assert ended(3, "ETCD is 3.6.5").stdout == "facts: due, opened #1\n"
    assert "\n```text\nETCD is 3.6.5\n```\n" in fake.issues[0]["body"]
    assert ended(3, "HELM is 3.19.0").stdout == "facts: due, updated #1\n"
    assert ended(1).exit_code == 1, "it was not found out"
    assert ended(0).stdout == "facts: nothing is due, closed #1\n"
    (tmp_path / "facts.txt").unlink()
    assert (
        ended_without(fake, tmp_path)
        == f"error: {tmp_path}: has no files code and facts.txt; see the previous step\n"
    )


def ended_without(fake: Fake, folder: Path) -> str:
    return CliRunner().invoke(app, ["facts", str(folder)], env=fake.environ).stderr

"""Comments on a pull request: one per stack, and no content that its author could misuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gpuform.cli.ci.__main__ import app
from gpuform.cli.ci.artifacts import MOST_BYTES, MOST_CHARACTERS
from gpuform.cli.ci.github import sanitize
from gpuform.reports.pull_request import marker
from tests.cli.ci.conftest import TOKEN, Fake, packed

pytestmark = pytest.mark.unit
SHA = "0123456789abcdef0123456789abcdef01234567"
REQUESTS = Path(__file__).parents[2] / "journey"


def summary(stack: str, message: str = "no change") -> bytes:
    return f"{marker(stack)}\n### `{stack}`: {message}\n".encode()


def add_pull(fake: Fake, number: int = 7, sha: str = SHA, repository: int = 2) -> None:
    head = {"sha": sha, "label": "contributor:fix", "repo": {"id": repository}}
    fake.pulls.append({"number": number, "head": head})


def run_comment(fake: Fake, tmp_path: Path, **changes: Any) -> Result:
    run = {
        "id": 55,
        "head_sha": SHA,
        "head_branch": "fix",
        "head_repository": {"id": 2, "owner": {"login": "contributor"}},
        "repository": {"id": 1},
        "html_url": "https://github.test/acme/gpus/actions/runs/55",
        **changes,
    }
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"workflow_run": run}))
    result = CliRunner().invoke(app, ["comment"], env={**fake.environ, "GITHUB_EVENT_PATH": str(event)})
    assert TOKEN not in result.output
    assert "key=secret" not in result.output
    assert not fake.leaked
    return result


def test_a_comment_for_each_stack_is_created_then_kept(fake: Fake, tmp_path: Path) -> None:
    add_pull(fake)
    fake.artifact("summary-offline-local", packed(summary("local")))
    fake.artifact("summary-offline-aws-dev", packed(summary("aws-dev")))
    fake.artifact("coverage", packed(b"of something else"))
    result = run_comment(fake, tmp_path)
    assert result.exit_code == 0, result.output
    assert result.stdout == "aws-dev: commented\nlocal: commented\n"
    assert fake.comments[1]["body"] == (
        "<!-- gpuform preview local -->\n### `local`: no change\n\n<sub>of commit 0123456789, by "
        "[this run](https://github.test/acme/gpus/actions/runs/55)</sub>\n"
    )
    assert "comment is up to date" in run_comment(fake, tmp_path).stdout
    fake.artifact("summary-offline-local", packed(summary("local", "evicts @3 pods")))  # the next attempt's
    assert "local: comment updated" in run_comment(fake, tmp_path).stdout
    assert len(fake.comments) == 2
    assert "evicts @\u200b3 pods" in fake.comments[1]["body"]


def test_a_comment_far_back_is_found(fake: Fake, tmp_path: Path) -> None:
    add_pull(fake)
    for _ in range(150):
        fake.comment("a long discussion", "contributor")
    fake.comment(marker("local").replace("local", "local-2") + "\nanother stack")
    fake.comment(marker("local") + "\r\nold")
    fake.artifact("summary-offline-local", packed(summary("local")))
    assert run_comment(fake, tmp_path).exit_code == 0
    assert len(fake.comments) == 152
    assert "no change" in fake.comments[151]["body"]


@pytest.mark.parametrize("login", ["contributor", "github-actions", "other[bot]"])
def test_what_others_wrote_is_left_alone(fake: Fake, tmp_path: Path, login: str) -> None:
    add_pull(fake)
    fake.comment(marker("local") + "\nmine", login)
    fake.comment("quoted:\n" + marker("local"))
    fake.artifact("summary-offline-local", packed(summary("local")))
    assert run_comment(fake, tmp_path).exit_code == 0
    assert [one["body"].splitlines()[-1] for one in fake.comments[:2]] == ["mine", marker("local")]
    assert len(fake.comments) == 3


def test_nothing_is_written_once_the_request_has_moved_on(fake: Fake, tmp_path: Path) -> None:
    add_pull(fake, sha="f" * 40)
    add_pull(fake, repository=3)  # a branch of the same name in another fork
    fake.artifact("summary-offline-local", packed(summary("local")))
    assert run_comment(fake, tmp_path).stdout.startswith("0 open pull requests")
    assert run_comment(fake, tmp_path, head_repository=None).stdout.startswith("0 open pull requests")
    assert fake.writes == []


def test_nothing_is_written_where_two_requests_could_be_meant(fake: Fake, tmp_path: Path) -> None:
    add_pull(fake)
    add_pull(fake, number=8)
    fake.artifact("summary-offline-local", packed(summary("local")))
    assert run_comment(fake, tmp_path).stdout.startswith("2 open pull requests")
    assert fake.writes == []


def test_the_live_summary_wins_but_only_from_this_repository(fake: Fake, tmp_path: Path) -> None:
    add_pull(fake)
    fake.artifact("summary-live-local", packed(summary("local", "live")))
    fake.artifact("summary-offline-local", packed(summary("local", "offline")))
    run_comment(fake, tmp_path)
    assert "offline" in fake.comments[0]["body"]
    run_comment(fake, tmp_path, repository={"id": 2})
    assert "live" in fake.comments[0]["body"]
    assert len(fake.comments) == 1


TOO_LONG = "is longer than 64000 characters"
BAD = {
    "large on the way": (packed(summary("local")), MOST_BYTES + 1, f"bytes; {MOST_BYTES} are allowed"),
    "larger than it says": (bytes(MOST_BYTES + 1), 10, f"has more than {MOST_BYTES} bytes"),
    "large unpacked": (packed(summary("local") + b"x" * 50 * MOST_BYTES), None, TOO_LONG),
    "too long": (packed(summary("local") + b"x" * MOST_CHARACTERS), None, TOO_LONG),
    "another stack's": (packed(summary("aws-prod")), None, "does not begin with its marker"),
    "no marker": (packed(b"hello"), None, "does not begin with its marker"),
    "no archive": (b"hello", None, "cannot be read"),
    "no text": (packed(b"\xff\xfe"), None, "cannot be read"),
    "another file": (packed(summary("local"), "../summary.md"), None, "does not contain summary.md alone"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_summary_is_refused_and_the_others_are_written(fake: Fake, tmp_path: Path, case: str) -> None:
    content, size, message = BAD[case]
    add_pull(fake)
    fake.artifact("summary-offline-local", content, size)
    fake.artifact("summary-offline-aws-dev", packed(summary("aws-dev")))
    result = run_comment(fake, tmp_path)
    assert result.exit_code == 1
    assert message in result.stderr
    assert [one["body"].splitlines()[0] for one in fake.comments] == [marker("aws-dev")]


def test_a_flood_of_summaries_is_refused(fake: Fake, tmp_path: Path) -> None:
    add_pull(fake)
    for number in range(41):
        fake.artifact(f"summary-offline-s{number}", packed(summary(f"s{number}")))
    result = run_comment(fake, tmp_path)
    assert result.exit_code == 1
    assert "41 summaries" in result.stderr
    assert fake.writes == []


def test_a_refusal_says_what_github_said(fake: Fake, tmp_path: Path) -> None:
    fake.forbidden = True
    result = run_comment(fake, tmp_path)
    assert result.exit_code == 1
    assert "GET /repos/acme/gpus/pulls: 403 Resource not accessible by integration" in result.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@team, @x", "@\u200bteam, @\u200bx"),
        ("&#64;team &commat;team", "&amp;#\u200b64;team &amp;commat;team"),
        ("![i](//evil)", "![i]\u200b(//evil)"),
        ("[i]: //evil", "[i]\u200b: //evil"),
        ("https://evil www.evil", "https\u200b://evil www\u200b.evil"),
        ("<img src=x><!-- gpuform preview x --></a>", "&lt;img src=x>&lt;!-- gpuform preview x -->&lt;/a>"),
        ("<details open>", "&lt;details open>"),
        ("fixes other/repo#12", "fixes other/repo#\u200b12"),
        ("GH-12, gh-7", "GH\u200b-12, gh\u200b-7"),
        ("GH\\-12 _GH-3_ high-12", "GH\u200b\\-12 _GH\u200b-3_ high-12"),
        ("a5c3785 _A5C3785_", "a5c378\u200b5 _A5C378\u200b5_"),
        (
            "x@a5c3785ed8d6a35868bc169f07e40e889087fd2e",
            "x@\u200ba5c378\u200b5ed8d6\u200ba35868\u200bbc169f\u200b07e40e\u200b889087\u200bfd2e",
        ),
        ("v1.2.3 p4d.24xlarge 12 GiB 100000 EUR", "v1.2.3 p4d.24xlarge 12 GiB 100000 EUR"),
    ],
)
def test_foreign_text_has_no_mentions_and_no_links(text: str, shown: str) -> None:
    assert sanitize(text) == shown
    assert sanitize(shown) == shown


def test_a_summary_of_ours_stays_as_it_is() -> None:
    files = sorted(REQUESTS.glob("pull_requests*/*.md"))
    assert len(files) >= 7
    for file in files:
        rest = file.read_text().partition("\n")[2]
        assert sanitize(rest).replace("\u200b", "") == rest.replace("\u200b", ""), file.name

"""The workflows: their permissions, trusted events, and existing commands."""

from __future__ import annotations

import re

import pytest

from gpuform.cli.ci import __main__ as ci
from gpuform.cli.main import app
from tests.cli.ci.workflows import ACTIONS, FILES, JOBS, ROOT, WORKFLOWS, commands, steps
from tests.command_line import make_targets, parse

pytestmark = pytest.mark.unit
PINNED = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(?:/[\w./-]+)?@(?P<sha>[0-9a-f]{40}) # (?P<tag>v\d+\.\d+\.\d+)"
)
MAY_WRITE = {
    ("comment", "comment"): {"pull-requests"},
    ("drift", "issue"): {"issues"},
    ("drift", "drift"): {"id-token"},
    ("nightly", "issue"): {"issues"},
    ("nightly", "facts"): {"issues"},
    ("preview", "live"): {"id-token"},
    ("up", "up"): {"id-token"},
}


def each_job() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", sorted(JOBS), ids="/".join)


def test_the_six_workflows_are_looked_at() -> None:
    assert set(WORKFLOWS) == {"comment", "drift", "nightly", "preview", "tests", "up"}
    assert {file.parent.name for file in ACTIONS} == {"engine", "setup"}


def test_every_action_is_pinned_to_a_commit_and_says_its_version() -> None:
    found = {}
    for file in (*FILES, *ACTIONS):
        for line in re.findall(r"^\s*(?:- )?uses: (.+)$", file.read_text(), re.MULTILINE):
            if line.startswith("./.github/actions/"):
                assert (ROOT / line / "action.yml").is_file()
                continue
            pin = PINNED.fullmatch(line)
            assert pin, f"{file.name}: {line}"
            found.setdefault(pin["repository"], set()).add((pin["tag"], pin["sha"]))
    assert {name: len(pins) for name, pins in found.items()} == dict.fromkeys(found, 1)
    listed = re.findall(r"^\| `([\w./-]+)` \| (v\S+) \| `([0-9a-f]{40})` \|", docs(), re.MULTILINE)
    assert {name: {(tag, sha)} for name, tag, sha in listed} == found


def docs() -> str:
    return (ROOT / "docs/howto/ci.md").read_text()


def test_no_workflow_has_a_permission_of_its_own() -> None:
    assert {name: flow["permissions"] for name, flow in WORKFLOWS.items()} == {name: {} for name in WORKFLOWS}


def test_every_night_runs_on_the_lowest_python_that_is_promised() -> None:
    lowest = JOBS["nightly", "tests"]["strategy"]["matrix"]["include"][0]["python"]
    promised = re.findall(r"Python (3\.[\d.]+) or newer", (ROOT / "README.md").read_text())
    assert promised == [lowest]
    assert f'requires-python = ">={lowest}"' in (ROOT / "pyproject.toml").read_text()
    assert f"older than {lowest};" in (ROOT / "Makefile").read_text()


@each_job()
def test_a_job_may_write_only_what_it_is_for(name: tuple[str, str]) -> None:
    permissions = JOBS[name]["permissions"]
    assert set(permissions.values()) <= {"read", "write"}
    assert {scope for scope, what in permissions.items() if what == "write"} == MAY_WRITE.get(name, set())
    assert JOBS[name]["timeout-minutes"] <= 180


@each_job()
def test_code_of_a_pull_request_runs_only_where_nothing_can_be_written(name: tuple[str, str]) -> None:
    triggers, job = WORKFLOWS[name[0]]["on"], JOBS[name]
    assert "pull_request_target" not in triggers
    writes = {scope for scope, what in job["permissions"].items() if what == "write"}
    if "pull_request" in triggers:
        assert writes <= {"id-token"}
        own = "github.event.pull_request.head.repo.full_name == github.repository"
        assert ("id-token" in writes) == (own in job.get("if", ""))
    for step in job["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
            # Any other checkout than a trusted event's default must be the default branch.
            assert step["with"].get("ref") == (
                "${{ github.event.repository.default_branch }}" if "workflow_run" in triggers else None
            )


@each_job()
def test_a_job_with_a_cloud_identity_runs_in_an_environment_and_on_main(name: tuple[str, str]) -> None:
    job = JOBS[name]
    has = job["permissions"].get("id-token") == "write"
    assert has == ("environment" in job)
    if has and name[0] != "preview":
        assert "github.ref == 'refs/heads/main'" in job["if"]
    # Read-only jobs get another environment, and so another role, than jobs that change something.
    if has:
        assert job["environment"] == "${{ matrix.stack }}" + ("" if name[0] == "up" else "-preview")


def test_no_expression_gets_into_a_script() -> None:
    scripts = [(where, step["run"]) for where, step in steps() if "run" in step]
    assert len(scripts) > 10
    assert [where for where, script in scripts if "${{" in script] == []


def test_no_secret_is_read() -> None:
    assert [file.name for file in (*FILES, *ACTIONS) if "secrets" in file.read_text()] == []


def test_only_previews_are_cancelled_by_their_successors() -> None:
    preview, up = WORKFLOWS["preview"]["concurrency"], JOBS["up", "up"]["concurrency"]
    assert preview == {"group": "preview-${{ github.event.pull_request.number }}", "cancel-in-progress": True}
    assert up == {"group": "up-${{ matrix.stack }}", "cancel-in-progress": False}
    assert "concurrency" not in WORKFLOWS["up"]


def test_the_comment_follows_the_preview_and_unpacks_nothing() -> None:
    assert WORKFLOWS["comment"]["on"]["workflow_run"]["workflows"] == [WORKFLOWS["preview"]["name"]]
    used = [step["uses"].split("@")[0] for step in JOBS["comment", "comment"]["steps"] if "uses" in step]
    assert used == ["actions/checkout"]


@pytest.mark.parametrize(("program", "words"), commands(), ids=lambda part: str(part))
def test_every_command_is_there_with_these_options(program: str, words: tuple[str, ...]) -> None:
    match program.split()[-1]:
        case ".venv/bin/gpuform":
            parse(app, words)
        case "gpuform.cli.ci":
            parse(ci.app, words)
        case "gpuform.checkout.stack_names":
            assert words == ()
        case "make":
            assert set(words) <= make_targets()
        case other:
            pytest.fail(f"{other} is not known here")


def test_the_commands_are_found_and_wrong_ones_are_noticed() -> None:
    used = {(program.split("/")[-1], *words[:1]) for program, words in commands()}
    assert {("gpuform", "preview"), ("gpuform", "drift"), ("gpuform", "up"), ("make", "setup")} <= used
    assert {
        ("python -m gpuform.cli.ci", step)
        for step in ("comment", "facts", "issue", "nightly", "summary", "acknowledged")
    } <= used
    parse(app, ("preview", "local", "--acknowledge", "eks"))
    for wrong in (("preview", "local", "--nothing"), ("previews",), ("local", "env", "a", "b")):
        with pytest.raises(Exception, match=r"No such option|previews|unexpected extra argument"):
            parse(app, wrong)

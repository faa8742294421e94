"""``gpuform recover``: what it shows, its questions, and its exit codes."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpuform.cli import output
from gpuform.cli.main import app
from gpuform.engine.files import EngineFiles
from tests.engine.conftest import lock as written_lock
from tests.stack.recover.conftest import STACK, Project

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def _there(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.paths.root)
    monkeypatch.delenv("GPUFORM_STATE", raising=False)


def run(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["recover", *words], input=given)


def lock(project: Project, pid: int, host: str) -> Path:
    return written_lock(EngineFiles(project.paths, offline=True).locks("gpuform", STACK), pid, host)


def test_the_plan_is_shown_and_done_when_it_is_agreed_to(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.interrupted(["eks"])
    gone = 2**22 + 1  # higher than any process id of Linux
    file = lock(project, gone, socket.gethostname())
    before = project.state()
    shown = run(STACK, "--offline")
    assert shown.exit_code == 1
    for word in (f"process {gone} of ada", "gone", "eks", "creating", "clear", "offline runs create nothing"):
        assert word in shown.stdout
    assert "nothing was done; 'gpuform recover labs --yes' does it" in shown.stderr
    monkeypatch.setattr(output, "has_terminal", lambda: True)
    assert run(STACK, "--offline", given="y\n").exit_code == 1
    assert project.state() == before
    assert file.exists()
    done = run(STACK, "--offline", given="yes\n")
    assert done.exit_code == 0
    assert "eks (aws:eks/cluster:Cluster): cleared" in done.stdout
    assert not file.exists()
    nothing = run(STACK, "--offline", "--json")
    assert nothing.exit_code == 0
    empty = {"locks": [], "operations": [], "releases": [], "done": False}
    backend = project.stack.env["PULUMI_BACKEND_URL"]
    assert json.loads(nothing.stdout) == {"stack": STACK, "backend": backend, **empty}


def test_recover_json_has_the_plan_and_whether_it_was_done(project: Project) -> None:
    project.interrupted(["eks"])
    file = lock(project, 12, "ci-7")
    words = (STACK, "--offline", "--owner-is-gone", "ci-7:12", "--json")
    planned = run(*words)
    assert planned.exit_code == 1
    found = json.loads(planned.stdout)
    urn = f"urn:pulumi:{STACK}::gpuform::aws:eks/cluster:Cluster::eks"
    owner = {"user": "ada", "host": "ci-7", "pid": 12, "since": "2026-01-02T03:04:05.678901+00:00"}
    assert found["locks"] == [{"key": str(file), "state": "unknown", "does": "remove", **owner}]
    assert found["operations"] == [
        {
            **{"urn": urn, "type": "aws:eks/cluster:Cluster", "interrupted_while": "creating"},
            **{"does": "clear", "id": None, "why": "offline runs create nothing at AWS"},
        }
    ]
    done = run(*words, "--yes")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {**found, "done": True}


def test_who_holds_the_stack_is_named_and_bad_words_are_refused(project: Project) -> None:
    lock(project, 12, "ci-7")
    refused = run(STACK, "--offline", "--yes")
    assert refused.exit_code == 1
    assert "stack labs: is locked by process 12 of ada on host ci-7" in refused.stderr
    assert "--owner-is-gone ci-7:12" in refused.stderr
    for words, message in (
        ((STACK, "--offline", "--owner-is-gone", "ci-8:12"), "ci-8:12 holds no lock on stack labs"),
        ((STACK, "--import", "eks"), "--import: 'eks' is not NAME=ID; write it as NAME=ID"),
        (("nowhere",), "STACK: unknown stack 'nowhere'; known: labs"),
    ):
        bad = run(*words)
        assert bad.exit_code == 2
        assert message in bad.stderr

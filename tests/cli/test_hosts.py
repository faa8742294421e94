"""``gpuform hosts``: bad input, and output for people and programs (on booted hosts: tests/ansible)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gpuform.cli.main import app
from gpuform.hosts import Event, HostResult, Outcome
from gpuform.hosts.progress import ProgressTable, print_lines, report_progress
from gpuform.reports import hosts as tables

pytestmark = pytest.mark.unit

DONE = HostResult(ok=True, changed=2, changes=("role : Write", "role : Load"), diffs=("--- a\n+++ b\n+x",))
FAILED = HostResult(ok=False, failed=1, message="role : Break: why", task="role : Break")
OFF = HostResult(ok=False, unreachable=True, message="cannot be reached (No route to host)")
SAME = HostResult(ok=True)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    (tmp_path / "ansible" / "playbooks").mkdir(parents=True)
    (tmp_path / "ansible" / "playbooks" / "site.yml").write_text("[]\n")
    monkeypatch.chdir(tmp_path)
    declare(tmp_path)
    return CliRunner()


def declare(folder: Path, **cluster: Any) -> None:
    environment = {
        "name": "lab",
        "cluster": {"kind": "hosts", **cluster},
        "pools": [{"name": "cpu", "hosts": ["cpu-1", "cpu-2"]}],
    }
    stack = {"config": {"gpuform:environment": environment}}
    (folder / "Pulumi.lab.yaml").write_text(yaml.safe_dump(stack))


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Results of the next runs; each run replaces its result by its arguments."""
    asked: list[Any] = []

    def play(playbook: str, inventory: Any, **more: Any) -> Outcome:
        found = asked.pop(0)
        more["on_event"](Event("changed", host="cpu-1", task="role : Write"))
        asked.append((playbook, more["check"], list(more["limit"])))
        return found

    monkeypatch.setattr("gpuform.hosts.run", play)
    return asked


@pytest.mark.parametrize(
    ("cluster", "words", "message"),
    [
        ({}, ["--limit", "gpu-9"],
         "limit: gpu-9 is neither a host nor a group with hosts; the hosts are cpu-1,"),
        ({}, ["--playbook", "nothing.yml"], "playbook: nothing.yml is not in "),
        ({"kubeconfig": "/nowhere"}, [], "cluster.kubeconfig: /nowhere does not exist; leave it out until "),
    ],
)  # fmt: skip
def test_bad_input(run: CliRunner, cluster: dict[str, str], words: list[str], message: str) -> None:
    declare(Path(), **cluster)
    result = run.invoke(app, ["hosts", "apply", "lab", "--yes", *words])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}")


BOTH_BAD = "2 of 2 are not done (cpu-1, cpu-2); fix them and run the same command again"
UNREAD = Outcome({"cpu-1": HostResult(ok=False)}, 4, message="ERROR: no such module")


@pytest.mark.parametrize(
    ("command", "found", "code", "shown", "error"),
    [
        ("apply lab --yes", Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0), 0,
         ["  cpu-1: changed: role : Write", "cpu-1 ok 2", "cpu-2 ok 0"], ""),
        ("apply lab --yes", Outcome({"cpu-1": FAILED, "cpu-2": OFF}, 4), 1,
         ["cpu-1: role : Break: why", "cpu-2: cannot be reached (No route to host)"], f"{BOTH_BAD}\n"),
        ("apply lab --yes", UNREAD, 1, [], "ERROR: no such module; then run the same command again\n"),
        ("check lab --diff", Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0), 3,
         ["cpu-1: would change: role : Load", "    +x"], ""),
        ("check lab", Outcome({"cpu-1": SAME, "cpu-2": SAME}, 0), 0, [], ""),
        ("check lab", Outcome({"cpu-1": DONE, "cpu-2": OFF}, 4), 1, [],
         "1 of 2 are not done (cpu-2); fix them and run the same command again\n"),
    ],
)  # fmt: skip
def test_exit_codes_and_texts(
    run: CliRunner, outcome: list[Any], command: str, found: Outcome, code: int, shown: list[str], error: str
) -> None:
    outcome.append(found)
    result = run.invoke(app, ["hosts", *command.split()])
    assert (result.exit_code, result.stderr) == (code, f"failed: hosts: {error}" if error else ""), (
        result.output
    )
    assert outcome == [("site.yml", "check" in command, [])]
    lines = result.stdout.splitlines()
    assert {*shown} <= {*lines, *(" ".join(line.split()) for line in lines)}


@pytest.mark.parametrize(
    ("words", "answer", "code", "error"),
    [
        ("apply", None, 2, "Missing argument"),
        ("apply lab", None, 2, "error: --yes: is needed without a terminal; nothing was changed; add it"),
        ("apply lab --json", "yes", 2, "error: --yes: is needed with --json; nothing was changed; add it"),
        ("apply lab", "no", 1, "nothing was changed"),
        ("apply lab", "yes", 0, ""),
    ],
)
def test_apply_changes_hosts_only_once_someone_agrees(
    run: CliRunner,
    outcome: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    answer: str | None,
    code: int,
    error: str,
) -> None:
    outcome.append(Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0))
    monkeypatch.setattr("gpuform.cli.output.has_terminal", lambda: answer is not None)
    result = run.invoke(app, ["hosts", *words.split()], input=f"{answer}\n")
    assert result.exit_code == code, result.output
    assert error in result.stderr
    assert isinstance(outcome[0], Outcome) == (code != 0)  # the playbook has run only if it is replaced
    if words == "apply lab":
        lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
        assert "cpu-1 cpu-1 kube_node, pool_cpu" in lines
        assert any(
            "may restart hosts); `gpuform hosts check lab` shows each change" in line for line in lines
        )


@pytest.mark.parametrize("command", ["apply", "check", "status", "verify"])
def test_no_stack_is_meant_without_a_name(run: CliRunner, command: str) -> None:
    result = run.invoke(app, ["hosts", command])
    assert (result.exit_code, "Missing argument" in result.stderr) == (2, True)


def test_json_is_the_documented_form(run: CliRunner, outcome: list[Any]) -> None:
    outcome.append(Outcome({"cpu-1": DONE, "cpu-2": FAILED}, 2))
    result = run.invoke(app, ["hosts", "apply", "lab", "--yes", "--json", "--limit", "pool_cpu"])
    assert result.exit_code == 1
    ok = {"ok": True, "changed": 2, "failed": 0, "unreachable": False, "message": ""}
    bad = {"ok": False, "changed": 0, "failed": 1, "unreachable": False, "message": "role : Break: why"}
    assert json.loads(result.stdout) == {"ok": False, "hosts": {"cpu-1": ok, "cpu-2": bad}, "nodes": {}}
    outcome[:] = [Outcome({"cpu-1": DONE, "cpu-2": SAME}, 0)]
    checked = json.loads(run.invoke(app, ["hosts", "check", "lab", "--json"]).stdout)
    assert checked["changes"] == {"cpu-1": ["role : Write", "role : Load"], "cpu-2": []}


def test_status_shows_what_is_there_beside_what_is_declared(run: CliRunner, outcome: list[Any]) -> None:
    facts = {"system": "Debian 12.15", "gpus": ["Tesla T4, 580.95.05"], "toolkit": "1.19.1"}
    outcome.append(Outcome({"cpu-1": HostResult(ok=True, facts=facts), "cpu-2": OFF}, 4))
    result = run.invoke(app, ["hosts", "status", "lab", "--json"])
    assert result.exit_code == 1
    first, second = json.loads(result.stdout)["hosts"]
    assert (first["driver"], first["gpus"], first["toolkit"]) == ("580.95.05", ["Tesla T4"], "1.19.1")
    assert (first["pool"], first["reached"], first["node"]) == ("cpu", True, "-")
    assert (second["reached"], second["message"]) == (False, "cannot be reached (No route to host)")
    other = {**first, "declared": {"driver": "580.82.07", "toolkit": "1.19.1"}}
    text = printed(tables.states_table([other, second]))
    assert "580.95.05, declared 580.82.07" in text
    assert "1x Tesla T4" in text


def test_on_a_terminal_a_table_shows_where_each_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    board = ProgressTable(["cpu-1", "cpu-2"])
    for event in (
        Event("play", message="Prepare"),
        Event("started", host="cpu-1", task="Write"),
        Event("started", host="cpu-2", task="Write"),
        Event("changed", host="cpu-1", task="Write"),
        Event("unreachable", host="cpu-2", task="Write", message="why"),
        Event("started", host="cpu-1", task="Load"),
    ):
        board.add(event)
    rows = [line.split() for line in printed(board.table()).splitlines()]
    assert ["cpu-1", "running", "1", "Load"] in rows
    assert ["cpu-2", "unreachable", "0", "Write:", "why"] in rows
    output = io.StringIO()
    terminal = Console(file=output, force_terminal=True, width=100)
    with report_progress(terminal, ["cpu-1"], print) as on_event:
        on_event(Event("failed", host="cpu-1", task="Write", message="why"))
    assert "\x1b[31mfailed" in output.getvalue()


def test_no_color_leaves_the_colours_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    output = io.StringIO()
    Console(file=output, force_terminal=True, width=100).print(
        tables.results_table({"cpu-1": FAILED}, check=False)
    )
    assert "failed" in output.getvalue()
    assert "\x1b[31m" not in output.getvalue()


def test_elsewhere_a_line_says_what_changed_and_what_failed() -> None:
    output: list[str] = []
    add = print_lines(output.append)
    for event in (
        Event("play", message="Prepare"),
        Event("ok", host="cpu-1", task="Look"),
        Event("changed", host="cpu-1", task="Write"),
        Event("failed", host="cpu-2", task="Break", message="why", ignored=True),
    ):
        add(event)
    assert output == ["Prepare", "  cpu-1: changed: Write", "  cpu-2: failed (ignored): Break: why"]


def printed(table: Any) -> str:
    output = io.StringIO()
    Console(file=output, width=200).print(table)
    return output.getvalue()

"""``gpuform top`` and ``gpuform report`` on a small cluster with measurements."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import gpuform.usage.cluster_objects
import gpuform.usage.prometheus
from gpuform.cli import observe
from gpuform.cli.main import app
from gpuform.usage.cluster_objects import LiveObjects
from tests.usage.top.played import Played, gpu_series, gpu_uuid, node, pod

pytestmark = pytest.mark.unit


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    found = LiveObjects(
        (node("t4-shared-0", "t4-shared", gpus=1),),
        (
            pod("a/one", "t4-shared-0", (gpu_uuid("t4-shared-0", 0, 0),), gpu_shared=1),
            pod("b/two", "t4-shared-0", (gpu_uuid("t4-shared-0", 0, 1),), gpu_shared=1),
        ),
    )
    monkeypatch.setattr(gpuform.usage.cluster_objects, "fetch_objects", lambda *_: found)
    monkeypatch.setattr(
        gpuform.usage.prometheus, "_transport", lambda *_: Played(gpu_series("t4-shared-0", 0, 0.5, 1, 15))
    )
    return CliRunner()


def test_top_shows_a_tree_and_says_what_is_simulated(full: CliRunner) -> None:
    result = full.invoke(app, ["top"])
    assert result.exit_code == 0
    assert "└─ b/two" in result.stdout
    assert "~0.25" in result.stdout
    assert "~: share by request" in result.stdout
    assert "simulated: nodes" in result.stdout


def test_top_chooses_and_tells_programs_too(full: CliRunner) -> None:
    result = full.invoke(app, ["top", "--namespace", "a", "--json"])
    (only,) = json.loads(result.stdout)["nodes"]
    assert [one["name"] for one in only["gpus"][0]["pods"]] == ["one"]


def test_top_that_is_watched_writes_a_line_each_and_ends_quietly(
    full: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(observe.time, "sleep", sleep)
    result = full.invoke(app, ["top", "--watch", "--json"])
    assert result.exit_code == 0
    assert [len(json.loads(line)["nodes"]) for line in result.stdout.splitlines()] == [1, 1]
    assert slept == [5.0, 5.0]


def test_top_that_is_watched_in_a_terminal_is_a_screen_with_the_time(
    full: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Console(width=80, height=20, file=io.StringIO(), force_terminal=True, color_system=None)
    monkeypatch.setattr(observe, "console", terminal)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(observe.time, "sleep", interrupt)
    assert full.invoke(app, ["top", "--watch"]).exit_code == 0
    assert isinstance(terminal.file, io.StringIO)
    shown = terminal.file.getvalue()
    enter, leave = "\x1b[?1049h", "\x1b[?1049l"
    assert shown.index(enter) < shown.index("└─ b/two") < shown.index(leave)
    assert re.search(r"local at \d\d:\d\d:\d\d; Ctrl-C ends", shown)


@pytest.mark.parametrize("arguments", [[], ["-o"]])
def test_report_writes_one_page(full: CliRunner, tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "new" / "page.html" if arguments else tmp_path / "state" / "report" / "index.html"
    result = full.invoke(app, ["report", *arguments, *([str(file)] if arguments else [])])
    assert result.exit_code == 0
    assert result.stdout.replace("\n", "").endswith(f"report: {file}")
    assert "t4-shared-0" in file.read_text()
    found = json.loads(full.invoke(app, ["report", "-o", str(file), "--json"]).stdout)
    assert found["file"] == str(file)
    assert set(found) == {"file", "why"}


def test_an_unknown_node_is_bad_input(full: CliRunner) -> None:
    result = full.invoke(app, ["top", "--node", "v100-9"])
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --node: unknown node 'v100-9'; known: t4-shared-0\n",
    )

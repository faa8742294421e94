from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gpuform.usage.cluster_objects
import gpuform.usage.prometheus
from gpuform.cli import top
from gpuform.cli.main import app
from gpuform.usage.cluster_objects import Objects
from tests.usage.top.played import Played, device, node, pod, whole

pytestmark = pytest.mark.unit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    found = Objects(
        (node("t4-shared-0", "t4-shared", gpus=1),),
        (
            pod("a/one", "t4-shared-0", (whole("t4-shared-0", 0, 0),), gpu_shared=1),
            pod("b/two", "t4-shared-0", (whole("t4-shared-0", 0, 1),), gpu_shared=1),
        ),
    )
    monkeypatch.setattr(gpuform.usage.cluster_objects, "fetch", lambda *_: found)
    monkeypatch.setattr(
        gpuform.usage.prometheus, "_transport", lambda *_: Played(device("t4-shared-0", 0, 0.5, 1, 15))
    )
    return CliRunner()


def test_top_shows_a_tree_and_says_what_is_simulated(run: CliRunner) -> None:
    result = run.invoke(app, ["top"])
    assert result.exit_code == 0
    assert "└─ b/two" in result.stdout
    assert "~0.25" in result.stdout
    assert "~: share by request" in result.stdout
    assert "simulated here" in result.stdout


def test_top_chooses_and_tells_programs_too(run: CliRunner) -> None:
    result = run.invoke(app, ["top", "--namespace", "a", "--json"])
    (only,) = json.loads(result.stdout)["nodes"]
    assert [one["name"] for one in only["gpus"][0]["pods"]] == ["one"]


def test_top_that_is_watched_writes_a_line_each_and_ends_quietly(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)
    result = run.invoke(app, ["top", "--watch", "--json"])
    assert result.exit_code == 0
    assert [len(json.loads(line)["nodes"]) for line in result.stdout.splitlines()] == [1, 1]
    assert slept == [5.0, 5.0]


@pytest.mark.parametrize("arguments", [[], ["-o"]])
def test_report_writes_one_page(run: CliRunner, tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "new" / "page.html" if arguments else tmp_path / "state" / "report" / "index.html"
    result = run.invoke(app, ["report", *arguments, *([str(file)] if arguments else [])])
    assert result.exit_code == 0
    assert result.stdout.replace("\n", "").endswith(f"report: {file}")
    assert "t4-shared-0" in file.read_text()


def refused(path: Path) -> list[tuple[list[str], str]]:
    pools = "t4-shared, a100-mig, a100-7, a100-whole, v100, g4dn-shared, cpu"
    stacks = "aws-dev, aws-prod, local, onprem-dev, openstack-dev"
    return [
        (["top", "nowhere"], f"STACK: unknown stack 'nowhere'; known: {stacks}"),
        (["top", "--pool", "none"], f"--pool: unknown pool 'none'; known: {pools}"),
        (["top", "--node", "v100-9"], "--node: unknown node 'v100-9'; known: t4-shared-0"),
        (["report", "nowhere"], f"STACK: unknown stack 'nowhere'; known: {stacks}"),
        (["report", "-o", str(path)], f"{path}: is a folder; name a writable file with -o"),
    ]


@pytest.mark.parametrize("index", range(5))
def test_bad_input(run: CliRunner, tmp_path: Path, index: int) -> None:
    arguments, said = refused(tmp_path)[index]
    result = run.invoke(app, arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["top", "report"])
def test_a_cluster_that_does_not_answer_is_a_failure(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def away(*_: Any) -> Objects:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(gpuform.usage.cluster_objects, "fetch", away)
    result = run.invoke(app, [command])
    assert result.exit_code == 1
    said = "cluster of local: cannot be reached (refused); start it with `gpuform local start`"
    assert said in result.stderr

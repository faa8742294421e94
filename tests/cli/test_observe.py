"""``gpuform top`` and ``report`` on a small cluster with measurements, and what ``health`` reads."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from rich.console import Console
from typer.testing import CliRunner

import gpuform.usage.cluster_objects
import gpuform.usage.prometheus
from gpuform.checkout.errors import Failure
from gpuform.cli import observe
from gpuform.cli.main import app
from gpuform.reports import stack as report
from gpuform.usage import health
from gpuform.usage.cluster_objects import LiveObjects
from infra.incluster import cluster, reporting
from tests.usage.top.played import Played, gpu_series, gpu_uuid, node, pod

pytestmark = pytest.mark.unit


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    pods = ((f"{name}", (gpu_uuid("t4-shared-0", 0, at),)) for at, name in enumerate(("a/one", "b/two")))
    found = LiveObjects(
        (node("t4-shared-0", "t4-shared", gpus=1),),
        tuple(pod(name, "t4-shared-0", ids, gpu_shared=1) for name, ids in pods),
    )
    played = Played(gpu_series("t4-shared-0", 0, 0.5, 1, 15))
    monkeypatch.setattr(gpuform.usage.cluster_objects, "fetch_objects", lambda *_: found)
    monkeypatch.setattr(gpuform.usage.prometheus, "_transport", lambda *_: played)
    return CliRunner()


def test_top_shows_a_tree_and_says_what_is_simulated(full: CliRunner) -> None:
    result = full.invoke(app, ["top"])
    assert result.exit_code == 0
    shown = ("└─ b/two", "~0.25", "~: share by request", "simulated: nodes")
    assert [text for text in shown if text not in result.stdout] == []


def test_top_chooses_and_tells_programs_too(full: CliRunner) -> None:
    result = full.invoke(app, ["top", "--namespace", "a", "--json"])
    (only,) = json.loads(result.stdout)["nodes"]
    assert [one["name"] for one in only["gpus"][0]["pods"]] == ["one"]


def test_top_that_is_watched_writes_a_line_each_and_ends_quietly(
    full: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleep = Mock(side_effect=[None, KeyboardInterrupt])
    monkeypatch.setattr(observe.time, "sleep", sleep)
    result = full.invoke(app, ["top", "--watch", "--json"])
    assert result.exit_code == 0
    assert [len(json.loads(line)["nodes"]) for line in result.stdout.splitlines()] == [1, 1]
    assert sleep.mock_calls == [call(5.0), call(5.0)]


def test_top_that_is_watched_in_a_terminal_is_a_screen_with_the_time(
    full: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Console(width=80, height=20, file=io.StringIO(), force_terminal=True, color_system=None)
    monkeypatch.setattr(observe, "console", terminal)
    monkeypatch.setattr(observe.time, "sleep", Mock(side_effect=KeyboardInterrupt))
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
    assert found == {"file": str(file), "why": ""}


def test_an_unknown_node_is_bad_input(full: CliRunner) -> None:
    result = full.invoke(app, ["top", "--node", "v100-9"])
    message = "error: --node: unknown node 'v100-9'; known: t4-shared-0\n"
    assert (result.exit_code, result.stderr) == (2, message)


NOW = 1_800_000_000.0


def judged(name: str, kind: str | None, **notes: str) -> dict[str, Any]:
    """A node as the health loop leaves it; ``kind`` is the class of the remedy of a broken one."""
    found = node(name, "p")
    found["metadata"]["annotations"] = notes
    found["spec"] = {"taints": [{"key": "nvidia.com/gpu", "value": "true"}]}
    if kind:
        message = {"type": "GpuUnhealthy", "status": "True", "message": "XID 79"}
        found["status"] = {"conditions": [{**message, "lastTransitionTime": cluster.format_time(NOW)}]}
        found["spec"]["taints"].append({"key": "gpuform.io/gpu-unhealthy", "value": kind})
    return found


def ticket(name: str, state: str) -> dict[str, Any]:
    own = {"name": reporting.ticket_name(name), "labels": {"gpuform.io/ticket": state}}
    return {"metadata": own, "data": reporting.ticket(name, "p", "replace", ["GPU 0: XID 79"], NOW)}


def memory(breaker: dict[str, Any] | None) -> dict[str, Any]:
    data = {"state.json": json.dumps({"breaker": breaker})}
    return {"metadata": {"name": "gpu-health-state"}, "data": data}


def test_health_status_is_read_from_nodes_and_config_maps() -> None:
    repaired = {"gpuform.io/gpu-repaired": "yes"}
    nodes = [judged("b", "reset", **repaired), judged("a", "replace"), judged("c", None)]
    program = {"metadata": {"name": "gpuform-health-0123"}, "data": {"settings.json": "{}"}}
    stopped = {"since": NOW, "why": "4 actions", "withheld": ["d", "e"]}
    seen = health.parse_health(nodes, [ticket("a", "open"), ticket("z", "closed"), program, memory(stopped)])
    assert [(one.name, one.kind, one.why, one.repaired) for one in seen.nodes] == [
        ("a", "replace", "XID 79", None),
        ("b", "reset", "XID 79", "yes"),
    ]
    found = seen.to_json()
    assert found["breaker"] == {"open": True, "why": "4 actions", "withheld": ["d", "e"]}
    assert found["tickets"] == [{"node": "a", "open": True}, {"node": "z", "open": False}]
    first, stop, *_ = report.health_lines(seen, "replace")
    assert first == "mode replace; 2 out of use, 1 ticket open"
    assert stop == "breaker open: 4 actions; withheld: d, e"
    assert report.health_table(seen).row_count == 2


def test_health_of_a_sound_cluster_is_one_line() -> None:
    seen = health.parse_health([judged("a", None)], [memory(None)])
    assert list(report.health_lines(seen, "observe")) == ["mode observe; 0 out of use, 0 tickets open"]


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/b", "", ".", "a\nb", "x" * 254])
def test_a_ticket_of_no_node_writes_nothing(name: str, tmp_path: Path) -> None:
    crafted = ticket("a", "open")
    crafted["data"]["ticket.json"] = json.dumps({"node": name})
    seen = health.parse_health([], [ticket("b", "open"), crafted])
    with pytest.raises(Failure, match="is not the name of a node; look at its ConfigMap in gpuform-health"):
        health.write_tickets(seen.tickets, tmp_path / "tickets")
    assert list(tmp_path.rglob("*")) == []


def test_tickets_become_files(tmp_path: Path) -> None:
    seen = health.parse_health([], [ticket("a", "open")])
    (file,) = health.write_tickets(seen.tickets, tmp_path / "tickets")
    assert file.name == "a.md"
    text = file.read_text()
    assert text.startswith("# Node a: broken GPU (class replace)\n")
    assert "- GPU 0: XID 79\n" in text
    assert "kubectl annotate node a gpuform.io/gpu-repaired='what was done'" in text

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import Failure
from gpuform.reports import stack as report
from gpuform.usage import health
from infra.incluster import cluster, reporting

pytestmark = pytest.mark.unit

NOW = 1_800_000_000.0


def node(name: str, kind: str | None, **notes: str) -> dict[str, Any]:
    taints = [{"key": "gpuform.io/gpu-unhealthy", "value": kind}] if kind else []
    message = {
        "type": "GpuUnhealthy",
        "status": "True",
        "message": "XID 79",
        "lastTransitionTime": cluster.format_time(NOW),
    }
    return {
        "metadata": {"name": name, "labels": {"gpuform.io/pool": "p"}, "annotations": notes},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "true"}, *taints]},
        "status": {"conditions": [message] if kind else []},
    }


def ticket(name: str, state: str) -> dict[str, Any]:
    own = {"name": reporting.ticket_name(name), "labels": {"gpuform.io/ticket": state}}
    return {"metadata": own, "data": reporting.ticket(name, "p", "replace", ["GPU 0: XID 79"], NOW)}


def memory(breaker: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "metadata": {"name": "gpu-health-state"},
        "data": {"state.json": json.dumps({"breaker": breaker})},
    }


def test_what_lies_in_the_cluster_is_read() -> None:
    nodes = [node("b", "reset", **{"gpuform.io/gpu-repaired": "yes"}), node("a", "replace"), node("c", None)]
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


def test_a_cluster_that_is_well_has_little_to_say() -> None:
    seen = health.parse_health([node("a", None)], [memory(None)])
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

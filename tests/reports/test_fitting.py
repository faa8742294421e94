"""Tables at the widths of terminals: no name is broken, and the least important columns go first."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from gpuform.reports import catalogue, tables, top
from gpuform.reports.stack import drift_table, health_table, preview_parts
from gpuform.reports.tables import crop_to_height
from gpuform.stack.drift.rules import Drift
from gpuform.stack.drift.rules import Finding as DriftFinding
from gpuform.stack.preflight.check import Finding
from gpuform.stack.preview.effect import Effect, Weight
from gpuform.stack.preview.outcome import Outcome
from gpuform.stack.preview.snapshot import PodRef
from gpuform.usage.health import HealthStatus, UnhealthyNode
from gpuform.usage.top.view import View
from tests.reports.everything import facts

pytestmark = pytest.mark.unit
LONGEST = 60


def lines(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.fixture(scope="module")
def view() -> View:
    return facts().view


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, ["requested", "used"]),
        (95, ["requested", "used", "GPU memory"]),
        (120, ["requested", "resource", "used", "GPU memory", "power"]),
    ],
)
def test_top_drops_columns_and_keeps_names(view: View, width: int, columns: list[str]) -> None:
    _, head, *rows = lines(top.top_table(view), width)
    names = ("requested", "resource", "used", "GPU memory", "power")
    assert [name for name in names if name in head] == columns
    assert len(rows) == len(top.top_table(view).rows), "no row takes two lines"
    assert max(map(len, rows)) <= width
    assert any("GPU 3 NVIDIA-A100-PCIE-40GB: gpu lost (replace)  unhealthy  " in row for row in rows)


def test_a_terminal_that_is_too_narrow_for_names_shortens_them(view: View) -> None:
    rows = lines(top.top_table(view), LONGEST)
    assert max(map(len, rows)) <= LONGEST
    assert any("└─ GPU 3 NVIDIA-A100-PCI" in row and "…  unhealthy" in row for row in rows)


@pytest.mark.parametrize("width", [80, 120])
def test_the_catalogue_and_the_pools_break_no_name(width: int) -> None:
    entries = catalogue.entries()
    shown = lines(catalogue.table(entries), width)
    assert max(map(len, shown)) <= width
    words = {word for line in shown for word in line.split()}
    assert {gpu["name"] for gpu in entries} <= words
    assert "p3dn.24xlarge" in words
    assert ("also" in words) == (width == 120)
    status = facts().status
    words = {word for line in lines(tables.pools_table(status), width) for word in line.split()}
    assert {word for pool in status.pools for word in (pool.name, pool.machine)} <= words
    words = {word for line in lines(tables.pods_table(status), width) for word in line.split()}
    assert {pod.name for pod in status.pods} <= words


def test_pods_with_long_names_lose_requests_and_then_the_node() -> None:
    rows = [("namespace-of-a-team", "a-deployment-with-a-name-6d5f7c9b8-abcde", "1 gpu", "node-0", "Running")]
    columns = ("namespace", "pod", "requests", "node", "phase")
    table = tables.build_table("", columns, rows, whole=columns, optional=("requests", "node"))
    for width, left in ((120, 5), (84, 4), (75, 3)):
        head, row = lines(table, width)
        assert (len(head.split()), len(row.split()) - (left == 5)) == (left, left)
        assert rows[0][1] in row


UUID = "(GPU-6457b3bc-7be8-5efb-81d8-fc5ea77e1466):"
BROKEN = ("students-0", "students", "replace", "2026-12-01T00:44:20Z", f"GPU 0 {UUID} XID 79, class replace")
KEY = "gpu_operator.upgrade.delete_empty_dir:"
STUCK = PodRef("research-team", "Deployment/simulation-of-weather", "a", "t4", "t4-0", gpu=True)
FAILURE = Effect(Weight.FAILURE, "driver upgrade", f"fails on a node; first set {KEY} true", evicts=(STUCK,))
SHARED = 'status.allocatable["nvidia.com/gpu.shared"]'
LACKING = DriftFinding("Node t4-shared-0", SHARED, "changed", "cluster", "4", "3")
SOCKET = "/run/k3s/containerd/containerd.sock"
CHECKED = Finding(
    "containerd", "FAIL", f"node t4 has its socket at {SOCKET}", f"use {{CONTAINERD_SOCKET: {SOCKET}}}"
)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            health_table(HealthStatus((UnhealthyNode(*BROKEN, "new GPU"),), (), None, ())),
            {*BROKEN[:4:3], UUID},
        ),
        (
            next(preview_parts(Outcome("s", False, True, {}, effects=(FAILURE,)))),
            {KEY, f"{STUCK.namespace}/{STUCK.owner}"},
        ),
        (drift_table(Drift("s", (LACKING,))), {"t4-shared-0", SHARED}),
        (tables.findings_table([CHECKED]), {SOCKET, f"{SOCKET}}}"}),
    ],
)
def test_long_words_are_not_broken(table: Table, words: set[str]) -> None:
    shown = lines(table, 80)
    assert max(map(len, shown)) <= 80
    assert words <= {word for line in shown for word in line.split()}


def test_a_screen_says_how_many_lines_it_hides(view: View) -> None:
    table = top.top_table(view)
    console = Console(width=80, height=12, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(crop_to_height(console, ["now", table]), end="")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue().splitlines()
    hidden = len(table.rows) + 3 - 11
    assert (shown[0].strip(), len(shown)) == ("now", 12)
    assert shown[-1].strip() == f"and {hidden} more lines; --pool, --node and --namespace select"
    few = crop_to_height(console, ["now"])
    assert [segment.text for line in console.render_lines(few, pad=False) for segment in line] == ["now"]

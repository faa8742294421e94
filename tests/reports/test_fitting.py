"""Tables at the widths of terminals: no name is broken, and the least important columns go first."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from gpuform.reports import catalogue, tables, top
from gpuform.reports.stack import health_table
from gpuform.reports.tables import crop_to_height
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


def test_a_broken_node_is_shown_with_its_name_and_its_time() -> None:
    fault = "GPU 0 (GPU-6457b3bc-7be8-5efb-81d8-fc5ea77e1466): XID 79, class replace"
    broken = UnhealthyNode("students-0", "students", "replace", "2026-12-01T00:44:20Z", fault, "new GPU")
    shown = lines(health_table(HealthStatus((broken,), (), None, ())), 80)
    assert max(map(len, shown)) <= 80
    assert {broken.name, broken.since} <= {word for line in shown for word in line.split()}


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

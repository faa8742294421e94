"""The tables of the control plane on this machine and of the tools."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from gpuform.reports.tables import empty
from lab.plane import Status
from lab.toolchain import Found


def members(status: Status) -> Table:
    up = "ready" if status.ready else "not ready"
    title = (
        f"Control plane: Kubernetes {status.kubernetes}, {up}"
        if status.kubernetes
        else f"Control plane: {up}"
    )
    table = empty(title, "member", "pid", "port", "memory")
    for member in status.members:
        state = str(member.pid) if member.running else Text("not running", style="red")
        table.add_row(member.name, state, str(member.port or "-"), f"{member.rss_bytes / 2**20:.0f} MiB")
    table.add_row("all", "", "", f"{sum(member.rss_bytes for member in status.members) / 2**20:.0f} MiB")
    return table


def monitored(status: Status) -> list[str]:
    """Prometheus's address, if it runs, and where monitoring differs from the declaration."""
    there = {member.name: member for member in status.members if member.running}
    found = []
    if "prometheus" in there:
        found.append(
            f"Prometheus (real; the GPUs that it measures are simulated) answers: "
            f"http://127.0.0.1:{there['prometheus'].port}/api/v1/alerts"
        )
    return found + [f"monitoring: {line}" for line in status.unmonitored]


def tools(found: Iterable[Found]) -> Table:
    table = empty("Tools", "tool", "version", "from", "path")
    for tool in found:
        table.add_row(tool.name, tool.version, tool.source, str(tool.path or "-"))
    return table

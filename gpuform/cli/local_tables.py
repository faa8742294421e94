"""The tables of the control plane on this machine and of the tools."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from gpuform.reports.tables import filled
from lab.plane import Status
from lab.toolchain import Found


def members(status: Status) -> Table:
    version = f"Kubernetes {status.kubernetes}, " if status.kubernetes else ""
    rows = [
        (
            member.name,
            str(member.pid) if member.running else Text("not running", style="red"),
            str(member.port or "-"),
            f"{member.rss_bytes / 2**20:.0f} MiB",
        )
        for member in status.members
    ]
    total = f"{sum(member.rss_bytes for member in status.members) / 2**20:.0f} MiB"
    title = f"Control plane: {version}{'ready' if status.ready else 'not ready'}"
    return filled(title, ("member", "pid", "port", "memory"), [*rows, ("all", "", "", total)])


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
    rows = ((tool.name, tool.version, tool.source, str(tool.path or "-")) for tool in found)
    return filled("Tools", ("tool", "version", "from", "path"), rows)

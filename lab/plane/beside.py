"""Our own programs that run beside the control plane; kwokctl does not know them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from lab.plane import ports
from lab.plane.layout import Layout, Record, rotate
from lab.plane.processes import PROMETHEUS, SIMULATOR, STATE_METRICS, Process, end, scan

PACKAGE = Path(__file__).resolve().parent.parent
KEPT = "sidecars.shared"
"""The package that all keepers share."""

SERVES = {
    "simulator-metrics": SIMULATOR,
    "prometheus": PROMETHEUS,
    "kube-state-metrics": STATE_METRICS,
    "kube-state-metrics-telemetry": STATE_METRICS,
}
"""Port name -> process that serves it."""


def served(layout: Layout) -> dict[str, int]:
    """The ports in ``SERVES`` by name; a port that another program has taken meanwhile is replaced."""
    record = Record.load(layout)
    there = {process.name for process in scan(layout)}
    lost = [
        name for name, owner in SERVES.items() if owner not in there and not ports.is_free(record.ports[name])
    ]
    if lost:
        fresh = ports.choose(layout.paths.state, taken=record.ports.values())
        record = replace(record, ports=record.ports | {name: fresh[name] for name in lost})
        record.store(layout)
    return {name: record.ports[name] for name in SERVES}


def running(layout: Layout, name: str) -> list[Process]:
    return [process for process in scan(layout) if process.name == name]


def newest_source(*modules: str) -> float:
    """Latest mtime of the modules' files: after a checkout update an older process must be restarted."""
    folders = [PACKAGE / module.replace(".", "/") for module in modules]
    return max(file.stat().st_mtime for folder in folders for file in folder.rglob("*.py"))


def current(layout: Layout, name: str, newest: float, *arguments: str) -> bool:
    """Whether exactly one process runs, started after ``newest`` and with these arguments."""
    processes, asked = running(layout, name), _asked(layout, name)
    return (
        len(processes) == 1
        and processes[0].born > newest
        and asked.is_file()
        and asked.read_text() == json.dumps(arguments)
    )


def start(layout: Layout, name: str, module: str, *arguments: str) -> None:
    """Start ``lab.<module>`` on the layout's kubeconfig, in a session of its own.

    Its log has the member's name; the previous log is kept.
    """
    command = [sys.executable, "-m", f"lab.{module}", "--kubeconfig", str(layout.paths.kubeconfig)]
    rotate(layout.log(name))
    with layout.log(name).open("wb") as log:
        subprocess.Popen(
            [*command, *arguments],
            cwd=layout.paths.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _asked(layout, name).write_text(json.dumps(arguments))


def stop(layout: Layout, name: str, grace: float) -> None:
    """End the processes of that name: SIGTERM, then SIGKILL after ``grace`` seconds (0: SIGKILL alone)."""
    end(layout, running(layout, name), grace)


def _asked(layout: Layout, name: str) -> Path:
    return layout.home / f"{name}.arguments"

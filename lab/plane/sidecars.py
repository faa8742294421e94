"""Our own programs that run beside the control plane; kwokctl does not know them.

The node simulator and three sidecars: each sidecar always runs, and runs its programs only while a stack has
declared them in the cluster. That of the controllers starts once a stack has declared one: the API server
reaches the controllers' webhooks through it, with arguments that it gets only then.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuform.engine.places import Tools
from infra.model.monitoring import ADDRESS
from lab.plane import ports
from lab.plane.layout import Layout, Record, rotate
from lab.plane.processes import (
    CONTROLS,
    KEEPER,
    MONITOR,
    PACKER,
    PROMETHEUS,
    SIMULATOR,
    STATE_METRICS,
    Process,
    end,
    scan,
)
from lab.sidecars.controllers.rows import CONTROLLERS
from lab.sidecars.shared.child import SAID
from lab.sidecars.shared.files import link

PACKAGE = Path(__file__).resolve().parent.parent
_SHARED = "sidecars.shared"

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


def newest_source(*modules: str) -> float:
    """Latest mtime of the modules' files: after a checkout update an older process must be restarted."""
    folders = [PACKAGE / module.replace(".", "/") for module in modules]
    return max(file.stat().st_mtime for folder in folders for file in folder.rglob("*.py"))


@dataclass(frozen=True)
class Sidecar:
    """A process of ``lab.<module>``, and the programs that it runs and ends within ``grace`` seconds."""

    name: str
    module: str
    grace: float
    programs: tuple[str, ...] = ()

    def ensure(self, layout: Layout, *arguments: str, first: Callable[[], None] = lambda: None) -> None:
        """Start it unless exactly one runs, from the current code and with these arguments.

        It gets the layout's kubeconfig, and a session of its own. Its log has its name; the previous log is
        kept. ``first`` is called before a start.
        """
        asked = layout.home / f"{self.name}.arguments"
        running, newest = self._running(layout), newest_source(self.module, _SHARED)
        same = asked.is_file() and asked.read_text() == json.dumps(arguments)
        if same and len(running) == 1 and running[0].born > newest:
            return
        self.stop(layout)
        first()
        for name in (*self.programs, self.name):
            rotate(layout.log(name))
        command = [sys.executable, "-m", f"lab.{self.module}", "--kubeconfig", str(layout.paths.kubeconfig)]
        with layout.log(self.name).open("wb") as log:
            subprocess.Popen(
                [*command, *arguments],
                cwd=layout.paths.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        asked.write_text(json.dumps(arguments))

    def stop(self, layout: Layout) -> None:
        end(layout, self._running(layout), self.grace)
        end(layout, [process for process in scan(layout) if process.name in self.programs], grace=0)

    def _running(self, layout: Layout) -> list[Process]:
        return [process for process in scan(layout) if process.name == self.name]


_SIMULATOR = Sidecar(SIMULATOR, "simulator", 2)
_SCHEDULER = Sidecar(KEEPER, "sidecars.second_scheduler", 3, (PACKER,))
_MONITORING = Sidecar(MONITOR, "sidecars.monitoring", 5, (PROMETHEUS, STATE_METRICS))  # flushes its data
_CONTROLLERS = Sidecar(CONTROLS, "sidecars.controllers", 3, tuple(CONTROLLERS))
SIDECARS = (_SIMULATOR, _SCHEDULER, _MONITORING, _CONTROLLERS)


def ensure(layout: Layout, tools: Tools, say: Callable[[str], None]) -> None:
    at = served(layout)
    if importlib.util.find_spec("lab.simulator.__main__") is not None:
        tools.ensure("nvidia-config", progress=say)
        _SIMULATOR.ensure(
            layout,
            *("--nvidia-config", str(tools.path("nvidia-config"))),
            *("--metrics-port", str(at["simulator-metrics"])),
            first=lambda: say("starting the node simulator"),
        )
    ensure_scheduler(layout, tools)
    _MONITORING.ensure(
        layout,
        *_folders(layout, layout.monitor),
        *("--prometheus-port", str(at["prometheus"])),
        *("--state-metrics-port", str(at["kube-state-metrics"])),
        *("--telemetry-port", str(at["kube-state-metrics-telemetry"])),
        *("--exporters-port", str(at["simulator-metrics"])),
    )
    if layout.egress.is_file():
        named = f"{ADDRESS.removeprefix('http://')}={at['prometheus']}"
        _CONTROLLERS.ensure(layout, *_folders(layout, layout.controllers), "--named", named)


def ensure_scheduler(layout: Layout, tools: Tools) -> None:
    binary, place = tools.path("kube-scheduler"), layout.packer
    if not (place.is_symlink() and place.readlink() == binary):
        _SCHEDULER.stop(layout)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    link(place, binary)
    _SCHEDULER.ensure(layout, *_folders(layout, place.parent))


def stop(layout: Layout) -> None:
    for sidecar in reversed(SIDECARS):
        sidecar.stop(layout)


def said(layout: Layout) -> tuple[str, ...]:
    """What is not as declared, as stored by the sidecars of monitoring and of the controllers."""
    found: list[str] = []
    for folder in (layout.monitor, layout.controllers):
        try:
            found += json.loads((folder / SAID).read_text())
        except (OSError, ValueError):
            continue
    return tuple(found)


def _folders(layout: Layout, home: Path) -> tuple[str, ...]:
    home.mkdir(mode=0o700, exist_ok=True)
    return "--pki", str(layout.pki), "--home", str(home), "--logs", str(layout.paths.logs)

"""Our own programs that run beside the control plane; kwokctl does not know them.

The node simulator and three sidecars: each sidecar always runs, and runs its programs only while a stack has
declared them in the cluster. That of the controllers starts once a stack has declared one: the API server
reaches the controllers' webhooks through it, with arguments that it gets only then.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuform import INSTALLATION
from gpuform.engine.files import Tools
from infra.model.platform.monitoring import PROMETHEUS_URL
from lab.plane import ports, processes
from lab.plane.layout import Layout, Record, rotate_log
from lab.plane.processes import Process, end_processes, scan
from lab.sidecars.controllers.rows import CONTROLLERS
from lab.sidecars.shared.child import MESSAGES_FILE
from lab.sidecars.shared.files import link

PACKAGE = Path(__file__).resolve().parent.parent
_SHARED = "sidecars.shared"

PORT_OWNERS = {
    "simulator-metrics": processes.SIMULATOR,
    "prometheus": processes.PROMETHEUS,
    **dict.fromkeys(("kube-state-metrics", "kube-state-metrics-telemetry"), processes.STATE_METRICS),
}
"""Port name -> process that serves it."""


def sidecar_ports(layout: Layout) -> dict[str, int]:
    """The ports in ``PORT_OWNERS`` by name; a port that another program has taken meanwhile is replaced."""
    record = Record.load(layout)
    running = {process.name for process in scan(layout)}
    down = [name for name, owner in PORT_OWNERS.items() if owner not in running]
    lost = [name for name in down if not ports.is_free(record.ports[name])]
    if lost:
        fresh = ports.choose(layout.paths.plane, taken=record.ports.values())
        record = replace(record, ports=record.ports | {name: fresh[name] for name in lost})
        record.store(layout)
    return {name: record.ports[name] for name in PORT_OWNERS}


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

    def ensure(
        self, layout: Layout, *arguments: str, before_start: Callable[[], None] = lambda: None
    ) -> None:
        """Start it unless exactly one runs, from the current code and with these arguments.

        It gets the layout's kubeconfig, and a session of its own. Its log has its name; the previous log is
        kept. ``before_start`` is called before a start.
        """
        arguments_file = layout.home / f"{self.name}.arguments"
        running, newest = self._running(layout), newest_source(self.module, _SHARED)
        same = arguments_file.is_file() and arguments_file.read_text() == json.dumps(arguments)
        if same and len(running) == 1 and running[0].start_time > newest:
            return
        self.stop(layout)
        before_start()
        for name in (*self.programs, self.name):
            rotate_log(layout.log(name))
        command = [sys.executable, "-P", "-m", f"lab.{self.module}"]
        command += ["--kubeconfig", str(layout.paths.kubeconfig)]
        with layout.log(self.name).open("wb") as log:
            subprocess.Popen(
                [*command, *arguments],
                cwd=layout.paths.root,
                env={**os.environ, "PYTHONPATH": str(INSTALLATION)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        arguments_file.write_text(json.dumps(arguments))

    def stop(self, layout: Layout) -> None:
        end_processes(layout, self._running(layout), self.grace)
        end_processes(layout, [process for process in scan(layout) if process.name in self.programs], grace=0)

    def _running(self, layout: Layout) -> list[Process]:
        return [process for process in scan(layout) if process.name == self.name]


_MEASURED = (processes.PROMETHEUS, processes.STATE_METRICS)
_SIMULATOR = Sidecar(processes.SIMULATOR, "simulator", 2)
_SCHEDULER = Sidecar(
    processes.SCHEDULER_KEEPER, "sidecars.second_scheduler", 3, (processes.SECOND_SCHEDULER,)
)
_MONITORING = Sidecar(processes.MONITORING_KEEPER, "sidecars.monitoring", 5, _MEASURED)  # flushes its data
_CONTROLLERS = Sidecar(processes.CONTROLLER_KEEPER, "sidecars.controllers", 3, tuple(CONTROLLERS))
ALWAYS = tuple(sidecar.name for sidecar in (_SIMULATOR, _SCHEDULER, _MONITORING))
DECLARED = (*_SCHEDULER.programs, *_MEASURED, _CONTROLLERS.name, *CONTROLLERS)
"""Run only while a stack declares them; the keeper of controllers, from the first declaration on."""
SIDECARS = (_SIMULATOR, _SCHEDULER, _MONITORING, _CONTROLLERS)


def ensure(layout: Layout, tools: Tools, say: Callable[[str], None]) -> None:
    port_by_name = sidecar_ports(layout)
    if importlib.util.find_spec("lab.simulator.__main__") is not None:
        tools.ensure("nvidia-config", progress=say)
        _SIMULATOR.ensure(
            layout,
            *("--nvidia-config", str(tools.path("nvidia-config"))),
            *("--metrics-port", str(port_by_name["simulator-metrics"])),
            before_start=lambda: say("starting the node simulator"),
        )
    ensure_scheduler(layout, tools)
    _MONITORING.ensure(
        layout,
        *_folder_arguments(layout, layout.monitor),
        *("--prometheus-port", str(port_by_name["prometheus"])),
        *("--state-metrics-port", str(port_by_name["kube-state-metrics"])),
        *("--telemetry-port", str(port_by_name["kube-state-metrics-telemetry"])),
        *("--exporters-port", str(port_by_name["simulator-metrics"])),
    )
    if layout.egress.is_file():
        service_port = f"{PROMETHEUS_URL.removeprefix('http://')}={port_by_name['prometheus']}"
        _CONTROLLERS.ensure(layout, *_folder_arguments(layout, layout.controllers), "--named", service_port)


def ensure_scheduler(layout: Layout, tools: Tools) -> None:
    binary, place = tools.path("kube-scheduler"), layout.packer
    if not (place.is_symlink() and place.readlink() == binary):
        _SCHEDULER.stop(layout)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    link(place, binary)
    _SCHEDULER.ensure(layout, *_folder_arguments(layout, place.parent))


def stop(layout: Layout) -> None:
    for sidecar in reversed(SIDECARS):
        sidecar.stop(layout)


def sidecar_messages(layout: Layout) -> tuple[str, ...]:
    """What is not as declared, as stored by the sidecars of monitoring and of the controllers."""
    messages: list[str] = []
    for folder in (layout.monitor, layout.controllers):
        try:
            messages += json.loads((folder / MESSAGES_FILE).read_text())
        except (OSError, ValueError):
            continue
    return tuple(messages)


def _folder_arguments(layout: Layout, home: Path) -> tuple[str, ...]:
    home.mkdir(mode=0o700, exist_ok=True)
    return "--pki", str(layout.pki), "--home", str(home), "--logs", str(layout.logs)

"""The node simulator as one more member; kwokctl does not know it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gpuform.embedded.kwokctl import Tools
from gpuform.embedded.layout import Layout, rotate
from gpuform.embedded.processes import SIMULATOR, end, scan

SOURCES = Path(__file__).resolve().parent.parent / "simulator"


def ensure(layout: Layout, tools: Tools, progress: Callable[[str], None]) -> None:
    """Start it in a session of its own unless exactly one runs, from the code as it is now."""
    if importlib.util.find_spec("gpuform.simulator.__main__") is None:
        return
    running = [process for process in scan(layout) if process.name == SIMULATOR]
    if len(running) == 1 and running[0].born > _newest_source():
        return
    end(layout, running, grace=2)
    tools.ensure("nvidia-config", progress=progress)
    progress("starting the node simulator")
    command = [sys.executable, "-m", "gpuform.simulator", "--kubeconfig", str(layout.paths.kubeconfig)]
    command += ["--nvidia-config", str(tools.path("nvidia-config"))]
    rotate(layout.log(SIMULATOR))
    with layout.log(SIMULATOR).open("wb") as log:
        subprocess.Popen(
            command,
            cwd=layout.paths.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _newest_source() -> float:
    """When a file of the simulator was changed last: after an update of the checkout the old one must go."""
    return max(file.stat().st_mtime for file in SOURCES.glob("*.py"))


def stop(layout: Layout) -> None:
    """End it, two seconds of patience given."""
    end(layout, [process for process in scan(layout) if process.name == SIMULATOR], grace=2)

"""The node simulator as one more member; kwokctl does not know it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from gpuform.embedded.kwokctl import Tools
from gpuform.embedded.layout import Layout, rotate
from gpuform.embedded.processes import SIMULATOR, end, scan


def ensure(layout: Layout, tools: Tools) -> None:
    """Start it in a session of its own unless it runs; more than one is reduced to one."""
    if importlib.util.find_spec("gpuform.simulator.__main__") is None:
        return
    running = [process for process in scan(layout) if process.name == SIMULATOR]
    if len(running) == 1:
        return
    end(layout, running, grace=2)
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


def stop(layout: Layout) -> None:
    """End it, two seconds of patience given."""
    end(layout, [process for process in scan(layout) if process.name == SIMULATOR], grace=2)

"""The node simulator as one more member; kwokctl does not know it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from gpuform.engine.places import Tools
from lab.plane import beside
from lab.plane.layout import Layout
from lab.plane.processes import SIMULATOR

MODULE = "simulator"


def ensure(layout: Layout, tools: Tools, port: int, progress: Callable[[str], None]) -> None:
    """Start it unless exactly one runs, from the current code; its exporters answer on ``port``."""
    if importlib.util.find_spec("lab.simulator.__main__") is None:
        return
    tools.ensure("nvidia-config", progress=progress)
    arguments = ["--nvidia-config", str(tools.path("nvidia-config"))]
    arguments += ["--metrics-port", str(port)]
    if beside.current(layout, SIMULATOR, beside.newest_source(MODULE), *arguments):
        return
    stop(layout)
    progress("starting the node simulator")
    beside.start(layout, SIMULATOR, MODULE, *arguments)


def stop(layout: Layout) -> None:
    """End it; it gets two seconds."""
    beside.stop(layout, SIMULATOR, grace=2)

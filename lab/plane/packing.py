"""The keeper of the second scheduler as one more member; kwokctl does not know it.

The keeper always runs, and starts a scheduler only while a stack has declared one (``scheduling.packer``).
"""

from __future__ import annotations

from gpuform.engine.places import Tools
from lab.plane import beside
from lab.plane.layout import Layout, rotate
from lab.plane.processes import KEEPER, PACKER

MODULE = "sidecars.second_scheduler"


def ensure(layout: Layout, tools: Tools) -> None:
    """Start the keeper unless exactly one runs, from the current code and program."""
    binary = tools.path("kube-scheduler")
    link = layout.packer
    arguments = ("--pki", str(layout.pki), "--scheduler", str(link), "--log", str(layout.log(PACKER)))
    fresh = beside.current(layout, KEEPER, beside.newest_source(MODULE, beside.KEPT), *arguments)
    if fresh and link.is_symlink() and link.readlink() == binary:
        return
    stop(layout)
    link.parent.mkdir(mode=0o700, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(binary)
    rotate(layout.log(PACKER))
    beside.start(layout, KEEPER, MODULE, *arguments)


def stop(layout: Layout) -> None:
    """End the keeper, which ends the scheduler; it gets three seconds."""
    beside.stop(layout, KEEPER, grace=3)
    beside.stop(layout, PACKER, grace=0)

"""What keeps the second scheduler, as one more member; kwokctl does not know it.

It is always there and starts a scheduler only while a stack has declared one (``scheduling.packer``).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gpuform.embedded.kwokctl import Tools
from gpuform.embedded.layout import Layout, rotate
from gpuform.embedded.processes import KEEPER, PACKER, end, scan

SOURCES = Path(__file__).resolve().parent.parent / "packer"


def ensure(layout: Layout, tools: Tools) -> None:
    """Start it in a session of its own unless exactly one runs, from the code and program as they are now."""
    running = [process for process in scan(layout) if process.name == KEEPER]
    binary = tools.path("kube-scheduler")
    link = layout.packer
    fresh = len(running) == 1 and running[0].born > _newest_source()
    if fresh and link.is_symlink() and link.readlink() == binary:
        return
    stop(layout)
    link.parent.mkdir(mode=0o700, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(binary)
    command = [sys.executable, "-m", "gpuform.packer", "--kubeconfig", str(layout.paths.kubeconfig)]
    command += ["--pki", str(layout.pki), "--scheduler", str(link), "--log", str(layout.log(PACKER))]
    for name in (KEEPER, PACKER):
        rotate(layout.log(name))
    with layout.log(KEEPER).open("wb") as log:
        subprocess.Popen(
            command,
            cwd=layout.paths.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _newest_source() -> float:
    """When a file of it was changed last: after an update of the checkout the old one must go."""
    return max(file.stat().st_mtime for file in SOURCES.glob("*.py"))


def stop(layout: Layout) -> None:
    """End it, which ends the scheduler; three seconds of patience given."""
    end(layout, [process for process in scan(layout) if process.name == KEEPER], grace=3)
    end(layout, [process for process in scan(layout) if process.name == PACKER], grace=0)

"""Runs of ``up`` that are killed with all their children just after a request to Magnum."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

from tests.openstack.stacks import STACK, Half
from tests.openstack.world import World
from tests.waiting import until

_UP = (
    "import sys; from pathlib import Path; from gpuform.cli.settling import run_up;"
    "from gpuform.engine import Engine; from gpuform.checkout.paths import Paths;"
    "from lab.toolchain import Toolchain;"
    f"paths, stack = Paths(*map(Path, sys.argv[1:])), '{STACK}'; engine = Engine(paths, Toolchain(paths));"
    "run_up(engine, stack, paths, True, print)"
)


def asked(world: World, path: str) -> int:
    return sum(
        one.method == "POST" and one.path.rstrip("/").endswith(path) and one.status < 300
        for one in world.requests(changes=True)
    )


def killed(stack: Half, is_come: Callable[[], bool]) -> bool:
    """Run ``up`` and kill all of it at the given moment; return whether it was still running then."""
    paths = stack.paths
    command = [sys.executable, "-c", _UP, str(paths.root), str(paths.state), str(paths.cache)]
    with (stack.paths.root / "killed.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=paths.root, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def said() -> str:
        return (stack.paths.root / "killed.log").read_text()[-2000:]

    def look() -> bool:
        come = is_come()
        assert come or process.poll() is None, said()
        return come

    try:
        until(look, seconds=60, what=said)
        return process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

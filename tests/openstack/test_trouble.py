"""A resize and a destroy that are killed, and a deletion that hangs, at a real Magnum."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.engine import EngineFailure
from tests.openstack.stacks import STACK, Half, half
from tests.openstack.world import World
from tests.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

_RUN = """\
import sys
from gpuform.engine import Engine, EngineFailure
from gpuform.checkout.paths import Paths
from gpuform.clouds import RECOVERIES
from gpuform.stack.recover import Stack, run_to_the_end
from lab.toolchain import Toolchain
paths, (operation, stack) = Paths.here(), sys.argv[1:]
engine = Engine(paths, Toolchain(paths))
try:
    getattr(engine, operation)(stack)
except EngineFailure as failure:
    here = Stack(stack, paths, engine, RECOVERIES)
    run_to_the_end(here, failure, lambda: getattr(engine, operation)(stack), print)
"""


_IMPATIENT = """\
import pulumi

def impatient(args):
    if args.type_ == "openstack:containerinfra/cluster:Cluster":
        args.opts.custom_timeouts = pulumi.CustomTimeouts(delete="5s")
        return pulumi.ResourceTransformationResult(args.props, args.opts)

pulumi.runtime.register_stack_transformation(impatient)
"""
"""Shortens the program's timeouts: a stack's own 10 minutes are too long for a test."""


def killed(stack: Half, operation: str, when: Callable[[], bool]) -> None:
    """Start an operation and kill all of it, engine and plugins alike, as soon as ``when`` holds."""
    begun = subprocess.Popen(
        [sys.executable, "-c", _RUN, operation, STACK],
        cwd=stack.paths.root,
        env=stack.world.environ | {"GPUFORM_STATE": str(stack.paths.state)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def look() -> bool:
        come = when()
        assert come or begun.poll() is None, f"{operation} has ended before it could be killed"
        return come

    until(look, seconds=60, what=operation)
    for pid in _family(begun.pid):
        os.kill(pid, signal.SIGKILL)
    begun.wait()


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    own = children.read_text().split() if children.exists() else []
    return [pid, *(one for child in own for one in _family(int(child)))]


def asked(world: World, method: str, path: str) -> int:
    return sum(one.method == method and one.path.rstrip("/").endswith(path) for one in world.requests())


def test_killed_or_hanging_each_next_run_goes_on_and_resizes_nothing_twice(
    world: World, tmp_path: Path
) -> None:
    world.template()
    stack = half(world, tmp_path)
    program = stack.paths.root / "half/__main__.py"
    program.write_text(_IMPATIENT + program.read_text())
    stack.run("up")
    [cluster] = world.clusters()

    world.tell(slow=3)
    stack.change(lambda env: env["pools"][0].update(nodes=3))
    killed(stack, "up", lambda: asked(world, "POST", "/actions/resize") == 1)
    world.tell()
    stack.run("up")
    assert asked(world, "POST", "/actions/resize") == 1
    assert not stack.run("up").changed
    assert len(world.nodes(cluster.uuid)["gpu-t4"]) == 3

    world.tell(on="delete", hang=True)
    killed(stack, "destroy", lambda: asked(world, "DELETE", cluster.uuid) > 0)
    with pytest.raises(EngineFailure, match="research-cluster: DELETE_IN_PROGRESS"):
        stack.run("destroy")

    world.tell()
    stack.run("destroy")
    assert world.clusters() == []

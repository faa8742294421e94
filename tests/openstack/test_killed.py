"""``up`` killed with everything that it had started, when Magnum has just been asked something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.errors import Failure
from tests.openstack.stacks import STACK, T4, V100S, Half, half
from tests.openstack.world import World

pytestmark = pytest.mark.engine

UP = (
    "import sys; from pathlib import Path; from gpuform.engine import Engine;"
    "from gpuform.paths import Paths; from gpuform.toolchain import Toolchain;"
    f"paths = Paths(*map(Path, sys.argv[1:])); Engine(paths, Toolchain(paths)).up('{STACK}')"
)
_LATEST_S = 60


def asked(world: World, path: str) -> int:
    """How often Magnum was asked to make something below this path."""
    return sum(
        one.method == "POST" and one.path.rstrip("/").endswith(path) and one.status < 300
        for one in world.requests(changes=True)
    )


def test_the_same_command_again_converges_on_the_one_cluster(world: World, tmp_path: Path) -> None:
    world.template()
    world.tell(on="create", slow=3)
    stack = half(world, tmp_path)
    moments: dict[str, Callable[[], bool]] = {
        "the cluster is asked for": lambda: asked(world, "/clusters") == 1,
        "the cluster is in progress": lambda: world.clusters()[0].status == "CREATE_IN_PROGRESS",
        "its certificate is asked for": lambda: asked(world, "/certificates") == 1,
        "the group is asked for": lambda: asked(world, "/nodegroups") == 1,
        "the group is in progress": lambda: len(_groups(world)) == 3,
    }
    for moment, is_come in moments.items():
        assert _killed(stack, is_come), f"it had ended before: {moment}"
        assert asked(world, "/clusters") == 1, moment
    world.tell()
    stack.run("up")
    [cluster] = world.clusters()
    assert cluster.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    assert _groups(world) == ["default-master", "default-worker", "gpu-t4"]
    assert (asked(world, "/clusters"), asked(world, "/nodegroups")) == (1, 1)
    assert not stack.run("up").changed
    assert not stack.engine.export(STACK)["deployment"].get("pending_operations")
    stack.run("destroy")
    assert world.clusters() == []


def test_what_was_asked_for_and_is_declared_no_more_is_not_forgotten(world: World, tmp_path: Path) -> None:
    world.template()
    stack = half(world, tmp_path)
    stack.change(lambda env: env.update(pools=[V100S]))
    stack.run("up")
    world.tell(on="create", slow=3)
    world.forget()
    stack.change(lambda env: env.update(pools=[V100S, T4]))
    assert _killed(stack, lambda: asked(world, "/nodegroups") == 1)
    stack.change(lambda env: env.update(pools=[V100S]))
    stack.run("up")
    with pytest.raises(Failure, match=r"was making groups-gpu-t4 .* run 'gpuform recover research'"):
        stack.run("destroy")


def test_a_replacement_too_goes_on_where_it_was_killed(world: World, tmp_path: Path) -> None:
    world.template()
    stack = half(world, tmp_path)
    stack.run("up")
    world.tell(on="create", slow=3)
    world.forget()
    stack.change(lambda env: env["pools"][0].update(machine="g3.xlarge", openstack={"allow_replace": True}))
    assert _killed(stack, lambda: asked(world, "/nodegroups") == 1)
    world.tell()
    stack.change(lambda env: env["pools"][0].pop("openstack"))
    stack.run("up")
    assert asked(world, "/nodegroups") == 1
    assert _groups(world) == ["default-master", "default-worker", "gpu-t4"]
    assert not stack.run("up").changed


def _groups(world: World) -> list[str]:
    [cluster] = world.clusters()
    return sorted(group.name for group in world.magnum().nodegroups.list(cluster.uuid))


def _killed(stack: Half, is_come: Callable[[], bool]) -> bool:
    """Run ``up`` and kill all of it when the moment has come; whether it was still at work then."""
    paths = stack.paths
    command = [sys.executable, "-c", UP, str(paths.root), str(paths.state), str(paths.cache)]
    with (stack.paths.root / "killed.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=paths.root, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    until = time.monotonic() + _LATEST_S
    try:
        while not is_come():
            said = (stack.paths.root / "killed.log").read_text()[-2000:]
            assert process.poll() is None, said
            assert time.monotonic() < until, said
            time.sleep(0.05)
        return process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

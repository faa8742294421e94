"""Runs killed with all their children just after a request to Magnum, and a deletion that hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.engine import EngineFailure
from tests.openstack.stacks import STACK, T4, V100S, asked, half, killed
from tests.openstack.world import World

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def test_the_same_command_again_converges_on_the_one_cluster(world: World, tmp_path: Path) -> None:
    world.template()
    world.tell(on="create", slow=3)
    stack = half(world, tmp_path)
    moments: dict[str, Callable[[], bool]] = {
        "the cluster is asked for": lambda: asked(world, "/clusters") == 1,
        "the cluster is in progress": lambda: world.clusters()[0].status == "CREATE_IN_PROGRESS",
        "its certificate is asked for": lambda: asked(world, "/certificates") >= 1,
        "the group is asked for": lambda: asked(world, "/nodegroups") == 1,
        "the group is in progress": lambda: len(_groups(world)) == 3,
    }
    for moment, is_come in moments.items():
        assert killed(stack, is_come), f"it had ended before: {moment}"
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


def test_what_was_asked_for_and_is_declared_no_more_is_deleted(world: World, tmp_path: Path) -> None:
    world.template()
    stack = half(world, tmp_path)
    # Without an API server nothing says what runs on a group that goes.
    stack.change(lambda env: env.update(pools=[V100S], acknowledge_loss=["gpu-t4"]))
    stack.run("up")
    world.tell(on="create", slow=3)
    world.forget()
    stack.change(lambda env: env.update(pools=[V100S, T4]))
    assert killed(stack, lambda: asked(world, "/nodegroups") == 1)
    stack.change(lambda env: env.update(pools=[V100S]))
    stack.run("up")
    assert _groups(world) == ["default-master", "default-worker", "gpu-v100s"]


def test_a_replacement_too_goes_on_where_it_was_killed(world: World, tmp_path: Path) -> None:
    world.template()
    stack = half(world, tmp_path)
    stack.run("up")
    world.tell(on="create", slow=3)
    world.forget()
    stack.change(lambda env: env["pools"][0].update(machine="g3.xlarge", openstack={"allow_replace": True}))
    assert killed(stack, lambda: asked(world, "/nodegroups") == 1)
    world.tell()
    stack.change(lambda env: env["pools"][0].pop("openstack"))
    stack.run("up")
    assert asked(world, "/nodegroups") == 1
    assert _groups(world) == ["default-master", "default-worker", "gpu-t4"]
    assert not stack.run("up").changed


def _groups(world: World) -> list[str]:
    [cluster] = world.clusters()
    return sorted(group.name for group in world.magnum().nodegroups.list(cluster.uuid))


_IMPATIENT = """\
import pulumi

def impatient(args):
    if args.type_ == "openstack:containerinfra/cluster:Cluster":
        args.opts.custom_timeouts = pulumi.CustomTimeouts(delete="5s")
        return pulumi.ResourceTransformationResult(args.props, args.opts)

pulumi.runtime.register_stack_transformation(impatient)
"""
"""Shortens the program's timeouts: a stack's own 10 minutes are too long for a test."""


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
    assert killed(stack, lambda: asked(world, "/actions/resize") == 1)
    world.tell()
    stack.run("up")
    assert asked(world, "/actions/resize") == 1
    assert not stack.run("up").changed
    assert len(world.nodes(cluster.uuid)["gpu-t4"]) == 3

    world.tell(on="delete", hang=True)
    assert killed(stack, lambda: asked(world, cluster.uuid, "DELETE") > 0, "destroy")
    with pytest.raises(EngineFailure, match="research-cluster: DELETE_IN_PROGRESS"):
        stack.run("destroy")

    world.tell()
    stack.run("destroy")
    assert world.clusters() == []

"""Runs killed with all their children just after a request to Magnum, and a deletion that hangs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuform.engine import EngineFailure
from tests.openstack.stacks import STACK, T4, V100S, count_requests, kill_when, make_cluster_stack
from tests.openstack.tenant import Tenant

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def test_the_same_command_again_converges_on_the_one_cluster(tenant: Tenant, tmp_path: Path) -> None:
    tenant.template()
    tenant.instruct(operation="create", slow=3)
    stack = make_cluster_stack(tenant, tmp_path)
    moments: dict[str, Callable[[], bool]] = {
        "the cluster is asked for": lambda: count_requests(tenant, "/clusters") == 1,
        "the cluster is in progress": lambda: tenant.clusters()[0].status == "CREATE_IN_PROGRESS",
        "its certificate is asked for": lambda: count_requests(tenant, "/certificates") >= 1,
        "the group is asked for": lambda: count_requests(tenant, "/nodegroups") == 1,
        "the group is in progress": lambda: len(_groups(tenant)) == 3,
    }
    for moment, is_come in moments.items():
        assert kill_when(stack, is_come), f"it had ended before: {moment}"
        assert count_requests(tenant, "/clusters") == 1, moment
    tenant.instruct()
    stack.run("up")
    [cluster] = tenant.clusters()
    assert cluster.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
    assert _groups(tenant) == ["default-master", "default-worker", "gpu-t4"]
    assert (count_requests(tenant, "/clusters"), count_requests(tenant, "/nodegroups")) == (1, 1)
    assert not stack.run("up").changed
    assert not stack.engine.export(STACK)["deployment"].get("pending_operations")
    stack.run("destroy")
    assert tenant.clusters() == []


def test_what_was_asked_for_and_is_declared_no_more_is_deleted(tenant: Tenant, tmp_path: Path) -> None:
    tenant.template()
    stack = make_cluster_stack(tenant, tmp_path)
    # Without an API server nothing says what runs on a group that goes.
    stack.change(lambda env: env.update(pools=[V100S], acknowledge_loss=["gpu-t4"]))
    stack.run("up")
    tenant.instruct(operation="create", slow=3)
    tenant.forget_requests()
    stack.change(lambda env: env.update(pools=[V100S, T4]))
    assert kill_when(stack, lambda: count_requests(tenant, "/nodegroups") == 1)
    stack.change(lambda env: env.update(pools=[V100S]))
    stack.run("up")
    assert _groups(tenant) == ["default-master", "default-worker", "gpu-v100s"]


def test_a_replacement_too_goes_on_where_it_was_killed(tenant: Tenant, tmp_path: Path) -> None:
    tenant.template()
    stack = make_cluster_stack(tenant, tmp_path)
    stack.run("up")
    tenant.instruct(operation="create", slow=3)
    tenant.forget_requests()
    stack.change(lambda env: env["pools"][0].update(machine="g3.xlarge", openstack={"allow_replace": True}))
    assert kill_when(stack, lambda: count_requests(tenant, "/nodegroups") == 1)
    tenant.instruct()
    stack.change(lambda env: env["pools"][0].pop("openstack"))
    stack.run("up")
    assert count_requests(tenant, "/nodegroups") == 1
    assert _groups(tenant) == ["default-master", "default-worker", "gpu-t4"]
    assert not stack.run("up").changed


def _groups(tenant: Tenant) -> list[str]:
    [cluster] = tenant.clusters()
    return sorted(group.name for group in tenant.magnum().nodegroups.list(cluster.uuid))


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
    tenant: Tenant, tmp_path: Path
) -> None:
    tenant.template()
    stack = make_cluster_stack(tenant, tmp_path)
    program = stack.paths.root / "half/__main__.py"
    program.write_text(_IMPATIENT + program.read_text())
    stack.run("up")
    [cluster] = tenant.clusters()

    tenant.instruct(slow=3)
    stack.change(lambda env: env["pools"][0].update(nodes=3))
    assert kill_when(stack, lambda: count_requests(tenant, "/actions/resize") == 1)
    tenant.instruct()
    stack.run("up")
    assert count_requests(tenant, "/actions/resize") == 1
    assert not stack.run("up").changed
    assert len(tenant.nodes(cluster.uuid)["gpu-t4"]) == 3

    tenant.instruct(operation="delete", hang=True)
    assert kill_when(stack, lambda: count_requests(tenant, cluster.uuid, "DELETE") > 0, "destroy")
    with pytest.raises(EngineFailure, match="research-cluster: DELETE_IN_PROGRESS"):
        stack.run("destroy")

    tenant.instruct()
    stack.run("destroy")
    assert tenant.clusters() == []

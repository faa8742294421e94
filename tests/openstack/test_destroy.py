"""``gpuform destroy`` at a real Magnum API: what is deleted, what is reported, what the next run finishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure
from gpuform.clouds import stack_teardown
from gpuform.stack.destroy import Destroy, Options, Outcome, Plan, StackTeardown
from infra.config import load
from tests.openstack.stacks import STACK, ClusterStack, make_cluster_stack
from tests.openstack.tenant import Tenant

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def site(stack: ClusterStack) -> StackTeardown:
    env = load(stack.file)
    return stack_teardown(
        env, stack.paths, stack.engine, STACK, Options(wait_s=20), say=stack.messages.append
    )


def destroy(stack: ClusterStack) -> tuple[Plan, Outcome]:
    here = site(stack)
    plan = here.plan()
    return plan, Destroy(here, plan).run()


def test_a_deletion_that_fails_is_explained_and_finished_by_the_same_command(
    tenant: Tenant, tmp_path: Path
) -> None:
    tenant.template()
    tenant.instruct(api_address="https://127.0.0.1:1")
    stack = make_cluster_stack(tenant, tmp_path)
    stack.run("up")
    [cluster] = tenant.clusters()
    said = f"Kubernetes external service shop/web from cluster {cluster.uuid}"
    orphan = tenant.neighbours.add(
        "load_balancers", "kube_service", description=said, provisioning_status="ACTIVE"
    )
    another = tenant.neighbours.add(
        "load_balancers", "theirs", description=f"{said}0", provisioning_status="ACTIVE"
    )
    port = tenant.neighbours.add("ports", f"research-{cluster.uuid}", device_owner="compute:nova")
    tenant.instruct(operation="delete", fail="the network has ports in use")

    with pytest.raises(Failure) as stuck:
        destroy(stack)
    for named in ("DELETE_FAILED", "the network has ports in use", port["id"]):
        assert named in stuck.value.fact
    assert "run the same command again" in stuck.value.remedy
    assert [one["id"] for one in tenant.neighbours.tables["load_balancers"]] == [another["id"]], orphan["id"]

    tenant.instruct()
    tenant.neighbours.tables["ports"].clear()
    plan, done = destroy(stack)
    assert plan.count
    assert [name for name, _, _ in done.steps] == [
        "workloads",
        "load balancers",
        "volumes",
        "leftovers",
        "cluster",
    ]
    assert tenant.clusters() == []
    assert site(stack).plan().is_empty
    assert tenant.neighbours.unknown == []

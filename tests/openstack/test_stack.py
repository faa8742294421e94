"""A stack's cluster half by the engine, against a real Magnum API: its requests, and forbidden ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.clouds import RECOVERIES
from gpuform.engine import EngineFailure
from gpuform.stack.recover import Stack, UserDecisions, carry_out, find
from tests.openstack.stacks import ENVIRONMENT, STACK, T4, V100S, ClusterStack, make_cluster_stack
from tests.openstack.tenant import Tenant

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

BURST: dict[str, Any] = {
    "name": "gpu-a100",
    "machine": "g4.p1.40g",
    "elastic": {"min": 1, "max": {"nodes": 4}},
}


def test_made_unchanged_resized_relabelled_regrouped_and_destroyed(tenant: Tenant, tmp_path: Path) -> None:
    tenant.template(labels={"kube_tag": "v1.30.2", "kube_dashboard_enabled": "false"})
    stack = make_cluster_stack(tenant, tmp_path, ENVIRONMENT | {"pools": [T4, BURST]})
    assert stack.run("up").changed
    cluster = tenant.clusters()[0]

    # The template's labels are beside ours, and Magnum has written its own values back.
    tenant.forget_requests()
    assert not stack.run("up").changed
    assert not stack.run("refresh").changed
    assert tenant.requests(changes=True) == []

    stack.change(lambda env: env["pools"][0].update(nodes=3))
    stack.change(lambda env: env["cluster"]["workers"].update(nodes=2))
    assert _touched(stack.run("up")) == {("update", "research-cluster"), ("update", "groups-gpu-t4")}
    path = f"/v1/clusters/{cluster.uuid}"
    asked = {one.path: one.body for one in tenant.requests(changes=True)}
    assert set(asked) == {path, f"{path}/actions/resize"}
    assert asked[path] == [{"op": "replace", "path": "/node_count", "value": 2}]
    assert asked[f"{path}/actions/resize"]["node_count"] == 3
    assert _sizes(tenant) == {"default-master": 1, "default-worker": 2, "gpu-t4": 3, "gpu-a100": 1}

    _relabelled(tenant, stack)
    _regrouped(tenant, stack)
    _renewed(tenant, stack)

    assert stack.run("destroy").changed
    assert tenant.clusters() == []
    assert tenant.neighbours.unknown == []


def _relabelled(tenant: Tenant, stack: ClusterStack) -> None:
    """A label that Magnum accepts only at creation: refused; once allowed, only the group is replaced."""
    stack.change(lambda env: env["pools"][0].update(openstack={"labels": {"boot_volume_size": "50"}}))
    tenant.forget_requests()
    with pytest.raises(EngineFailure) as refused:
        stack.run("up")
    said = " ".join(refused.value.result.errors)
    assert "boot_volume_size" in said
    assert "3 nodes of g2.5xlarge" in said
    assert "allow_replace: true" in said
    assert tenant.requests(changes=True) == []

    stack.change(lambda env: env["pools"][0]["openstack"].update(allow_replace=True))
    assert ("replace", "groups-gpu-t4") in _touched(stack.run("up"))
    # The provider may time out waiting for the deletion: the next run sends it again.
    assert list(dict.fromkeys(one.method for one in tenant.requests(changes=True))) == ["DELETE", "POST"]
    magnum, [cluster] = tenant.magnum(), tenant.clusters()
    assert magnum.nodegroups.get(cluster.uuid, "gpu-t4").labels["boot_volume_size"] == "50"


def _regrouped(tenant: Tenant, stack: ClusterStack) -> None:
    """An autoscaler resizes an elastic group; then adding and removing a group does not undo it."""
    [cluster] = tenant.clusters()
    group = tenant.magnum().nodegroups.get(cluster.uuid, "gpu-a100")
    assert (group.node_count, group.min_node_count, group.max_node_count) == (1, 1, 4)
    # As cluster-autoscaler does it (cloudprovider/magnum/magnum_manager_impl.go: clusters.Resize).
    tenant.magnum().clusters.resize(cluster.uuid, 3, nodegroup=group.uuid)
    tenant.wait_until_settled(cluster.uuid)
    # Without an API server nothing says what runs on the group that goes.
    stack.change(lambda env: env.update(pools=[BURST, V100S], acknowledge_loss=["gpu-t4"]))
    assert _touched(stack.run("up")) == {("create", "groups-gpu-v100s"), ("delete", "groups-gpu-t4")}
    assert _sizes(tenant) == {"default-master": 1, "default-worker": 2, "gpu-a100": 3, "gpu-v100s": 2}


def _renewed(tenant: Tenant, stack: ClusterStack) -> None:
    """`gpuform recover --renew-kubeconfig`: another certificate in the state, which the next `up` exports."""
    before, here = _kubeconfig(stack), Stack(STACK, stack.paths, stack.engine, RECOVERIES)
    assert not stack.run("up").changed
    assert _kubeconfig(stack) == before
    tenant.forget_requests()
    carry_out(here, find(here, UserDecisions(renew_kubeconfig=True)), stack.messages.append)
    assert not _touched(stack.run("up"))
    after = _kubeconfig(stack)
    user, renewed = (one["users"][0]["user"] for one in (before, after))
    assert user.keys() == renewed.keys()
    assert user["client-certificate-data"] != renewed["client-certificate-data"]
    assert before["clusters"] == after["clusters"]
    assert {one.path for one in tenant.requests(changes=True)} == {"/v1/certificates"}


def _kubeconfig(stack: ClusterStack) -> Any:
    return yaml.safe_load(stack.engine.outputs(STACK, show_secrets=True)["kubeconfig"])


def _touched(result: Any) -> set[tuple[str, str]]:
    return {(step.op, step.name) for step in result.steps if step.type.startswith("openstack:")}


def _sizes(tenant: Tenant) -> dict[str, int]:
    [cluster] = tenant.clusters()
    return {group.name: group.node_count for group in tenant.magnum().nodegroups.list(cluster.uuid)}


def test_a_cluster_that_failed_says_why_and_is_made_anew(tenant: Tenant, tmp_path: Path) -> None:
    tenant.template()
    stack = make_cluster_stack(tenant, tmp_path)
    tenant.instruct(
        fail="Resource CREATE failed: OverLimit: resources.kube_masters: VolumeSizeExceedsAvailableQuota"
    )
    with pytest.raises(EngineFailure, match=r"CREATE_FAILED: .*VolumeSizeExceedsAvailableQuota"):
        stack.run("up")
    [left] = tenant.clusters()
    assert left.status == "CREATE_FAILED"

    tenant.instruct()
    tenant.instruct(operation="create", group="gpu-t4", fail="No valid host was found")
    with pytest.raises(EngineFailure, match="No valid host was found"):
        stack.run("up")
    [made] = tenant.clusters()
    assert made.uuid != left.uuid

    tenant.instruct()
    assert stack.run("up").changed
    assert [(one.uuid, one.status) for one in tenant.clusters()] == [(made.uuid, "UPDATE_COMPLETE")]
    assert _sizes(tenant) == {"default-master": 1, "default-worker": 1, "gpu-t4": 1}
    assert not stack.run("up").changed

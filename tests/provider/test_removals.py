"""What is done before Helm removes a release, or after it, and what stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider import removals
from tests.fakes.client import FakeClient
from tests.provider.conftest import Log, call_for, provider_of

pytestmark = pytest.mark.unit

OPERATOR, QUEUES = "gpuform:nodes:GpuOperatorRemoval", "gpuform:queues:KueueRemoval"
PLUGIN = "gpuform:nodes:PoolRemoval"
SCALING = "gpuform:workloads:ScalingRemoval"
DEPLOY, UPGRADE = "nvidia.com/gpu.deploy.", "nvidia.com/gpu-driver-upgrade"
STATE, BEFORE = f"{UPGRADE}-state", f"{UPGRADE}.node-initial-state.unschedulable"
KUEUE, CONTROLLER = "kueue-system", "kueue-controller-manager"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{KUEUE}/deployments/{CONTROLLER}"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    monkeypatch.setattr(removals, "POLL_S", 0)
    return FakeClient()


def delete(token: str, cluster: FakeClient, **call: Any) -> list[str]:
    """The messages."""
    log = Log()
    handler = provider_of(cluster).handler(token)
    inputs = {"kubeconfig": "k", "namespace": "lab", "name": "web"}
    asyncio.run(handler.delete(call_for(token, log, **call), "id", inputs, {}))
    return log.lines


def add_pod(cluster: FakeClient, namespace: str, app: str, polls: int, **labels: str) -> None:
    """A pod that is still listed ``polls`` times."""
    cluster.add("pods", "it", namespace, labels={"app": app, **labels})
    cluster.ending[f"pods/{namespace}/it"] = polls


def add_node(cluster: FakeClient, name: str, labels: Any, cordoned: bool = False, **annotations: str) -> Any:
    spec = {"unschedulable": True} if cordoned else {}
    return cluster.add("nodes", name, "", labels=labels, annotations=annotations, spec=spec)


def test_the_operators_labels_go_after_its_pods_and_those_of_others_stay(cluster: FakeClient) -> None:
    own = {
        "nvidia.com/gpu.present": "false",
        f"{DEPLOY}driver": "true",
        f"{DEPLOY}dcgm": "paused-for-driver-upgrade",
        f"{DEPLOY}mig-manager": "",
        "nvidia.com/mig.config": "all-disabled",
        "nvidia.com/mig.config.state": "success",
        STATE: "upgrade-done",
    }
    others = {
        f"{DEPLOY}device-plugin": "false",
        f"{DEPLOY}container-toolkit": "pre-installed",
        f"{DEPLOY}operands": "true",
        f"{DEPLOY}client": "true",
        f"{UPGRADE}.skip": "true",
        "nvidia.com/gpu.product": "Tesla-T4",
        "gpuform.io/pool": "t4",
    }
    node = add_node(cluster, "gpu", own | others, **{f"{UPGRADE}-enabled": "true", "mine": "1"})
    node["metadata"]["managedFields"] = [
        {"operation": operation, "fieldsV1": {"f:metadata": {"f:labels": {f"f:{DEPLOY}{name}": {}}}}}
        for operation, name in (("Apply", "client"), ("Update", "driver"))
    ]
    add_node(cluster, "kept", {"nvidia.com/mig.config": "all-1g.5gb"})
    add_pod(cluster, "gpu-operator", "nvidia-driver-daemonset", polls=2)
    assert delete(OPERATOR, cluster) == []
    removed = {"labels": dict.fromkeys(own), "annotations": {f"{UPGRADE}-enabled": None}}
    ended, *patches = cluster.changes
    assert ended == ("END", "pods/gpu-operator/it", None)
    assert patches == [("PATCH", "/api/v1/nodes/gpu", {"metadata": removed})]


@pytest.mark.parametrize(
    ("state", "annotations", "uncordoned"),
    [
        ("pod-restart-required", {}, True),
        ("upgrade-failed", {}, True),
        ("upgrade-failed", {BEFORE: "true"}, False),
        ("upgrade-required", {}, False),
        ("upgrade-done", {}, False),
        ("", {}, False),
    ],
)
def test_a_node_that_the_operator_has_cordoned_is_uncordoned(
    state: str, annotations: dict[str, str], uncordoned: bool, cluster: FakeClient
) -> None:
    add_node(cluster, "a", {STATE: state}, True, **annotations)
    text = f"uncordoned, as the operator that upgraded the driver is gone: a ({state})"
    assert delete(OPERATOR, cluster) == ([text] if uncordoned else [])
    removed = {"labels": {STATE: None}, "annotations": dict.fromkeys(annotations)}
    spec = {"spec": {"unschedulable": None}} if uncordoned else {}
    assert cluster.changes == [("PATCH", "/api/v1/nodes/a", {"metadata": removed, **spec})]


def test_nodes_that_go_and_pods_that_do_not_end_hold_up_nothing(cluster: FakeClient) -> None:
    for name in "abc":
        add_node(cluster, name, {STATE: "drain-required"}, True)
    cluster.absent = ("b",)
    add_pod(cluster, "gpu-operator", "gpu-operator", polls=99)
    assert delete(OPERATOR, cluster, timeout=-1) == [
        "uncordoned, as the operator that upgraded the driver is gone: a (drain-required), c (drain-required)"
    ]


def add_kueue(cluster: FakeClient, polls: int) -> None:
    labels = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    add_pod(cluster, KUEUE, "kueue", polls, **labels)
    cluster.add("deployments", CONTROLLER, KUEUE, spec={"replicas": 2})


def test_kueue_is_stopped_before_its_objects_are_released(cluster: FakeClient) -> None:
    in_use, managed = "kueue.x-k8s.io/resource-in-use", "kueue.x-k8s.io/managed"
    add_kueue(cluster, polls=3)
    cluster.add("workloads", "w", finalizers=[in_use])
    cluster.add("workloads", "ended", finalizers=[])
    cluster.add("clusterqueues", "team", "", finalizers=[in_use, "theirs"])
    gate, labels = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, {managed: "true"}
    cluster.add("pods", "runs", finalizers=[managed, "theirs"], labels=labels)
    cluster.add("pods", "waits", finalizers=[managed], labels=labels, spec=gate)
    delete(QUEUES, cluster)
    stopped, ended, *webhooks = cluster.changes[:4]
    assert stopped == ("PATCH", DEPLOYMENT, {"spec": {"replicas": 0}})
    assert ended == ("END", f"pods/{KUEUE}/it", None)
    assert [(method, path.split("/")[4]) for method, path, _ in webhooks] == [
        ("DELETE", "mutatingwebhookconfigurations"), ("DELETE", "validatingwebhookconfigurations")
    ], "they would refuse what follows"  # fmt: skip
    assert {path.rpartition("/v1")[2]: body["metadata"] for _, path, body in cluster.changes[4:-2]} == {
        "beta2/namespaces/lab/workloads/w": {"finalizers": [], "uid": "workloads/lab/w"},
        "beta2/clusterqueues/team": {"finalizers": ["theirs"], "uid": "clusterqueues//team"},
        "/namespaces/lab/pods/runs": {
            "finalizers": ["theirs"], "uid": "pods/lab/runs", "labels": {managed: None},
        },
        "/namespaces/lab/pods/waits": {"finalizers": [], "uid": "pods/lab/waits"},
    }  # fmt: skip
    rule = {"aggregationRule": None}
    assert [(path.rpartition("/")[2], body) for _, path, body in cluster.changes[-2:]] == [
        ("kueue-batch-admin-role", rule), ("kueue-batch-user-role", rule)
    ]  # fmt: skip


def test_of_kueue_what_is_gone_already_is_passed_over(cluster: FakeClient) -> None:
    cluster.absent = ("workloads", "clusterqueues", "resourceflavors", "topologies", "admissionchecks")
    delete(QUEUES, cluster)
    assert len(cluster.changes) == 5, "none of these objects is there"


def test_a_controller_of_kueue_that_does_not_end_is_an_error(cluster: FakeClient) -> None:
    add_kueue(cluster, polls=9)
    with pytest.raises(OperationError, match="kueue-controller-manager: its pods do not end; see `kubectl"):
        delete(QUEUES, cluster, timeout=-1)
    assert len(cluster.changes) == 1, "nothing is released while it runs"


@pytest.mark.parametrize(
    ("replicas", "silent", "fine"), [(2, "", True), (0, "", False), (0, "no route", True)]
)
def test_a_kueue_that_an_interrupted_removal_has_stopped_is_refused(
    replicas: int, silent: str, fine: bool, cluster: FakeClient
) -> None:
    cluster.add("deployments", CONTROLLER, KUEUE, spec={"replicas": replicas})
    cluster.unreachable = silent
    handler = provider_of(cluster).handler(QUEUES)
    checked = asyncio.run(handler.check(call_for(QUEUES), {}, {"kubeconfig": "k", "context": None}))
    assert checked.inputs == {"kubeconfig": "k"}
    refusal = (
        "queues: Deployment kueue-system/kueue-controller-manager has no replicas, as after an interrupted "
        "removal; remove `queues:` in one update, and declare it again in the next"
    )
    assert [reason for _, reason in checked.failures] == ([] if fine else [refusal])


def add_scaled(cluster: FakeClient, polls: int, declared: bool = True) -> None:
    """A Deployment of four pods; the first ``polls`` requests find its autoscaler."""
    annotations = {"gpuform.io/replicas": "3"} if declared else None
    cluster.add("deployments", "web", annotations=annotations, spec={"replicas": 4})
    for name, owner in (("keda-hpa-web", "web"), ("keda-hpa-other", "other"), ("web", "")):
        owners = {"ownerReferences": [{"kind": "ScaledObject", "name": owner}]} if owner else {}
        cluster.add("horizontalpodautoscalers", name, **owners)
    cluster.ending["horizontalpodautoscalers/lab/keda-hpa-web"] = polls


def test_the_declared_number_of_pods_is_set_after_the_autoscaler_has_gone(cluster: FakeClient) -> None:
    add_scaled(cluster, polls=3)
    delete(SCALING, cluster)
    assert cluster.changes == [
        ("END", "horizontalpodautoscalers/lab/keda-hpa-web", None),
        ("PATCH", "/apis/apps/v1/namespaces/lab/deployments/web/scale", {"spec": {"replicas": 3}}),
    ]


def test_a_deployment_that_is_deleted_next_or_gone_keeps_its_pods(cluster: FakeClient) -> None:
    add_scaled(cluster, polls=0, declared=False)
    delete(SCALING, cluster)
    del cluster.objects["deployments"]
    delete(SCALING, cluster)
    assert cluster.changes == [], "its autoscaler is not waited for"


def test_an_autoscaler_that_stays_is_named(cluster: FakeClient) -> None:
    add_scaled(cluster, polls=10**9)
    message = r"HorizontalPodAutoscaler lab/keda-hpa-web of ScaledObject web is still there; see `kubectl"
    with pytest.raises(OperationError, match=message):
        delete(SCALING, cluster, timeout=0.01)


def update(
    cluster: FakeClient, old: list[str] | None, new: list[str], token: str = OPERATOR, **more: bool
) -> bool:
    """Whether there was a change; made then, as the engine does."""
    handler, call = provider_of(cluster).handler(token), call_for(token, Log())
    olds = {"kubeconfig": "k"} | ({} if old is None else {"pools": old})
    news = {"kubeconfig": "k", "pools": new, **({"simulated": True} if token == OPERATOR else {}), **more}
    assert not asyncio.run(handler.check(call, {}, news)).failures
    if asyncio.run(handler.diff(call, "id", olds, {}, news)).changes:
        asyncio.run(handler.update(call, "id", olds, {}, news))
        return True
    return False


def test_simulated_nodes_of_a_removed_pool_run_no_operands_until_they_are_deleted(
    cluster: FakeClient,
) -> None:
    """Their sharing and driver are not in the release any more, and Helm waits for ready operands."""
    for name, pool in (("t4-0", "t4"), ("t4-1", "t4"), ("v100-0", "v100")):
        add_node(cluster, name, {"gpuform.io/pool": pool})
    assert not update(cluster, ["t4", "v100"], ["t4", "v100", "new"])
    assert not update(cluster, None, ["t4"]), "the last run knew no pools"
    assert update(cluster, ["t4", "v100"], ["v100"])
    off = {"metadata": {"labels": {f"{DEPLOY}operands": "false"}}}
    assert cluster.changes == [("PATCH", f"/api/v1/nodes/t4-{index}", off) for index in range(2)]


@pytest.mark.parametrize(("token", "more"), [(OPERATOR, {"simulated": False}), (PLUGIN, {})])
def test_other_nodes_of_a_removed_pool_get_the_default_configuration(
    token: str, more: dict[str, bool], cluster: FakeClient
) -> None:
    add_node(cluster, "gpu-1", {"gpuform.io/pool": "t4", "nvidia.com/device-plugin.config": "slice-4"})
    add_node(cluster, "gpu-2", {"gpuform.io/pool": "t4"})
    assert update(cluster, ["t4"], [], token, **more)
    removed = {"metadata": {"labels": {"nvidia.com/device-plugin.config": None}}}
    assert cluster.changes == [("PATCH", "/api/v1/nodes/gpu-1", removed)]


def test_nothing_is_left_to_do_when_the_device_plugin_goes(cluster: FakeClient) -> None:
    add_node(cluster, "gpu", {"nvidia.com/gpu.present": "true", "nvidia.com/mig.config": "all-disabled"})
    assert delete(PLUGIN, cluster) == []
    assert cluster.changes == []


def test_a_pool_that_comes_back_before_its_nodes_were_deleted_gets_its_operands(cluster: FakeClient) -> None:
    add_node(cluster, "t4-0", {"gpuform.io/pool": "t4", f"{DEPLOY}operands": "false"})
    add_node(cluster, "new-0", {"gpuform.io/pool": "new"})
    assert update(cluster, [], ["t4", "new"])
    on = {"metadata": {"labels": {f"{DEPLOY}operands": None}}}
    assert cluster.changes == [("PATCH", "/api/v1/nodes/t4-0", on)]


def test_operands_that_a_user_has_turned_off_stay_off(cluster: FakeClient) -> None:
    """Only simulated nodes get the label from here."""
    add_node(cluster, "gpu-1", {"gpuform.io/pool": "new", f"{DEPLOY}operands": "false"})
    assert not update(cluster, ["t4"], ["t4", "new"], simulated=False)
    assert cluster.changes == []

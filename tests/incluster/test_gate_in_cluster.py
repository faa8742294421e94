"""The gate on a real API server: no pod is bound to a GPU node before its operands have acted."""

from __future__ import annotations

import json
import socketserver
import threading
import time

import pytest

from infra import versions
from infra.incluster.proof import lift_patch
from infra.model.base.namespaces import TRIAL
from infra.plan import readiness_gate
from infra.plan.sharing import NAMESPACE
from lab.simulator import faults, keys
from tests.incluster.live_clusters import BY_CLAIM, DRIVER, ENV, READY, TAINT, VALIDATOR, GateCluster
from tests.waiting import until

pytestmark = pytest.mark.cluster

DEVICES = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "p2-a-gpus"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "p2-a",
        "pool": {"name": "p2-a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}],
    },
}


def test_a_pod_waits_for_the_last_operand_on_two_nodes_at_once(cluster: GateCluster) -> None:
    nodes = ("p0-a", "p0-b")
    fault = faults.render([faults.Fault(faults.FABRIC, -1, time.time())])
    assert fault
    with cluster.gate.running():
        for node in nodes:
            cluster.add_elastic(node, annotations={keys.FAULTS: fault})
            cluster.pod(f"on-{node}", node)
        for node in nodes:
            offers = until(
                lambda node=node: cluster.node(node).get("status", {}).get("allocatable", {}),
                lambda amounts: amounts.get("nvidia.com/gpu.shared") == "3",
            )
            assert offers
            cluster.require_waiting(node, f"on-{node}", f"{VALIDATOR}-")
        for node in nodes:
            cluster.kubectl("annotate", "node", node, f"{keys.FAULTS}-")
        for node in nodes:
            evidence = cluster.wait_until_admitted(node, f"on-{node}")
            assert cluster.is_ready(VALIDATOR, node)
            assert cluster.taints(node) == ["nvidia.com/gpu", "team"]
            assert evidence["driver"] == DRIVER
            assert evidence["offers"] == {"nvidia.com/gpu.shared": 3}
            assert evidence["operands"] == {
                VALIDATOR: f"gpu-operator-validator:{versions.GPU_OPERATOR}",
                "nvidia-device-plugin-daemonset": f"k8s-device-plugin:v{versions.DEVICE_PLUGIN}",
            }
            assert time.strptime(evidence["at"], "%Y-%m-%dT%H:%M:%SZ")


def test_a_node_of_a_managed_group_has_to_keep_its_pools_promise_and_to_give_a_pod_a_gpu(
    cluster: GateCluster,
) -> None:
    """With containerd 1.6 all operands are ready, and pods get no GPU."""
    with cluster.gate.running():
        cluster.add_fixed("p1-a", "containerd://1.6.20")
        reason = until(lambda: cluster.annotation("p1-a"), bool)
        assert "it offers 0 of 1 nvidia.com/gpu" in reason
        until(lambda: cluster.annotation("p1-a"), lambda text: "gets no GPU: no device file of a GPU" in text)
        assert cluster.is_ready(VALIDATOR, "p1-a")
        assert TAINT in cluster.taints("p1-a")
        newer = f"{keys.CONTAINER_RUNTIME}=containerd://2.0.5"
        cluster.kubectl("annotate", "node", "p1-a", newer, "--overwrite")
        cluster.kubectl("delete", "pods", "-n", TRIAL, "--all")  # the gate itself replaces it after 30 s
        evidence = json.loads(until(lambda: cluster.annotation("p1-a", READY), bool))
        assert cluster.kubectl("get", "pods", "-n", TRIAL, "-o", "name").split() == []
        assert evidence["offers"] == {"nvidia.com/gpu": 1}
        assert evidence["cuda"].split(".")[0].isdigit()
        assert cluster.taints("p1-a") == ["nvidia.com/gpu"]
        assert not cluster.annotation("p1-a")


@pytest.mark.nightly
def test_a_node_with_gpus_by_claim_is_let_in_once_its_devices_are_there(cluster: GateCluster) -> None:
    with cluster.gate.running():
        cluster.add_elastic("p2-a", pool=BY_CLAIM)
        until(lambda: cluster.annotation("p2-a"), "it offers 0 of 1 gpu.nvidia.com".__eq__)
        assert TAINT in cluster.taints("p2-a")
        cluster.apply(DEVICES)
        try:
            evidence = json.loads(until(lambda: cluster.annotation("p2-a", READY), bool))
        finally:
            cluster.kubectl("delete", "resourceslices", "--all")
        assert evidence["offers"] == {"gpu.nvidia.com": 1}
        assert evidence["operands"] == {}
        assert TAINT not in cluster.taints("p2-a")


@pytest.mark.nightly
def test_a_taint_that_comes_meanwhile_makes_the_server_refuse_the_patch(cluster: GateCluster) -> None:
    cluster.add_elastic("p0-a")
    node = cluster.node("p0-a")
    stale = json.dumps(lift_patch(node, "{}"))
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] != "nvidia.com/gpu"]
    patch = [{"op": "replace", "path": "/spec/taints", "value": taints}]
    cluster.kubectl("patch", "node", "p0-a", "--type=json", "-p", json.dumps(patch))
    with pytest.raises(AssertionError):
        cluster.kubectl("patch", "node", "p0-a", "--type=json", "-p", stale)
    assert cluster.taints("p0-a") == ["team", TAINT]
    assert READY not in cluster.node("p0-a")["metadata"]["annotations"]
    with cluster.gate.running():
        until(lambda: cluster.taints("p0-a"), ["team"].__eq__)


class ClosingServer(socketserver.BaseRequestHandler):
    """A network that ends every connection at once, and counts them."""

    connections = 0

    def handle(self) -> None:
        type(self).connections += 1


@pytest.mark.nightly
def test_gate_goes_on_after_no_answer_and_after_a_refusal(cluster: GateCluster) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), ClosingServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with cluster.gate.running(f"https://127.0.0.1:{server.server_address[1]}"):
            until(lambda: ClosingServer.connections, lambda count: count > 3)
        server.shutdown()
    assert cluster.gate.log.read_text().count("the API server:") == 1  # logged once, not at every poll
    bindings = [item for item in readiness_gate.manifests(ENV) if item["kind"] == "RoleBinding"]
    cluster.kubectl("delete", "rolebinding", "readiness-gate", "-n", NAMESPACE)
    with cluster.gate.running():
        cluster.add_elastic("p0-a")
        cluster.pod("on-a", "p0-a")
        cluster.wait_for_operands("p0-a")
        cluster.require_waiting("p0-a", "on-a", "p0-a waits: HTTPError: HTTP Error 403")
        cluster.apply(*bindings)
        cluster.wait_until_admitted("p0-a", "on-a")


def test_the_account_may_do_what_it_must_and_nothing_else(cluster: GateCluster) -> None:
    account = f"{NAMESPACE}:readiness-gate"
    slices, nodes = "resourceslices.resource.k8s.io [] [] [list]", "nodes [] [] [list patch]"
    assert cluster.list_rights(account, "default") == [nodes, slices]
    assert cluster.list_rights(account, NAMESPACE) == [nodes, "pods [] [] [list]", slices]
    assert cluster.list_rights(account, TRIAL) == [nodes, "pods [] [] [create delete list]", slices]


@pytest.mark.nightly
def test_the_strictest_namespace_would_take_its_pod(cluster: GateCluster) -> None:
    (container,) = cluster.get("deployment", "readiness-gate", NAMESPACE)["spec"]["template"]["spec"][
        "containers"
    ]
    assert "@sha256:" in container["image"]
    cluster.require_restricted("readiness-gate")

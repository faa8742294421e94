"""The gate on a real API server: no pod is bound to a GPU node before its operands have acted."""

from __future__ import annotations

import json
import socketserver
import threading
import time

import pytest

from infra.incluster.proof import lifting
from infra.model.checks import TRIAL
from infra.plan import readiness_gate
from infra.plan.sharing import NAMESPACE
from lab.simulator import keys
from tests.incluster.sites import BY_CLAIM, DRIVER, ENV, READY, TAINT, VALIDATOR, GateSite
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


def test_a_pod_waits_for_the_last_operand_on_two_nodes_at_once(site: GateSite) -> None:
    nodes = ("p0-a", "p0-b")
    with site.gate.running():
        for node in nodes:
            site.elastic(node, labels={"nvidia.com/gpu.deploy.operator-validator": "false"})
            site.pod(f"on-{node}", node)
        for node in nodes:
            offers = until(
                lambda node=node: site.get("node", node).get("status", {}).get("allocatable", {}),
                lambda there: there.get("nvidia.com/gpu.shared") == "3",
            )
            assert offers
            site.waits(node, f"on-{node}", f"{VALIDATOR} has no pod")
        for node in nodes:
            site.kubectl(
                "label", "node", node, "--overwrite", "nvidia.com/gpu.deploy.operator-validator=true"
            )
        for node in nodes:
            evidence = site.lets_in(node, f"on-{node}")
            assert site.ready(VALIDATOR, node)
            assert site.taints(node) == ["nvidia.com/gpu", "team"]
            assert evidence["driver"] == DRIVER
            assert evidence["offers"] == {"nvidia.com/gpu.shared": 3}
            assert evidence["operands"] == {
                VALIDATOR: "gpu-operator-validator:v26.7.0",
                "nvidia-device-plugin-daemonset": "k8s-device-plugin:v0.20.0",
            }
            assert time.strptime(evidence["at"], "%Y-%m-%dT%H:%M:%SZ")


def test_a_node_of_a_managed_group_has_to_keep_its_pools_promise_and_to_give_a_pod_a_gpu(
    site: GateSite,
) -> None:
    """With containerd 1.6 all operands are ready, and pods get no GPU."""
    with site.gate.running():
        site.fixed("p1-a", "containerd://1.6.20")
        noted = until(lambda: site.note("p1-a"), bool)
        assert "it offers 0 of 1 nvidia.com/gpu" in noted
        until(lambda: site.note("p1-a"), lambda text: "gets no GPU: no device file of a GPU" in text)
        assert site.ready(VALIDATOR, "p1-a")
        assert TAINT in site.taints("p1-a")
        newer = f"{keys.CONTAINER_RUNTIME}=containerd://2.0.5"
        site.kubectl("annotate", "node", "p1-a", newer, "--overwrite")
        site.kubectl("delete", "pods", "-n", TRIAL, "--all")  # the gate itself replaces it after 30 s
        evidence = json.loads(until(lambda: site.note("p1-a", READY), bool))
        assert site.kubectl("get", "pods", "-n", TRIAL, "-o", "name").split() == []
        assert evidence["offers"] == {"nvidia.com/gpu": 1}
        assert evidence["cuda"].split(".")[0].isdigit()
        assert site.taints("p1-a") == ["nvidia.com/gpu"]
        assert not site.note("p1-a")


@pytest.mark.nightly
def test_a_node_whose_gpus_are_claimed_is_let_in_once_its_devices_are_there(site: GateSite) -> None:
    with site.gate.running():
        site.elastic("p2-a", of=BY_CLAIM)
        until(lambda: site.note("p2-a"), "it offers 0 of 1 gpu.nvidia.com".__eq__)
        assert TAINT in site.taints("p2-a")
        site.apply(DEVICES)
        try:
            evidence = json.loads(until(lambda: site.note("p2-a", READY), bool))
        finally:
            site.kubectl("delete", "resourceslices", "--all")
        assert evidence["offers"] == {"gpu.nvidia.com": 1}
        assert evidence["operands"] == {}
        assert TAINT not in site.taints("p2-a")


@pytest.mark.nightly
def test_a_taint_that_comes_meanwhile_makes_the_server_refuse_the_patch(site: GateSite) -> None:
    site.elastic("p0-a")
    seen = site.get("node", "p0-a")
    stale = json.dumps(lifting(seen, "{}"))
    own = [taint for taint in seen["spec"]["taints"] if taint["key"] != "nvidia.com/gpu"]
    patch = [{"op": "replace", "path": "/spec/taints", "value": own}]
    site.kubectl("patch", "node", "p0-a", "--type=json", "-p", json.dumps(patch))
    with pytest.raises(AssertionError):
        site.kubectl("patch", "node", "p0-a", "--type=json", "-p", stale)
    assert site.taints("p0-a") == ["team", TAINT]
    assert READY not in site.get("node", "p0-a")["metadata"]["annotations"]
    with site.gate.running():
        until(lambda: site.taints("p0-a"), ["team"].__eq__)


class Broken(socketserver.BaseRequestHandler):
    """A network that ends every connection at once, and counts them."""

    seen = 0

    def handle(self) -> None:
        type(self).seen += 1


@pytest.mark.nightly
def test_no_answer_and_a_refusal_end_nothing(site: GateSite) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with site.gate.running(f"https://127.0.0.1:{server.server_address[1]}"):
            until(lambda: Broken.seen, lambda seen: seen > 3)
        server.shutdown()
    assert site.gate.log.read_text().count("the API server:") == 1  # logged once, not at every poll
    bindings = [one for one in readiness_gate.manifests(ENV) if one["kind"] == "RoleBinding"]
    site.kubectl("delete", "rolebinding", "readiness-gate", "-n", NAMESPACE)
    with site.gate.running():
        site.elastic("p0-a")
        site.pod("on-a", "p0-a")
        site.acted("p0-a")
        site.waits("p0-a", "on-a", "p0-a waits: HTTPError: HTTP Error 403")
        site.apply(*bindings)
        site.lets_in("p0-a", "on-a")


def test_the_account_may_do_what_it_must_and_nothing_else(site: GateSite) -> None:
    me = f"{NAMESPACE}:readiness-gate"
    slices, nodes = "resourceslices.resource.k8s.io [] [] [list]", "nodes [] [] [list patch]"
    assert site.rights(me, "default") == [nodes, slices]
    assert site.rights(me, NAMESPACE) == [nodes, "pods [] [] [list]", slices]
    assert site.rights(me, TRIAL) == [nodes, "pods [] [] [create delete list]", slices]


@pytest.mark.nightly
def test_the_strictest_namespace_would_take_its_pod(site: GateSite) -> None:
    (container,) = site.get("deployment", "readiness-gate", NAMESPACE)["spec"]["template"]["spec"][
        "containers"
    ]
    assert "@sha256:" in container["image"]
    site.require_restricted("readiness-gate")

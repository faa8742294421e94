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
from tests.incluster.gate_site import BY_CLAIM, DRIVER, ENV, READY, TAINT, VALIDATOR, Site
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


def test_a_pod_waits_for_the_last_operand_on_two_nodes_at_once(site: Site) -> None:
    nodes = ("p0-a", "p0-b")
    with site.gate.running():
        for node in nodes:
            site.node(node, labels={"nvidia.com/gpu.deploy.operator-validator": "false"})
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


def test_a_node_of_a_managed_group_has_to_keep_its_pools_promise_and_to_give_a_pod_a_gpu(site: Site) -> None:
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
def test_a_node_whose_gpus_are_claimed_is_let_in_once_its_devices_are_there(site: Site) -> None:
    with site.gate.running():
        site.node("p2-a", of=BY_CLAIM)
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
def test_without_the_gate_nothing_is_let_in(site: Site) -> None:
    site.node("p0-a")
    site.pod("on-a", "p0-a")
    site.acted("p0-a")
    (said,) = until(lambda: site.get("pod", "on-a")["status"].get("conditions", []), bool)
    assert TAINT in site.taints("p0-a")
    assert (said["reason"], site.phase("on-a")) == ("Unschedulable", "Pending")


@pytest.mark.nightly
def test_a_node_that_offers_something_else_stays_out(site: Site) -> None:
    with site.gate.running():
        site.node("p0-a", labels={"nvidia.com/device-plugin.config": "default"})
        site.pod("on-a", "p0-a")
        until(lambda: site.ready(VALIDATOR, "p0-a"), bool)
        site.waits("p0-a", "on-a", "p0-a waits: it offers 0 of 3 nvidia.com/gpu.shared\n")
        promise = json.dumps({"nvidia.com/gpu.shared": 6})
        site.kubectl("annotate", "node", "p0-a", "--overwrite", f"gpuform.io/offers={promise}")
        site.kubectl("label", "node", "p0-a", "--overwrite", "nvidia.com/device-plugin.config=slice-3")
        site.waits("p0-a", "on-a", "p0-a waits: it offers 3 of 6 nvidia.com/gpu.shared\n")
        site.kubectl("annotate", "node", "p0-a", "gpuform.io/offers-")
        site.waits("p0-a", "on-a", "does not say what its pool promises")
        promise = json.dumps({"nvidia.com/gpu.shared": 3})
        site.kubectl("annotate", "node", "p0-a", f"gpuform.io/offers={promise}")
        site.lets_in("p0-a", "on-a")


@pytest.mark.nightly
def test_a_validator_that_fails_keeps_the_node_out(site: Site) -> None:
    site.node("p0-a")
    site.pod("on-a", "p0-a")
    site.acted("p0-a")
    (validator,) = site.operand(VALIDATOR, "p0-a")
    name = validator["metadata"]["name"]

    def report(ready: str) -> None:
        conditions = [{"type": "Ready", "status": ready}]
        patch = json.dumps({"status": {"conditions": conditions}})
        site.kubectl("patch", "pod", name, "-n", NAMESPACE, "--subresource=status", "-p", patch)

    report("False")
    with site.gate.running():
        site.waits("p0-a", "on-a", f"p0-a waits: {name} is not ready\n")
        report("True")
        site.lets_in("p0-a", "on-a")


@pytest.mark.nightly
def test_a_taint_that_comes_meanwhile_makes_the_server_refuse_the_patch(site: Site) -> None:
    site.node("p0-a")
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
def test_no_answer_and_a_refusal_end_nothing(site: Site) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Broken) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with site.gate.running(f"https://127.0.0.1:{server.server_address[1]}"):
            until(lambda: Broken.seen, lambda seen: seen > 3)
        server.shutdown()
    assert site.gate.log.read_text().count("the API server:") == 1  # logged once, not at every poll
    bindings = [one for one in readiness_gate.manifests(ENV) if one["kind"] == "RoleBinding"]
    site.kubectl("delete", "rolebinding", "readiness-gate", "-n", NAMESPACE)
    with site.gate.running():
        site.node("p0-a")
        site.pod("on-a", "p0-a")
        site.acted("p0-a")
        site.waits("p0-a", "on-a", "p0-a waits: HTTPError: HTTP Error 403")
        site.apply(*bindings)
        site.lets_in("p0-a", "on-a")


def test_the_account_may_do_what_it_must_and_nothing_else(site: Site) -> None:
    me = f"--as=system:serviceaccount:{NAMESPACE}:readiness-gate"

    listed = site.kubectl("auth", "can-i", "--list", me, "-n", NAMESPACE)
    ours = [
        " ".join(line.split()) for line in listed.splitlines() if line.startswith(("nodes", "pods", "res"))
    ]
    slices = "resourceslices.resource.k8s.io [] [] [list]"
    assert sorted(ours) == ["nodes [] [] [list patch]", "pods [] [] [list]", slices]
    elsewhere = site.kubectl("auth", "can-i", "--list", me, "-n", "default")
    trials = site.kubectl("auth", "can-i", "--list", me, "-n", TRIAL)
    assert "pods [] [] [create delete list]" in [" ".join(line.split()) for line in trials.splitlines()]
    assert not [line for line in elsewhere.splitlines() if line.startswith(("pods", "secrets", "configmaps"))]


@pytest.mark.nightly
def test_the_strictest_namespace_would_take_its_pod(site: Site) -> None:
    until(
        lambda: site.get("deployment", "readiness-gate", NAMESPACE)["status"].get("readyReplicas"), (1).__eq__
    )
    spec = site.get("deployment", "readiness-gate", NAMESPACE)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "@sha256:" in container["image"]
    name = "strict"
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    site.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": level}})
    account = {"metadata": {"name": "readiness-gate", "namespace": name}}
    site.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": account["metadata"], "spec": spec}
    try:
        site.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    finally:
        site.kubectl("delete", "namespace", name, "--wait=false")

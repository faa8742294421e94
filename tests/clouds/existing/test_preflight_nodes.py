"""Nodes of an existing cluster before an update: GPUs reach containers, and one controller acts on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuform.clouds.existing.preflight import nodes as existing_nodes
from gpuform.kubernetes.kinds import CLUSTER_POLICY, DAEMON_SET, DEPLOYMENT, NODE
from gpuform.stack.preflight.check import Result
from infra.model.environment import Environment
from tests.clouds.existing.live import Json, daemons, env, live, node, policy
from tests.clouds.findings import expect

pytestmark = pytest.mark.unit

CDI, REQUEST = "container runtimes", existing_nodes.ISOLATION
BY_CTK = "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false"
GUARD = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
HOST: dict[str, Any] = {"toolkit": "host"}


def judge(
    env: Environment, nodes: list[Json] | None = None, *policies: Json, sets: Sequence[Json] = ()
) -> dict[str, Result]:
    cluster = live(env, {NODE: nodes or [], CLUSTER_POLICY: policies, DAEMON_SET: sets})
    return {check.subject: check.judge(cluster) for check in existing_nodes.checks(env, "kubectl")}


def on(runtime: str, name: str = "n", pool: str = "b") -> Json:
    return node(name, pool, runtime=runtime)


@pytest.mark.parametrize(
    ("nodes", "operator", "verdict", "fact"),
    [
        ([], {}, "PASS", "nodes with GPUs: 0"),
        ([on("containerd://1.7.24")], {}, "PASS", "nodes with GPUs: 1, each with CDI"),
        ([on("containerd://2.1.0"), on("cri-o://1.30.1")], HOST, "PASS", "nodes with GPUs: 2"),
        ([on("containerd://1.7.24")], HOST, "SKIP", "whether CDI is enabled: n (containerd://1.7.24)"),
        ([on("docker://24.0.1")], {}, "SKIP", "whether CDI is enabled: n (docker://24.0.1)"),
        ([on("containerd://1.6.20"), on("cri-o://1.22.0", "m")], HOST, "FAIL",
         "without CDI, so containers get no GPU: n (containerd://1.6.20), m (cri-o://1.22.0)"),
        ([on("containerd://1.6.20", pool="other")], {}, "PASS", "nodes with GPUs: 0"),
    ],
)  # fmt: skip
def test_runtime_must_have_cdi(nodes: list[Json], operator: Json, verdict: str, fact: str) -> None:
    found = judge(env(**operator), nodes)[CDI]
    expect(found, verdict, fact)
    assert bool(found.fix) == (verdict != "PASS")


SOCKET = "/run/k3s/containerd/containerd.sock"


@pytest.mark.parametrize(
    ("kubelet", "socket", "verdict", "fact"),
    [
        ("v1.34.2", None, "PASS", "its socket is the one that the toolkit signals"),
        ("v1.34.2+rke2r1", SOCKET, "PASS", "its socket is the one"),
        ("v1.34.2+rke2r1", None, "FAIL", "n (kubelet v1.34.2+rke2r1) has its containerd's socket at"),
        ("v1.34.2+k3s1", "/run/containerd/containerd.sock", "FAIL", f"socket at {SOCKET}"),
        ("v1.34.2-eks-1", SOCKET, "FAIL", "that of k3s and RKE2, and node n (kubelet v1.34.2-eks-1)"),
        ("v1.34.2", "/run/k0s/containerd.sock", "PASS", "its socket is the one"),
    ],
)  # fmt: skip
def test_the_toolkit_signals_the_containerd_of_the_distribution(
    kubelet: str, socket: str | None, verdict: str, fact: str
) -> None:
    operator: Json = {"toolkit_env": {"CONTAINERD_SOCKET": socket}} if socket else {}
    found = judge(env(**operator), [node(kubelet=kubelet)])["containerd of the nodes"]
    expect(found, verdict, fact)
    if verdict == "FAIL" and "k3s and" not in fact:
        assert found.fix == f"use gpu_operator.toolkit_env: {{CONTAINERD_SOCKET: {SOCKET}}}"
    assert "containerd of the nodes" not in judge(env(**HOST), [node(kubelet=kubelet)])


def operand(image: str, nodes: int = 1) -> Json:
    """A DaemonSet of NVIDIA's operator."""
    return daemons(f"nvcr.io/nvidia/{image}", None, owned=True, nodes=nodes)


FREE, WITH_DRIVER = node("free"), node("a", labels={"nvidia.com/gpu.deploy.driver": "pre-installed"})
DRIVER, TOOLKIT = operand("driver:595.91.07"), operand("k8s/container-toolkit:v1.20.0")
DRIVER_HOST: Json = {"driver": "host"}


@pytest.mark.parametrize(
    ("operator", "nodes", "sets", "verdict", "fact"),
    [
        ({}, [], [], "PASS", "nothing contradicts driver: operator, toolkit: operator"),
        ({}, [FREE], [DRIVER, TOOLKIT], "PASS", "nothing contradicts"),
        ({}, [WITH_DRIVER], [], "FAIL", "operator, but it installs none on nodes that have one: a"),
        ({}, [WITH_DRIVER, FREE], [], "SKIP", "it installs none on nodes that have one: a"),
        (DRIVER_HOST, [WITH_DRIVER], [TOOLKIT], "PASS", "nothing contradicts driver: host"),
        (DRIVER_HOST, [FREE], [operand("driver:595.91.07", 0)], "PASS", "nothing contradicts driver: host"),
        (DRIVER_HOST, [FREE], [DRIVER], "FAIL",
         "driver is host, but the operator's there/daemons installs it, and would be removed"),
        (HOST, [FREE], [DRIVER, TOOLKIT], "FAIL", "toolkit is host, but the operator's there/daemons"),
        (HOST, [FREE], [daemons("example.org/container-toolkit:1", None)], "PASS", "nothing contradicts"),
    ],
)  # fmt: skip
def test_declared_owner_of_the_driver_matches_the_nodes(
    operator: Json, nodes: list[Json], sets: list[Json], verdict: str, fact: str
) -> None:
    found = judge(env(**operator), nodes, sets=sets)[existing_nodes.OWNERSHIP]
    expect(found, verdict, fact)
    assert bool(found.fix) == (verdict != "PASS")


@pytest.mark.parametrize(
    ("operator", "subject"),
    [
        ({"mode": "existing"}, existing_nodes.OWNERSHIP),
        ({"mode": "device_plugin"}, existing_nodes.OWNERSHIP),
        ({"mode": "existing"}, CDI),
        ({"cdi": False}, CDI),
        ({}, REQUEST),
    ],
)
def test_irrelevant_subjects_are_not_checked(operator: Json, subject: str) -> None:
    assert subject not in judge(env(**operator), [on("containerd://1.6.20"), WITH_DRIVER])
    assert judge(env(pool={"machine": "m6i.xlarge"})) == {}


@pytest.mark.parametrize(
    ("operator", "policies", "verdict", "fact", "fix"),
    [
        (HOST, [], "SKIP", "does not configure the container toolkit: unless accept-", BY_CTK),
        ({"mode": "device_plugin"}, [], "SKIP",
         "any container that sets NVIDIA_VISIBLE_DEVICES=all sees all GPUs", BY_CTK),
        ({**HOST, "cdi": False}, [], "SKIP", "with cdi: false it cannot be", "use gpu_operator.cdi: true"),
        ({"mode": "existing"}, [], "SKIP", "does not configure", BY_CTK),
        ({"mode": "existing"}, [policy(enabled=False)], "SKIP", "does not configure", BY_CTK),
        ({"mode": "existing"}, [policy()], "SKIP", "cluster-policy does not restrict it",
         f"set {GUARD}=false in"),
        ({"mode": "existing"}, [policy(env=[{"name": GUARD, "value": "true"}])], "SKIP",
         "does not restrict it", ""),
        ({"mode": "existing"}, [policy(env=[{"name": GUARD, "value": "false"}])], "PASS", f"{GUARD} is", ""),
    ],
)  # fmt: skip
def test_gpus_without_a_request_are_reported(
    operator: Json, policies: list[Json], verdict: str, fact: str, fix: str
) -> None:
    expect(judge(env(**operator), [], *policies)[REQUEST], verdict, fact, fix)


SENTINEL = "ghcr.io/nvidia/nvsentinel/"
AGENT = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/eks-node-monitoring-agent:v1.6.1-eksbuild.1"
REPORTER = "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.20"
KARPENTER = "public.ecr.aws/karpenter/controller:1.14.1@sha256:0a"


def workload(image: str, name: str = "one", gates: str = "") -> Json:
    container: Json = {"name": "c", "image": image}
    if gates:
        container["env"] = [{"name": "FEATURE_GATES", "value": gates}]
    pod = {"spec": {"containers": [{"name": "proxy", "image": "proxy"}, container]}}
    return {"metadata": {"namespace": "there", "name": name}, "spec": {"template": pod}}


def judge_controllers(mode: str | None, *deployments: Json, sets: tuple[Json, ...] = ()) -> Result:
    declared = env(own={"monitoring": {}, "health": {"mode": mode}} if mode else {})
    (check,) = existing_nodes.controllers(declared, "kubectl")
    return check.judge(live(declared, {DEPLOYMENT: deployments, DAEMON_SET: sets}))


ACTING = {
    "NVSentinel": workload(f"{SENTINEL}fault-quarantine:v1.3.0"),
    "draino": workload("planetlabs/draino:e0d5277"),
    "NodeHealthCheck": workload("quay.io/medik8s/node-healthcheck-operator:v0.9.0"),
    "Karpenter's node repair": workload(KARPENTER, gates="ReservedCapacity=true,NodeRepair=true"),
}


@pytest.mark.parametrize("other", ACTING)
def test_a_second_remediator_is_refused(other: str) -> None:
    for mode in ("cordon", "ticket"):
        found = judge_controllers(mode, ACTING[other])
        fact = f"{other} (there/one) and the health loop (mode {mode}) would act on the same nodes"
        expect(found, "FAIL", fact, "use health.mode: observe, or uninstall the other one first")
    for harmless in ("observe", None):
        expect(judge_controllers(harmless, ACTING[other]), "PASS", f"only {other} (there/one) acts on nodes")


def test_two_foreign_remediators_are_named() -> None:
    found = judge_controllers(None, ACTING["draino"], ACTING["NVSentinel"])
    expect(found, "SKIP", "draino (there/one) and NVSentinel (there/one) act on the same nodes")


@pytest.mark.parametrize(
    ("verdict", "image"),
    [
        *(("FAIL", f"{SENTINEL}{name}:v1.3.0") for name in ("fault-remediation", "node-drainer")),
        ("FAIL", f"{SENTINEL}node-drainer-module:v1.3.0"),
        *(("PASS", f"{SENTINEL}{name}:v1.3.0") for name in ("syslog-health-monitor", "labeler")),
        ("PASS", REPORTER),
        ("PASS", KARPENTER),
    ],
)
def test_only_acting_controllers_are_refused(verdict: str, image: str) -> None:
    item = workload(image, gates="ReservedCapacity=true,NodeRepair=false")
    assert judge_controllers("cordon", item).verdict == verdict
    assert judge_controllers("cordon", sets=(item,)).verdict == verdict


def test_eks_auto_repair_is_not_visible() -> None:
    agent = (workload(AGENT, "agent"),)
    found = judge_controllers("cordon", sets=agent)
    expect(found, "SKIP", "acts on what there/agent reports", "nodeRepairConfig")
    assert judge_controllers("observe", sets=agent).verdict == "PASS"

"""Nodes of an existing cluster before an update: GPUs reach containers, and one controller acts on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuform.clouds.existing.preflight import nodes as existing_nodes
from gpuform.clouds.existing.preflight.cluster import LiveCluster
from gpuform.kubernetes.kinds import CLUSTER_POLICY, DAEMON_SET, DEPLOYMENT, NODE
from gpuform.stack.preflight.check import Result
from infra.model.environment import Environment
from tests.clouds.existing.test_preflight import daemons, env

pytestmark = pytest.mark.unit

CDI, REQUEST = "container runtimes", existing_nodes.ISOLATION
BY_CTK = "nvidia-ctk config --in-place --set accept-nvidia-visible-devices-envvar-when-unprivileged=false"
GUARD = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
HOST: dict[str, Any] = {"toolkit": "host"}
Json = dict[str, Any]


def node(runtime: str, name: str = "n", pool: str = "b") -> Json:
    about = {"name": name, "labels": {"a": pool, "kubernetes.io/os": "linux"}}
    return {"metadata": about, "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}}


def policy(**toolkit: Any) -> Json:
    return {"metadata": {"name": "cluster-policy"}, "spec": {"toolkit": toolkit}}


def judge(
    env: Environment, nodes: list[Json] | None = None, *policies: Json, sets: Sequence[Json] = ()
) -> dict[str, Result]:
    objects = {NODE: nodes or [], CLUSTER_POLICY: policies, DAEMON_SET: sets}
    cluster = LiveCluster(env, None, objects.__getitem__)
    return {check.subject: check.judge(cluster) for check in existing_nodes.checks(env, "kubectl")}


@pytest.mark.parametrize(
    ("nodes", "operator", "verdict", "fact"),
    [
        ([], {}, "PASS", "nodes with GPUs: 0"),
        ([node("containerd://1.7.24")], {}, "PASS", "nodes with GPUs: 1, each with CDI"),
        ([node("containerd://2.1.0"), node("cri-o://1.30.1")], HOST, "PASS", "nodes with GPUs: 2"),
        ([node("containerd://1.7.24")], HOST, "SKIP", "whether CDI is enabled: n (containerd://1.7.24)"),
        ([node("docker://24.0.1")], {}, "SKIP", "whether CDI is enabled: n (docker://24.0.1)"),
        ([node("containerd://1.6.20"), node("cri-o://1.22.0", "m")], HOST, "FAIL",
         "without CDI, so containers get no GPU: n (containerd://1.6.20), m (cri-o://1.22.0)"),
        ([node("containerd://1.6.20", pool="other")], {}, "PASS", "nodes with GPUs: 0"),
    ],
)  # fmt: skip
def test_runtimes_without_cdi(nodes: list[Json], operator: Json, verdict: str, fact: str) -> None:
    found = judge(env(**operator), nodes)[CDI]
    assert found.verdict == verdict
    assert fact in found.fact
    assert bool(found.fix) == (verdict != "PASS")


def node_with_driver(name: str) -> Json:
    about = node("containerd://2.1.0", name)
    about["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"] = "pre-installed"
    return about


def operand(image: str, nodes: int = 1) -> Json:
    """A DaemonSet of NVIDIA's operator on this many nodes."""
    made = daemons(f"nvcr.io/nvidia/{image}", None, owned=True)
    return {**made, "status": {"desiredNumberScheduled": nodes}}


FREE = node("containerd://2.1.0", "free")
DRIVER, TOOLKIT = operand("driver:595.91.07"), operand("k8s/container-toolkit:v1.20.0")
DRIVER_HOST: Json = {"driver": "host"}


@pytest.mark.parametrize(
    ("operator", "nodes", "sets", "verdict", "fact"),
    [
        ({}, [], [], "PASS", "nothing contradicts driver: operator, toolkit: operator"),
        ({}, [FREE], [DRIVER, TOOLKIT], "PASS", "nothing contradicts"),
        ({}, [node_with_driver("a")], [], "FAIL", "operator, but it installs none on nodes that have one: a"),
        ({}, [node_with_driver("a"), FREE], [], "SKIP", "it installs none on nodes that have one: a"),
        (DRIVER_HOST, [node_with_driver("a")], [TOOLKIT], "PASS", "nothing contradicts driver: host"),
        (DRIVER_HOST, [FREE], [operand("driver:595.91.07", 0)], "PASS", "nothing contradicts driver: host"),
        (DRIVER_HOST, [FREE], [DRIVER], "FAIL",
         "driver is host, but the operator's there/daemons installs it, and would be removed"),
        (HOST, [FREE], [DRIVER, TOOLKIT], "FAIL", "toolkit is host, but the operator's there/daemons"),
        (HOST, [FREE], [daemons("example.org/container-toolkit:1", None)], "PASS", "nothing contradicts"),
    ],
)  # fmt: skip
def test_who_owns_the_driver_by_the_file_and_by_the_nodes(
    operator: Json, nodes: list[Json], sets: list[Json], verdict: str, fact: str
) -> None:
    found = judge(env(**operator), nodes, sets=sets)[existing_nodes.OWNERSHIP]
    assert found.verdict == verdict
    assert fact in found.fact
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
def test_what_does_not_concern_the_stack_is_not_checked(operator: Json, subject: str) -> None:
    assert subject not in judge(env(**operator), [node("containerd://1.6.20"), node_with_driver("a")])
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
def test_whether_a_container_without_a_request_sees_gpus(
    operator: Json, policies: list[Json], verdict: str, fact: str, fix: str
) -> None:
    found = judge(env(**operator), [], *policies)[REQUEST]
    assert found.verdict == verdict
    assert fact in found.fact
    assert fix in found.fix


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
    own: Json = {"monitoring": {}, "health": {"mode": mode}} if mode else {}
    declared = env(own=own)
    parts = LiveCluster(declared, None, {DEPLOYMENT: deployments, DAEMON_SET: sets}.__getitem__)
    (check,) = existing_nodes.controllers(declared, "kubectl")
    found: Result = check.judge(parts)
    return found


ACTING = {
    "NVSentinel": workload(f"{SENTINEL}fault-quarantine:v1.3.0"),
    "draino": workload("planetlabs/draino:e0d5277"),
    "NodeHealthCheck": workload("quay.io/medik8s/node-healthcheck-operator:v0.9.0"),
    "Karpenter's node repair": workload(KARPENTER, gates="ReservedCapacity=true,NodeRepair=true"),
}


@pytest.mark.parametrize("mode", ["cordon", "ticket"])
@pytest.mark.parametrize("other", ACTING)
def test_a_second_remediator_is_refused(mode: str, other: str) -> None:
    found = judge_controllers(mode, ACTING[other])
    assert found.verdict == "FAIL"
    assert found.fact == f"{other} (there/one) and the health loop (mode {mode}) would act on the same nodes"
    assert found.fix == "use health.mode: observe, or uninstall the other one first"


@pytest.mark.parametrize("mode", ["observe", None])
@pytest.mark.parametrize("other", ACTING)
def test_one_that_is_alone_is_named(mode: str | None, other: str) -> None:
    assert judge_controllers(mode, ACTING[other]) == Result("PASS", f"only {other} (there/one) acts on nodes")


def test_two_of_others_are_named() -> None:
    found = judge_controllers(None, ACTING["draino"], ACTING["NVSentinel"])
    assert found.verdict == "SKIP"
    assert found.fact == "draino (there/one) and NVSentinel (there/one) act on the same nodes"


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
def test_only_what_acts_is_refused_beside_the_loop(verdict: str, image: str) -> None:
    item = workload(image, gates="ReservedCapacity=true,NodeRepair=false")
    assert (
        judge_controllers("cordon", item).verdict
        == judge_controllers("cordon", sets=(item,)).verdict
        == verdict
    )


def test_whether_eks_acts_by_its_agent_is_not_visible() -> None:
    found = judge_controllers("cordon", sets=(workload(AGENT, "agent"),))
    assert found.verdict == "SKIP"
    assert "acts on what there/agent reports" in found.fact
    assert "nodeRepairConfig" in found.fix
    assert judge_controllers("observe", sets=(workload(AGENT),)).verdict == "PASS"

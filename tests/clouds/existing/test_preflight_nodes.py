"""Nodes of an existing cluster before an update: GPUs reach containers, and one controller acts on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuform.clouds.existing.preflight import nodes as existing_nodes
from gpuform.clouds.existing.preflight.cluster import DAEMON_SETS, POLICIES, Parts
from gpuform.clouds.existing.preflight.nodes import DEPLOYMENTS
from gpuform.stack.preflight.check import Judged
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


def judged(
    found: Environment, nodes: list[Json] | None = None, *policies: Json, sets: Sequence[Json] = ()
) -> dict[str, Judged]:
    parts = Parts(found, None, {"nodes": nodes or [], POLICIES: policies, DAEMON_SETS: sets}.__getitem__)
    return {check.subject: check.judge(parts) for check in existing_nodes.checks(found, "kubectl")}


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
    found = judged(env(**operator), nodes)[CDI]
    assert found.verdict == verdict
    assert fact in found.fact
    assert bool(found.fix) == (verdict != "PASS")


def pre_installed(name: str) -> Json:
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
        ({}, [pre_installed("a")], [], "FAIL", "operator, but it installs none on nodes that have one: a"),
        ({}, [pre_installed("a"), FREE], [], "SKIP", "it installs none on nodes that have one: a"),
        (DRIVER_HOST, [pre_installed("a")], [TOOLKIT], "PASS", "nothing contradicts driver: host"),
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
    found = judged(env(**operator), nodes, sets=sets)[existing_nodes.OWNERS]
    assert found.verdict == verdict
    assert fact in found.fact
    assert bool(found.fix) == (verdict != "PASS")


@pytest.mark.parametrize("mode", ["existing", "device_plugin"])
def test_without_an_operator_of_ours_its_owners_are_not_compared(mode: str) -> None:
    assert existing_nodes.OWNERS not in judged(env(mode=mode), [pre_installed("a")])


@pytest.mark.parametrize("operator", [{"cdi": False}, {"mode": "existing"}])
def test_without_our_cdi_every_runtime_will_do(operator: Json) -> None:
    assert CDI not in judged(env(**operator), [node("containerd://1.6.20")])


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
    found = judged(env(**operator), [], *policies)[REQUEST]
    assert found.verdict == verdict
    assert fact in found.fact
    assert fix in found.fix


def test_a_toolkit_of_ours_and_nodes_without_gpus_are_not_checked() -> None:
    assert REQUEST not in judged(env())
    assert judged(env(pool={"machine": "m6i.xlarge"})) == {}


SENTINEL = "ghcr.io/nvidia/nvsentinel/"
AGENT = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/eks-node-monitoring-agent:v1.6.1-eksbuild.1"
REPORTER = "registry.k8s.io/node-problem-detector/node-problem-detector:v0.8.20"
KARPENTER = "public.ecr.aws/karpenter/controller:1.14.1@sha256:0a"


def running(image: str, name: str = "one", gates: str = "") -> Json:
    container: Json = {"name": "c", "image": image}
    if gates:
        container["env"] = [{"name": "FEATURE_GATES", "value": gates}]
    pod = {"spec": {"containers": [{"name": "proxy", "image": "proxy"}, container]}}
    return {"metadata": {"namespace": "there", "name": name}, "spec": {"template": pod}}


def acting(mode: str | None, *deployments: Json, sets: tuple[Json, ...] = ()) -> Judged:
    own: Json = {"monitoring": {}, "health": {"mode": mode}} if mode else {}
    declared = env(own=own)
    parts = Parts(declared, None, {DEPLOYMENTS: deployments, DAEMON_SETS: sets}.__getitem__)
    (check,) = existing_nodes.controllers(declared, "kubectl")
    found: Judged = check.judge(parts)
    return found


ACTING = {
    "NVSentinel": running(f"{SENTINEL}fault-quarantine:v1.3.0"),
    "draino": running("planetlabs/draino:e0d5277"),
    "NodeHealthCheck": running("quay.io/medik8s/node-healthcheck-operator:v0.9.0"),
    "Karpenter's node repair": running(KARPENTER, gates="ReservedCapacity=true,NodeRepair=true"),
}


@pytest.mark.parametrize("mode", ["cordon", "ticket", "replace"])
@pytest.mark.parametrize("other", ACTING)
def test_a_second_remediator_is_refused(mode: str, other: str) -> None:
    found = acting(mode, ACTING[other])
    assert found.verdict == "FAIL"
    assert found.fact == f"{other} (there/one) and the health loop (mode {mode}) would act on the same nodes"
    assert found.fix == "use health.mode: observe, or uninstall the other one first"


@pytest.mark.parametrize("mode", ["observe", None])
@pytest.mark.parametrize("other", ACTING)
def test_one_that_is_alone_is_named(mode: str | None, other: str) -> None:
    assert acting(mode, ACTING[other]) == Judged("PASS", f"only {other} (there/one) acts on nodes")


@pytest.mark.parametrize("module", ["fault-remediation", "node-drainer", "node-drainer-module"])
def test_every_acting_part_of_nvsentinel_is_known(module: str) -> None:
    assert acting("cordon", running(f"{SENTINEL}{module}:v1.3.0")).verdict == "FAIL"


def test_two_of_others_are_named() -> None:
    found = acting(None, ACTING["draino"], ACTING["NVSentinel"])
    assert found.verdict == "SKIP"
    assert found.fact == "draino (there/one) and NVSentinel (there/one) act on the same nodes"


@pytest.mark.parametrize(
    "image", [REPORTER, f"{SENTINEL}syslog-health-monitor:v1.3.0", f"{SENTINEL}labeler:v1"]
)
def test_what_only_reports_may_run_beside_the_loop(image: str) -> None:
    assert acting("cordon", sets=(running(image),)).verdict == "PASS"


def test_karpenter_without_the_gate_repairs_nothing() -> None:
    found = acting("cordon", running(KARPENTER, gates="ReservedCapacity=true,NodeRepair=false"))
    assert found.verdict == "PASS"


def test_whether_eks_acts_by_its_agent_is_not_visible() -> None:
    found = acting("cordon", sets=(running(AGENT, "agent"),))
    assert found.verdict == "SKIP"
    assert "acts on what there/agent reports" in found.fact
    assert "nodeRepairConfig" in found.fix
    assert acting("observe", sets=(running(AGENT),)).verdict == "PASS"

"""Nodes of an existing cluster before an update: requested GPUs reach containers, and only those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpuform.clouds.existing.preflight import nodes as existing_nodes
from gpuform.clouds.existing.preflight.cluster import DAEMON_SETS, POLICIES, Parts
from gpuform.stack.preflight.check import Judged
from infra.config import parse
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
    return {
        **daemons(f"nvcr.io/nvidia/{image}", None, owned=True),
        "status": {"desiredNumberScheduled": nodes},
    }


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
        (
            {"mode": "device_plugin"},
            [],
            "SKIP",
            "any container that sets NVIDIA_VISIBLE_DEVICES=all sees all GPUs",
            BY_CTK,
        ),
        ({**HOST, "cdi": False}, [], "SKIP", "with cdi: false it cannot be", "use gpu_operator.cdi: true"),
        ({"mode": "existing"}, [], "SKIP", "does not configure", BY_CTK),
        ({"mode": "existing"}, [policy(enabled=False)], "SKIP", "does not configure", BY_CTK),
        (
            {"mode": "existing"},
            [policy()],
            "SKIP",
            "cluster-policy does not restrict it",
            f"set {GUARD}=false in",
        ),
        (
            {"mode": "existing"},
            [policy(env=[{"name": GUARD, "value": "true"}])],
            "SKIP",
            "does not restrict it",
            "",
        ),
        ({"mode": "existing"}, [policy(env=[{"name": GUARD, "value": "false"}])], "PASS", f"{GUARD} is", ""),
    ],
)
def test_whether_a_container_without_a_request_sees_gpus(
    operator: Json, policies: list[Json], verdict: str, fact: str, fix: str
) -> None:
    found = judged(env(**operator), [], *policies)[REQUEST]
    assert found.verdict == verdict
    assert fact in found.fact
    assert fix in found.fix


def test_a_toolkit_of_ours_and_nodes_without_gpus_are_not_checked() -> None:
    assert REQUEST not in judged(env())
    pool = {"name": "cpu", "machine": "m6i.xlarge", "selector": {"a": "b"}}
    cluster = {"kind": "existing", "kubeconfig": "/nowhere/kubeconfig"}
    assert judged(parse({"name": "e", "cluster": cluster, "pools": [pool]})) == {}

"""Nodes of an existing cluster before an update: requested GPUs reach containers, and only those."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.preflight import existing_nodes
from gpuform.preflight.check import Judged
from gpuform.preflight.existing import POLICIES, Parts
from infra.config import parse
from infra.model.environment import Environment
from tests.preflight.test_existing import env

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


def judged(found: Environment, nodes: list[Json] | None = None, *policies: Json) -> dict[str, Judged]:
    parts = Parts(found, None, {"nodes": nodes or [], POLICIES: policies}.__getitem__)
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

"""InfiniBand and RoCE: NVIDIA's network operator, its policy, and pods that lock memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.model.environment import Environment
from infra.plan import gitops, gpu_operator, queues, rdma, workloads
from infra.plan.images import list_artifacts
from infra.plan.nodes import rdma_annotations
from infra.plan.parts import parts
from tests.build.environments import on, pod_spec

pytestmark = pytest.mark.unit

NAMESPACE = {"name": "hpc", "pod_security": "privileged"}
WORK = {"name": "train", "kind": "job", "namespace": "hpc", "pool": "p0", "image": "a:1", "rdma": 1}
PLAIN: dict[str, Any] = {"machine": "p5.48xlarge", "selector": {"a": "d"}}
SHARED: dict[str, Any] = {"machine": "p5.48xlarge", "selector": {"a": "b"}, "rdma": {}}


def stack(*pools: dict[str, Any], **more: Any) -> Environment:
    return on("existing", *(pools or (SHARED,)), **more)


def policy(env: Environment) -> dict[str, Any]:
    found = rdma.policy(env)
    assert found is not None
    spec: dict[str, Any] = found["spec"]
    return spec


def config(env: Environment) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy(env)["rdmaSharedDevicePlugin"]["config"])["configList"]
    return found


def test_the_plugin_shares_the_adapters_of_the_pools_nodes() -> None:
    chosen = {"link_type": "infiniband", "interfaces": ["ib1", "ib0"], "count": 8, "resource": "rdma/b"}
    env = stack(SHARED, {**SHARED, "selector": {"a": "c"}, "rdma": chosen}, PLAIN)
    assert config(env) == [
        {"resourceName": "b", "rdmaHcaMax": 8, "selectors": {
            "vendors": ["15b3"], "linkTypes": ["infiniband"], "ifNames": ["ib0", "ib1"]}},
        {"resourceName": "rdma_shared_device_a", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"]}},
    ]  # fmt: skip
    (term,) = policy(env)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": "gpuform.io/pool", "operator": "In", "values": ["p0", "p1"]}]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in policy(env)[
        "tolerations"
    ]


def test_one_part_has_the_operator_and_its_policy_in_a_privileged_namespace() -> None:
    part = parts(stack())["network-operator"]
    assert (part.release.namespace, part.release.version) == ("nvidia-network-operator", "26.4.1")
    assert part.release.values["nfd"] == {"enabled": False}
    assert [item["kind"] for item in part.manifests] == ["NicClusterPolicy"]
    levels = {
        item["metadata"]["name"]: item["metadata"]["labels"]
        for item in parts(stack())["namespaces"].manifests
    }
    assert levels["nvidia-network-operator"]["pod-security.kubernetes.io/enforce"] == "privileged"
    names = [stage.name for stage in gitops.stages(stack())]
    assert (
        names.index("gpu-operator")
        < names.index("network-operator")
        < names.index("network-operator-objects")
    )


def test_its_images_are_listed_and_come_from_a_mirror() -> None:
    names = {
        item.name: item.pulled_as
        for item in list_artifacts(stack(registries={"nvcr.io": "mirror.example/nv"}))
    }
    plugin = "nvidia/mellanox/k8s-rdma-shared-dev-plugin:network-operator-v26.4.1"
    assert names[f"nvcr.io/{plugin}"] == f"mirror.example/nv/{plugin}"
    assert "nvcr.io/nvidia/cloud-native/network-operator:v26.4.1" in names


def test_an_operator_that_is_there_is_left_alone() -> None:
    existing = {**SHARED, "rdma": {"mode": "existing", "resource": "rdma/hca", "count": 8}}
    env = stack(existing, namespaces=[NAMESPACE], workloads=[WORK])
    assert "network-operator" not in parts(env)
    (made,) = workloads.manifests(env)
    assert pod_spec(made)["containers"][0]["resources"]["limits"]["rdma/hca"] == "1"
    assert json.loads(rdma_annotations(env.pools[0].rdma)["simulator.gpuform.io/rdma"])["plugin"] is False


@pytest.mark.parametrize("kind", ["job", "pod", "deployment"])
def test_a_pod_may_lock_memory(kind: str) -> None:
    (made,) = workloads.manifests(stack(namespaces=[NAMESPACE], workloads=[{**WORK, "kind": kind}]))
    spec = pod_spec(made)
    (container,) = spec["containers"]
    assert container["resources"]["requests"]["rdma/rdma_shared_device_a"] == "1"
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}
    assert spec["securityContext"] == {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}


def test_a_user_with_unlimited_memory_may_stay_restricted() -> None:
    own = {"name": "train", "securityContext": {"capabilities": {"drop": ["ALL"]}}}
    fragment = {"securityContext": {"runAsUser": 1000, "runAsNonRoot": True}, "containers": [own]}
    (made,) = workloads.manifests(stack(workloads=[{**WORK, "pod": fragment}]))
    assert pod_spec(made)["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("operator", "mode", "values"),
    [
        ({}, "shared", None),
        ({"kernel_modules": "open"}, "shared", None),
        ({"kernel_modules": "proprietary"}, "shared", {"enabled": True, "useHostMofed": True}),
        ({"kernel_modules": "proprietary"}, "existing", {"enabled": True, "useHostMofed": False}),
    ],
)
def test_peermem_is_loaded_for_modules_without_dma_buf(
    operator: dict[str, Any], mode: str, values: dict[str, Any] | None
) -> None:
    pool = {**SHARED, "rdma": {"mode": mode, "count": 8}}
    assert gpu_operator.values(stack(pool, gpu_operator=operator))["driver"].get("rdma") == values
    assert "rdma" not in gpu_operator.values(stack(PLAIN, gpu_operator=operator))["driver"]


def test_teams_have_no_quota_of_adapters() -> None:
    assert "rdma/" in queues.not_counted(stack())
    assert "rdma/" not in queues.not_counted(stack(PLAIN))

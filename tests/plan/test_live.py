"""Claims, quotas, placeholders and the packing scheduler on a real control plane.

tests/checks/test_api_server.py shows that the API server accepts every planned object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import parse
from infra.plan import quotas, scheduler, workloads
from tests import packing
from tests.conftest import Kubectl, Plane
from tests.plan.aws_environments import CLAIMED, TABLE, aws

pytestmark = pytest.mark.cluster

NODES = ("claimed-0", "claimed-1")
POOL = TABLE["claimed"].pools[0]
DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}
Manifest = dict[str, Any]


def node(name: str) -> Manifest:
    """A node of the pool as Karpenter makes it; kwok plays its kubelet."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"gpuform.io/pool": POOL.name, "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "48", "memory": "192Gi", "pods": "110"}},
    }


def resource_slice(name: str) -> Manifest:
    """What NVIDIA's driver publishes for a node, reduced to what the scheduler reads: four L4."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-gpu.nvidia.com"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{index}"} for index in range(POOL.gpu_count)],
        },
    }


@pytest.fixture(scope="module")
def claims(control_plane: Plane) -> Iterator[Kubectl]:
    made: list[Manifest] = [DEVICE_CLASS]
    for name in NODES:
        made += [node(name), resource_slice(name)]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=everything)
    for name in NODES:  # apply does not set the status
        status = json.dumps({"status": node(name)["status"]})
        control_plane.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
    yield control_plane.kubectl
    control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", input=everything)


def items(kubectl: Kubectl, kind: str) -> list[Manifest]:
    found: list[Manifest] = json.loads(kubectl("get", kind, "-n", "default", "-o", "json"))["items"]
    return found


def test_the_scheduler_gives_each_pod_gpus_of_its_own(claims: Kubectl) -> None:
    work = {"name": "train", "kind": "deployment", "replicas": 4, "pool": "p0", "count": 2, "image": "a:1"}
    objects = workloads.manifests(aws(CLAIMED, workloads=[work]))
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    arguments = ("apply", "--server-side", "--validate=strict", "-f", "-")
    claims(*arguments, input=manifest)
    claims("scale", "deployment/train", "--replicas=5")  # an environment may not declare what never fits
    condition = "--for=jsonpath={.status.readyReplicas}=4"
    claims("wait", "deployment/train", condition, "--timeout=60s")
    given = [
        (device["pool"], device["device"])
        for claim in items(claims, "resourceclaims")
        for device in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    ]
    assert len(given) == len(set(given)) == 8, "two nodes of four GPUs, two GPUs for each of four pods"
    phases = sorted(pod["status"]["phase"] for pod in items(claims, "pods"))
    assert phases == ["Pending", *["Running"] * 4], "the fifth waits for a GPU"
    changed = json.dumps(objects[0]).replace('"count": 2', '"count": 1')
    with pytest.raises(AssertionError) as fixed:
        claims(*arguments, input=changed)
    assert "field is immutable" in str(fixed.value)
    claims("delete", "--wait=true", "-f", "-", input=manifest)


ELASTIC = {"machine": "g6.12xlarge", "spare": 2}


def spaces(env: Any) -> list[Manifest]:
    return [
        namespace for namespace in quotas.namespaces(env) if namespace["metadata"]["name"] != "gpu-operator"
    ]


@pytest.fixture
def made(control_plane: Plane) -> Iterator[list[Manifest]]:
    found: list[Manifest] = []
    yield found
    packing.delete(control_plane, found)


def pod(name: str, resource: str, number: int) -> Manifest:
    limits = {"cpu": "1", "memory": "1Gi", resource: str(number)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"containers": [{"name": name, "image": "a:1", "resources": {"limits": limits}}]},
    }


@pytest.mark.nightly
def test_a_quota_cannot_be_walked_around(control_plane: Plane, made: list[Manifest]) -> None:
    pools = [
        {"name": "t4", "machine": "g2.5xlarge", "nodes": 1,
         "sharing": {"kind": "time_slicing", "replicas": 4}},
        {"name": "whole", "machine": "g4.p4.40g", "nodes": 1},
    ]  # fmt: skip
    given = [{"name": "team", "quota": {"t4": 2}}]
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": pools, "namespaces": given})
    made += [*spaces(env), *quotas.manifests(env)]
    packing.apply(control_plane, made)
    account = "--for=jsonpath={.metadata.name}=default"
    control_plane.kubectl("wait", "serviceaccount/default", "-n", "team", account, "--timeout=30s")
    used = "--for=jsonpath={.status.used.requests\\.nvidia\\.com/gpu\\.shared}=0"
    control_plane.kubectl("wait", "quota/gpuform-gpus", "-n", "team", used, "--timeout=30s")

    def create(manifest: Manifest) -> str:
        return control_plane.kubectl("create", "-f", "-", input=json.dumps(manifest))

    # Pod Security is not tested here.
    control_plane.kubectl("label", "ns", "team", "pod-security.kubernetes.io/enforce-", "--overwrite")
    create(pod("two", "nvidia.com/gpu.shared", 2))
    for name, resource in (("third", "nvidia.com/gpu.shared"), ("whole", "nvidia.com/gpu")):
        with pytest.raises(AssertionError, match="exceeded quota: gpuform-gpus") as refused:
            create(pod(name, resource, 1))
        assert f"requested: requests.{resource}=1" in str(refused.value)


@pytest.mark.nightly
@pytest.mark.parametrize("packer", [False, True])
def test_placeholders_give_way_at_once(control_plane: Plane, made: list[Manifest], packer: bool) -> None:
    packing.keeper(control_plane)
    work = {"name": "real", "namespace": "work", "kind": "deployment", "pool": "p0", "image": "a:1"}
    declared = aws(ELASTIC, workloads=[work]).resolved()
    env = parse({**declared, "scheduling": {"packer": packer}})
    with packing.nodes(control_plane, "p0", 2, {"nvidia.com/gpu": "4"}):
        try:
            made += [*spaces(env), *scheduler.manifests(env), *quotas.manifests(env)]
            # Two scheduler replicas would need their own nodes here; the keeper runs it.
            made[:] = [
                item
                for item in made
                if (item["kind"], item["metadata"].get("namespace")) != ("Deployment", "gpuform-packer")
            ]
            packing.apply(control_plane, made)
            assert set(packing.placed(control_plane, "gpuform-placeholder", 2).values()) == {1}
            packing.apply(control_plane, workloads.manifests(env))
            (node,) = packing.placed(control_plane, "work", 1)
            held = [pod["spec"].get("nodeName") for pod in packing.pods(control_plane, "gpuform-placeholder")]
            assert node not in held, "who held the node has gone"
            assert len(set(held) - {None}) == 1, "the other node is held still"
        finally:
            packing.delete(control_plane, workloads.manifests(env))
            packing.delete(control_plane, made)
            made.clear()


@pytest.mark.nightly
def test_claims_are_allocated_with_the_packers_own_rights(control_plane: Plane, made: list[Manifest]) -> None:
    packing.keeper(control_plane)
    work = {"name": "train", "namespace": "work", "kind": "deployment", "pool": "p0", "image": "a:1"}
    env = parse({**aws(CLAIMED, workloads=[work]).resolved(), "scheduling": {"packer": True}})
    with packing.nodes(control_plane, "p0", 2, {}):
        slices = [resource_slice(f"p0-{index}") for index in range(2)]
        made += [DEVICE_CLASS, *slices, *spaces(env)]
        made += [manifest for manifest in scheduler.manifests(env) if manifest["kind"] != "Deployment"]
        made += workloads.manifests(env)
        packing.apply(control_plane, made)
        packing.placed(control_plane, "work", 1)
        (claim,) = json.loads(control_plane.kubectl("get", "resourceclaims", "-n", "work", "-o", "json"))[
            "items"
        ]
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 1
        packing.delete(control_plane, made)
        made.clear()

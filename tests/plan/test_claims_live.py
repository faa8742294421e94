"""Claims on a real control plane: the API server accepts them, the scheduler allocates each device once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.plan import workloads
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
    control_plane.kubectl("delete", "-f", "-", input=everything)


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

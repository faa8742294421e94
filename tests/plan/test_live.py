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
from tests.build.aws_environments import CLAIMED, aws
from tests.conftest import Plane

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
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
            "devices": [{"name": f"gpu-{index}"} for index in range(4)],
        },
    }


CLAIMABLE = (DEVICE_CLASS, resource_slice("p0-0"), resource_slice("p0-1"))


@pytest.fixture
def made(control_plane: Plane) -> Iterator[list[Manifest]]:
    found: list[Manifest] = []
    yield found
    packing.delete(control_plane, found)


def devices(plane: Plane, namespace: str) -> list[tuple[str, str]]:
    """Node and GPU of every allocated claim."""
    claims = json.loads(plane.kubectl("get", "resourceclaims", "-n", namespace, "-o", "json"))["items"]
    return [
        (device["pool"], device["device"])
        for claim in claims
        for device in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    ]


def test_the_scheduler_gives_each_pod_gpus_of_its_own(control_plane: Plane, made: list[Manifest]) -> None:
    work = {"name": "train", "kind": "deployment", "replicas": 4, "pool": "p0", "count": 2, "image": "a:1"}
    objects = workloads.manifests(aws(CLAIMED, workloads=[work]))
    made += CLAIMABLE
    with packing.nodes(control_plane, "p0", 2, {}):
        packing.apply(control_plane, [*made, *objects])
        # An environment may not declare what never fits.
        control_plane.kubectl("scale", "deployment/train", "--replicas=5")
        condition = "--for=jsonpath={.status.readyReplicas}=4"
        control_plane.kubectl("wait", "deployment/train", condition, "--timeout=60s")
        given = devices(control_plane, "default")
        assert len(given) == len(set(given)) == 8, "two nodes of four GPUs, two GPUs for each of four pods"
        phases = sorted(pod["status"]["phase"] for pod in packing.pods(control_plane, "default"))
        assert phases == ["Pending", *["Running"] * 4], "the fifth waits for a GPU"
        changed = json.loads(json.dumps(objects[0]).replace('"count": 2', '"count": 1'))
        with pytest.raises(AssertionError, match="field is immutable"):
            packing.apply(control_plane, [changed])
        packing.delete(control_plane, objects)


ELASTIC = {"machine": "g6.12xlarge", "spare": 2}


def spaces(env: Any) -> list[Manifest]:
    return [
        namespace for namespace in quotas.namespaces(env) if namespace["metadata"]["name"] != "gpu-operator"
    ]


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
        made += [*CLAIMABLE, *spaces(env)]
        made += [manifest for manifest in scheduler.manifests(env) if manifest["kind"] != "Deployment"]
        made += workloads.manifests(env)
        packing.apply(control_plane, made)
        packing.placed(control_plane, "work", 1)
        assert len(devices(control_plane, "work")) == 1
        packing.delete(control_plane, made)
        made.clear()

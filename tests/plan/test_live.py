"""Claims, quotas, placeholders, the packing scheduler and Karpenter's CRDs on a real control plane.

tests/checks/test_api_server.py shows that the API server accepts every planned object.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from infra import versions
from infra.config import parse
from infra.model.environment import Environment
from infra.plan import karpenter, node_class, room, scheduler, workloads
from lab.offline.charts import Charts
from tests import packing
from tests.conftest import Kubectl, Plane
from tests.plan.aws_environments import CLAIMED, SLICED, TABLE, aws

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


ELASTIC = {"machine": "g6.12xlarge", "spare": 2}


def spaces(env: Any) -> list[Manifest]:
    return [one for one in room.namespaces(env) if one["metadata"]["name"] != "gpu-operator"]


@pytest.fixture
def made(control_plane: Plane) -> Iterator[list[Manifest]]:
    found: list[Manifest] = []
    yield found
    packing.delete(control_plane, found)


@pytest.mark.nightly
def test_every_object_is_taken_by_the_api_server(control_plane: Plane, made: list[Manifest]) -> None:
    env = parse(
        {
            **aws(CLAIMED, {**SLICED, "spare": 1}).resolved(),
            "scheduling": {"packer": True},
            "priorities": {"high": 100},
            "namespaces": [{"name": "team", "quota": {"p0": 1, "p1": 2}}],
        }
    )
    made += spaces(env)
    packing.apply(control_plane, made)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [
        *scheduler.manifests(env), *room.manifests(env)]})  # fmt: skip
    said = control_plane.kubectl(
        "apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-", input=text
    )
    assert said.count("serverside-applied") == len(scheduler.manifests(env)) + len(room.manifests(env))
    # The role that it is bound to is the cluster's own scheduler's, which may also read claims.
    role = json.loads(control_plane.kubectl("get", "clusterrole", "system:kube-scheduler", "-o", "json"))
    assert any("resourceclaims" in rule.get("resources", ()) for rule in role["rules"])


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
    made += [*spaces(env), *room.manifests(env)]
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
            made += [*spaces(env), *scheduler.manifests(env), *room.manifests(env)]
            # Two scheduler replicas would need their own nodes here; the keeper runs it.
            made[:] = [
                one
                for one in made
                if (one["kind"], one["metadata"].get("namespace")) != ("Deployment", "gpuform-packer")
            ]
            packing.apply(control_plane, made)
            assert set(packing.placed(control_plane, "gpuform-placeholder", 2).values()) == {1}
            packing.apply(control_plane, workloads.manifests(env))
            (node,) = packing.placed(control_plane, "work", 1)
            held = [one["spec"].get("nodeName") for one in packing.pods(control_plane, "gpuform-placeholder")]
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
        made += [one for one in scheduler.manifests(env) if one["kind"] != "Deployment"]
        made += workloads.manifests(env)
        packing.apply(control_plane, made)
        packing.placed(control_plane, "work", 1)
        (claim,) = json.loads(control_plane.kubectl("get", "resourceclaims", "-n", "work", "-o", "json"))[
            "items"
        ]
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 1
        packing.delete(control_plane, made)
        made.clear()


@pytest.fixture(scope="module")
def karpenter_crds(control_plane: Plane) -> Kubectl:
    """kubectl on a control plane with Karpenter's CRDs; they stay, since other files need them."""
    here = Paths.here()
    charts = Charts(here.root, here.cache, control_plane.paths.state / "charts")
    chart = charts.folder("karpenter-crd", versions.KARPENTER)
    helm = [str(control_plane.toolchain.path("helm")), "template", str(chart)]
    crds = subprocess.run(helm, check=True, capture_output=True, text=True).stdout
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=crds)
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", input=crds)
    return control_plane.kubectl


def planned(env: Environment) -> list[Manifest]:
    found: list[Manifest] = []
    for pool in env.pools:
        if pool.by_karpenter:
            found.append(node_class.ec2_node_class(env, pool, node_class.node_role(env), env.name))
        found += [*karpenter.node_pools(env, pool), *karpenter.node_overlays(env, pool)]
    return found


def submit(kubectl: Kubectl, *manifests: Manifest) -> str:
    items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    arguments = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    return kubectl(*arguments, input=json.dumps(items))


def test_a_static_pool_is_taken_and_stays_one(karpenter_crds: Kubectl) -> None:
    (static,) = (one for one in planned(TABLE["claimed"]) if "replicas" in one["spec"])
    for key, value, said in (
        ("weight", 10, "'weight' is not supported on static NodePools"),
        ("limits", {"nodes": "3", "cpu": "8"}, "only 'limits.nodes' is supported on static NodePools"),
        ("replicas", -1, "spec.replicas"),
    ):
        with pytest.raises(AssertionError) as refused:
            submit(karpenter_crds, {**static, "spec": {**static["spec"], key: value}})
        assert said in str(refused.value)
    karpenter_crds("apply", "--server-side", "-f", "-", input=json.dumps(static))
    elastic = {**static, "spec": {key: value for key, value in static["spec"].items() if key != "replicas"}}
    with pytest.raises(AssertionError) as kept:
        submit(karpenter_crds, elastic)
    assert "Cannot transition NodePool between static" in str(kept.value)
    karpenter_crds("delete", "nodepool", static["metadata"]["name"])


BAD: list[tuple[str, tuple[str, ...], Any, str]] = [
    ("NodePool", ("spec", "replicas"), 2, "'weight' is not supported on static NodePools"),
    ("NodePool", ("spec", "weight"), 101, "spec.weight"),
    ("NodePool", ("spec", "template", "spec", "expireAfter"), "2 hours", "expireAfter"),
    ("EC2NodeClass", ("spec", "amiFamily"), "Bottlerocket", "when using an AL2023 alias"),
    ("EC2NodeClass", ("spec", "tags"), {"karpenter.sh/nodepool": "x"}, "restricted tag"),
    ("EC2NodeClass", ("spec", "instanceProfile"), "x", "exactly one of ['role', 'instanceProfile']"),
    ("NodeOverlay", ("spec", "capacity"), {"cpu": "4"}, "invalid resource restricted"),
    ("NodeOverlay", ("spec", "price"), "cheap", "spec.price"),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), BAD)
def test_the_server_refuses_what_is_wrong(
    karpenter_crds: Kubectl, kind: str, path: tuple[str, ...], value: Any, said: str
) -> None:
    good = next(manifest for manifest in planned(TABLE["sliced"]) if manifest["kind"] == kind)
    bad = copy.deepcopy(good)
    place = bad
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    submit(karpenter_crds, good)
    with pytest.raises(AssertionError) as refused:
        submit(karpenter_crds, bad)
    assert said in str(refused.value)

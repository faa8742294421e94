"""Quotas, placeholders and the packing scheduler on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import parse
from infra.plan import room, scheduler, workloads
from tests import packing
from tests.conftest import Plane
from tests.plan.aws_environments import CLAIMED, SLICED, aws
from tests.plan.test_claims_live import DEVICE_CLASS, resource_slice

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

ELASTIC = {"machine": "g6.12xlarge", "spare": 2}
Manifest = dict[str, Any]


def spaces(env: Any) -> list[Manifest]:
    return [one for one in workloads.namespaces(env) if one["metadata"]["name"] != "gpu-operator"]


@pytest.fixture
def made(control_plane: Plane) -> Iterator[list[Manifest]]:
    found: list[Manifest] = []
    yield found
    packing.delete(control_plane, found)


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

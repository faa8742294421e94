"""Magnum's simulated nodes: how many, and their labels and taints."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model import labels
from infra.plan import played_groups

pytestmark = pytest.mark.unit

HEAT, CAPI = "magnum.openstack.org/nodegroup", "capi.stackhpc.com/node-group"
ELASTIC = {"min": 1, "max": {"nodes": 3}}


def openstack(*pools: dict[str, Any], work: int = 0, **more: Any) -> Any:
    cluster = {
        "kind": "openstack",
        "template": "kubernetes-1.30.2-2",
        "version": "1.30",
        "driver": "capi",
        "workers": {"nodes": 2, "flavor": "m2.medium"},
        **more,
    }
    runner = {"name": "w", "namespace": "lab", "kind": "deployment", "pool": "pool-0", "image": "x:1"}
    declared = [
        {"name": f"pool-{index}", "machine": "g2.5xlarge", **pool} for index, pool in enumerate(pools)
    ]
    workloads = [{**runner, "replicas": work}] if work else []
    return parse({"name": "research", "cluster": cluster, "pools": declared, "workloads": workloads})


def names(env: Any) -> list[str]:
    return [one["metadata"]["name"] for one in played_groups.manifests(env)]


@pytest.mark.parametrize(("work", "count"), [(0, 1), (1, 1), (2, 2), (9, 3)])
def test_a_group_grows_for_the_workloads_within_its_bounds(work: int, count: int) -> None:
    env = openstack({"elastic": ELASTIC}, {"nodes": 2}, work=work)
    workers, fixed = ["default-worker-0", "default-worker-1"], ["pool-1-0", "pool-1-1"]
    assert names(env) == [*workers, *(f"pool-0-{n}" for n in range(count)), *fixed]


@pytest.mark.parametrize(("driver", "key"), [("heat", HEAT), ("capi", CAPI)])
def test_nodes_join_with_their_groups_label_and_none_of_ours(driver: str, key: str) -> None:
    env = openstack({"nodes": 1}, driver=driver)
    *_, node = played_groups.manifests(env)
    has = node["metadata"]["labels"]
    assert has[key] == "pool-0"
    assert has[labels.INSTANCE_TYPE] == "g2.5xlarge"
    assert not [one for one in has if one.startswith("gpuform.io/")]
    assert "spec" not in node
    assert labels.GPU_READY not in node["metadata"]["annotations"]
    assert labels.SIM_HOST_DRIVER not in node["metadata"]["annotations"], "the operator brings it"
    *_, proven = played_groups.manifests(env, proven=True)
    assert labels.GPU_READY in proven["metadata"]["annotations"]


def test_default_workers_are_as_large_as_declared_or_said_to_be_unknown() -> None:
    unknown = openstack({"nodes": 1})
    assert played_groups.unknown(unknown) == "cores and memory of default-worker (m2.medium) are not declared"
    own = openstack({"nodes": 1}, flavors={"m2.medium": {"vcpu": 2, "memory_gib": 4}})
    assert played_groups.unknown(own) == ""
    first, *_ = played_groups.manifests(own)
    sizes = first["metadata"]["annotations"]
    assert (sizes[labels.SIM_CPU], sizes[labels.SIM_MEMORY]) == ("2", "4Gi")

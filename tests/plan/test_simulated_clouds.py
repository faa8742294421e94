"""Simulated nodes of AWS and Magnum: how many of each machine, and their initial labels and taints."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from infra.config import parse
from infra.model.base import labels
from infra.plan import nodes
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit

SHARED: dict[str, Any] = {
    "machine": "g4dn.xlarge",
    "sharing": {"kind": "time_slicing", "replicas": 3, "rename": True},
}


def work(pods: int, **more: Any) -> dict[str, Any]:
    return {"name": "work", "kind": "deployment", "replicas": pods, "pool": "p0", "image": "x:1", **more}


def bought_machines(*pools: dict[str, Any], workloads: list[dict[str, Any]]) -> dict[str, int]:
    made = nodes.aws_nodes(aws(*pools, workloads=workloads))
    found = [item["metadata"]["labels"] for item in made]
    return Counter(entry[labels.INSTANCE_TYPE] for entry in found if entry[labels.POOL] != "system")


@pytest.mark.parametrize(
    ("pool", "pods", "expected"),
    [
        ({**SHARED, "nodes": 2}, 0, {"g4dn.xlarge": 2}),  # a fixed count stays
        (SHARED, 0, {}),  # no pods request GPUs
        (SHARED, 3, {"g4dn.xlarge": 1}),
        (SHARED, 4, {"g4dn.xlarge": 2}),
        ({**SHARED, "elastic": {"max": {"nvidia.com/gpu.shared": 3}}}, 4, {"g4dn.xlarge": 1}),
        ({"gpu": {"models": ["L40S"], "count": 1}}, 2, {"g6e.xlarge": 2}),
        ({"gpu": {"models": ["L40S"], "count": [1, 4]}}, 2, {"g6e.xlarge": 2}),
    ],
)
def test_as_many_as_the_workloads_need(pool: dict[str, Any], pods: int, expected: dict[str, int]) -> None:
    assert bought_machines(pool, workloads=[work(pods)] if pods else []) == expected


def test_who_says_what_a_gpu_must_have_gets_the_first_pool_that_has_it() -> None:
    needs = {"name": "w", "kind": "pod", "image": "x:1", "gpu": {"memory_gib": 40}}
    large = {"gpu": {"models": ["L40S"], "count": 1}, "taints": [{"key": "large"}]}
    pools = ({"gpu": {"models": ["T4"], "count": 1}}, large)
    assert bought_machines(*pools, workloads=[needs]) == {"g6e.xlarge": 1}


def test_a_larger_machine_where_the_smallest_does_not_take_a_pod() -> None:
    pool = {"gpu": {"models": ["L40S"], "count": 1}}
    assert bought_machines(pool, workloads=[work(1, memory="64Gi", cpu=6)]) == {"g6e.4xlarge": 1}


def test_a_node_with_more_gpus_where_a_pod_wants_them() -> None:
    pool = {"gpu": {"models": ["L40S"], "count": [1, 4]}}
    assert bought_machines(pool, workloads=[work(3, count=2)]) == {"g6e.12xlarge": 2}
    env = aws(pool, workloads=[work(3, count=2)])
    for node in nodes.aws_nodes(env, waiting=True)[2:]:
        assert node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-count"] == "4"
        assert node["metadata"]["annotations"]["gpuform.io/offers-per-gpu"] == '{"nvidia.com/gpu": 1}'
        assert "gpuform.io/offers" not in node["metadata"]["annotations"]


def test_the_system_has_its_own_and_an_elastic_node_is_let_in_unless_it_waits() -> None:
    env = aws(SHARED, workloads=[work(1)])
    for waiting in (False, True):
        *system, gpu = nodes.aws_nodes(env, waiting)
        assert [item["metadata"]["name"] for item in system] == ["system-0", "system-1"]
        assert system[0]["spec"]["taints"][0]["key"] == labels.CRITICAL_ADDONS
        keys = {taint["key"] for taint in gpu["spec"]["taints"]}
        assert (labels.GPU_NOT_READY in keys) == waiting
        assert (labels.OFFERS in gpu["metadata"]["annotations"]) == waiting
        assert labels.SIM_HOST_DRIVER in gpu["metadata"]["annotations"]


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
    return [node["metadata"]["name"] for node in nodes.magnum_nodes(env)]


@pytest.mark.parametrize(("work", "count"), [(0, 1), (1, 1), (2, 2), (9, 3)])
def test_a_group_grows_for_the_workloads_within_its_bounds(work: int, count: int) -> None:
    env = openstack({"elastic": ELASTIC}, {"nodes": 2}, work=work)
    workers, fixed = ["default-worker-0", "default-worker-1"], ["pool-1-0", "pool-1-1"]
    assert names(env) == [*workers, *(f"pool-0-{n}" for n in range(count)), *fixed]


@pytest.mark.parametrize(("driver", "key"), [("heat", HEAT), ("capi", CAPI)])
def test_nodes_join_with_their_groups_label_and_none_of_ours(driver: str, key: str) -> None:
    env = openstack({"nodes": 1}, driver=driver)
    *_, node = nodes.magnum_nodes(env)
    has = node["metadata"]["labels"]
    assert has[key] == "pool-0"
    assert has[labels.INSTANCE_TYPE] == "g2.5xlarge"
    assert not [item for item in has if item.startswith("gpuform.io/")]
    assert "spec" not in node
    assert labels.GPU_READY not in node["metadata"]["annotations"]
    assert labels.SIM_HOST_DRIVER not in node["metadata"]["annotations"], "the operator brings it"
    *_, proven = nodes.magnum_nodes(env, proven=True)
    assert labels.GPU_READY in proven["metadata"]["annotations"]


def test_default_workers_are_as_large_as_declared_or_said_to_be_unknown() -> None:
    unknown = openstack({"nodes": 1})
    text = "cores and memory of default-worker (m2.medium) are not declared"
    assert nodes.unknown_workers(unknown) == text
    own = openstack({"nodes": 1}, flavors={"m2.medium": {"vcpu": 2, "memory_gib": 4}})
    assert nodes.unknown_workers(own) == ""
    first, *_ = nodes.magnum_nodes(own)
    sizes = first["metadata"]["annotations"]
    assert (sizes[labels.SIM_CPU], sizes[labels.SIM_MEMORY]) == ("2", "4Gi")

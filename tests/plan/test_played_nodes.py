"""Simulated nodes of AWS environments: how many of each machine, and their initial labels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from infra.model import labels
from infra.plan import played_nodes
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit

SHARED: dict[str, Any] = {
    "machine": "g4dn.xlarge",
    "sharing": {"kind": "time_slicing", "replicas": 3, "rename": True},
}


def work(pods: int, **more: Any) -> dict[str, Any]:
    return {"name": "work", "kind": "deployment", "replicas": pods, "pool": "p0", "image": "x:1", **more}


def bought(*pools: dict[str, Any], workloads: list[dict[str, Any]]) -> dict[str, int]:
    made = played_nodes.manifests(aws(*pools, workloads=workloads))
    found = [one["metadata"]["labels"] for one in made]
    return Counter(one[labels.INSTANCE_TYPE] for one in found if one[labels.POOL] != "system")


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
    assert bought(pool, workloads=[work(pods)] if pods else []) == expected


def test_who_says_what_a_gpu_must_have_gets_the_first_pool_that_has_it() -> None:
    needs = {"name": "w", "kind": "pod", "image": "x:1", "gpu": {"memory_gib": 40}}
    large = {"gpu": {"models": ["L40S"], "count": 1}, "taints": [{"key": "large"}]}
    pools = ({"gpu": {"models": ["T4"], "count": 1}}, large)
    assert bought(*pools, workloads=[needs]) == {"g6e.xlarge": 1}


def test_a_larger_machine_where_the_smallest_does_not_take_a_pod() -> None:
    pool = {"gpu": {"models": ["L40S"], "count": 1}}
    assert bought(pool, workloads=[work(1, memory="64Gi", cpu=6)]) == {"g6e.4xlarge": 1}


def test_a_node_with_more_gpus_where_a_pod_wants_them() -> None:
    pool = {"gpu": {"models": ["L40S"], "count": [1, 4]}}
    assert bought(pool, workloads=[work(3, count=2)]) == {"g6e.12xlarge": 2}
    env = aws(pool, workloads=[work(3, count=2)])
    for node in played_nodes.manifests(env, waiting=True)[2:]:
        assert node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-count"] == "4"
        assert node["metadata"]["annotations"]["gpuform.io/offers-per-gpu"] == '{"nvidia.com/gpu": 1}'
        assert "gpuform.io/offers" not in node["metadata"]["annotations"]


def test_the_system_has_its_own_and_an_elastic_node_is_let_in_unless_it_waits() -> None:
    env = aws(SHARED, workloads=[work(1)])
    for waiting in (False, True):
        *system, gpu = played_nodes.manifests(env, waiting)
        assert [one["metadata"]["name"] for one in system] == ["system-0", "system-1"]
        assert system[0]["spec"]["taints"][0]["key"] == labels.CRITICAL_ADDONS
        keys = {taint["key"] for taint in gpu["spec"]["taints"]}
        assert (labels.GPU_NOT_READY in keys) == waiting
        assert (labels.OFFERS in gpu["metadata"]["annotations"]) == waiting
        assert labels.SIM_HOST_DRIVER in gpu["metadata"]["annotations"]

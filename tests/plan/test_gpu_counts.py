"""Pools with different GPU counts on their nodes: what is bought, offered, promised and reported."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.plan import eks, karpenter, readiness_gate, render
from infra.plan.rules import facts
from tests.plan.aws_environments import COUNTS, TABLE, aws
from tests.plan.environments import on

pytestmark = pytest.mark.unit

GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"
SHARED = "nvidia.com/gpu.shared"


def amounts(env: Environment) -> dict[str, dict[str, str]]:
    found = {}
    for manifest in karpenter.node_overlays(env, env.pools[0]):
        needs = {item["key"]: item["values"] for item in manifest["spec"]["requirements"]}
        assert needs["karpenter.sh/nodepool"] == sorted(env.pools[0].node_pools)
        (count,) = needs[GPU_COUNT]
        assert manifest["metadata"]["name"] == f"p0-{count}-gpu"
        found[count] = manifest["spec"]["capacity"]
    return found


def test_every_count_has_an_overlay_that_says_what_such_a_node_offers() -> None:
    assert amounts(TABLE["several counts"]) == {
        "1": {"nvidia.com/gpu": "0", SHARED: "3"},
        "4": {"nvidia.com/gpu": "0", SHARED: "12"},
    }
    assert amounts(TABLE["several counts, mig"]) == {
        "1": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"},
        "8": {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"},
    }
    kept = aws({**COUNTS, "sharing": {"kind": "time_slicing", "replicas": 3, "rename": False}})
    assert amounts(kept) == {"1": {"nvidia.com/gpu": "3"}, "4": {"nvidia.com/gpu": "12"}}
    assert eks.karpenter_values(TABLE["several counts"])["settings"]["featureGates"]["nodeOverlay"]


def test_whole_gpus_need_no_overlay_whatever_their_number() -> None:
    env = TABLE["several counts, whole"]
    assert amounts(env) == {}
    assert not eks.karpenter_values(env)["settings"]["featureGates"]["nodeOverlay"]


def test_every_way_of_buying_takes_every_count() -> None:
    env = TABLE["several counts"]
    manifests = karpenter.node_pools(env, env.pools[0])
    assert [manifest["metadata"]["name"] for manifest in manifests] == ["p0-on-demand", "p0-spot"]
    for manifest in manifests:
        needs = manifest["spec"]["template"]["spec"]["requirements"]
        assert {"key": GPU_COUNT, "operator": "In", "values": ["1", "4"]} in needs
    assert {machine.gpus for machine in env.pools[0].machines} == {1, 4}, "and no metal, which has eight"


def test_types_that_were_not_meant_are_left_out_for_every_count() -> None:
    """Name and memory of two models match a third one as well; its types have one or eight GPUs."""
    pool = {"gpu": {"models": ["H100-SXM", "A100-SXM4-40GB"], "count": [1, 8]}}
    env = aws(pool)
    (manifest,) = karpenter.node_pools(env, env.pools[0])
    (left_out,) = [
        item["values"]
        for item in manifest["spec"]["template"]["spec"]["requirements"]
        if item["operator"] == "NotIn"
    ]
    assert left_out == ["p4de.24xlarge"]


def test_a_count_more_changes_no_node_that_is_there() -> None:
    """Karpenter's drift hash is of the template without its requirements."""
    fewer, more = (aws({"gpu": {"models": ["A10G"], "count": count}}) for count in ([1, 4], [1, 4, 8]))
    templates = [karpenter.node_pools(env, env.pools[0])[0]["spec"]["template"] for env in (fewer, more)]
    for template in templates:
        del template["spec"]["requirements"]
    assert templates[0] == templates[1]


POOLS: list[dict[str, Any]] = [
    {"gpu": {"models": ["T4"]}, "sharing": COUNTS["sharing"]},
    {"gpu": {"models": ["L4", "A10G"]}, "capacity": ["on_demand", "spot"]},
    {"gpu": {"models": ["T4"]}, "elastic": None, "nodes": 2},
]


@pytest.mark.parametrize("pool", POOLS)
def test_a_list_of_one_is_that_number(pool: dict[str, Any]) -> None:
    number, listed = (
        render.render(aws({**pool, "gpu": {**pool["gpu"], "count": count}})) for count in (1, [1])
    )
    for files in (number, listed):
        del files["environment.yaml"]
    assert number == listed
    assert "offers-per-gpu" not in number.get("karpenter.yaml", "")


def test_a_workload_may_ask_for_what_the_largest_node_offers() -> None:
    work = {"name": "w", "kind": "pod", "pool": "p0", "image": "x:1"}
    kept = {**COUNTS, "sharing": {**COUNTS["sharing"], "fail_requests_greater_than_one": False}}
    env = aws(kept, workloads=[{**work, "count": 12}])
    assert env.workloads[0].device_count == 12, "thirteen are in the table of bad input"
    assert allocatable.max_resources(env.pools[0]) == {SHARED: 12}


def test_what_nodes_offer_is_said_by_their_number_of_gpus() -> None:
    (pool,) = yaml.safe_load_all(render.render(TABLE["several counts"])["pools.yaml"])
    assert pool["offered"] == {"1": {SHARED: 3}, "4": {SHARED: 12}}
    (single,) = yaml.safe_load_all(render.render(TABLE["sliced"])["pools.yaml"])
    assert single["offered"] == {SHARED: 3}


@pytest.mark.parametrize(
    ("expected", "gpus"), [({GPU_COUNT: "4"}, 4), ({GPU_COUNT: "1"}, 1), ({}, None), ({GPU_COUNT: "x"}, None)]
)
def test_a_live_node_says_how_many_it_has_where_the_pool_does_not(
    expected: dict[str, str], gpus: int | None
) -> None:
    several, one = TABLE["several counts"].pools[0], TABLE["sliced"].pools[0]
    assert allocatable.node_gpus(several, expected) == gpus
    assert allocatable.node_gpus(one, expected) == 1


def test_an_existing_pool_says_by_discoverys_label_what_each_node_offers() -> None:
    gpu = {"models": ["H100"], "count": [4, 8]}
    env = on("existing", {"gpu": gpu}, gpu_operator={"driver": "host"}, monitoring={})
    offers = {"4": {"nvidia.com/gpu": 4}, "8": {"nvidia.com/gpu": 8}}
    assert readiness_gate.pools(env)["p0"]["offers"] == offers
    texts = "".join(map(str, facts.rules(env)))
    assert 'label_nvidia_com_gpu_count="8"' in texts
    assert "instance_gpu_count" not in texts

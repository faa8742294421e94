"""What the fast way makes of a stack: copies of its NodePools, and our machines as instance types."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpuform.paths import Paths
from gpuform.rehearse.cloud.joining import hardware
from gpuform.rehearse.fast import copies
from gpuform.rehearse.instance_types import instance_types
from infra.config import load, parse
from infra.model.environment import Environment
from infra.model.machines import MACHINES
from infra.model.pool import Pool
from infra.model.prices import USD_PER_HOUR, PriceList
from infra.plan.karpenter import node_pool, node_pools
from infra.plan.overlays import node_overlays
from tests.plan.aws_environments import SLICED, TABLE, aws

pytestmark = pytest.mark.unit
HERE = Paths.here().root
ENVIRONMENTS = {
    "aws-dev": load(HERE / "Pulumi.aws-dev.yaml"),
    "aws-prod": load(HERE / "Pulumi.aws-prod.yaml"),
    **TABLE,
}
Json = dict[str, Any]


def takes(requirements: list[Json], labels: dict[str, str]) -> bool:
    """Whether a node with these labels is what the requirements ask for."""
    return all((labels.get(one["key"]) in one["values"]) is (one["operator"] == "In") for one in requirements)


def offers(type_: Json) -> list[dict[str, str]]:
    """The labels of a node of an instance type, an offering each."""
    own = {"kubernetes.io/arch": type_["architecture"], "kubernetes.io/os": type_["operatingSystems"][0]}
    own["node.kubernetes.io/instance-type"] = type_["name"]
    return [
        {**own, **{one["key"]: one["values"][0] for one in offering["Requirements"]}}
        for offering in type_["offerings"]
    ]


def pools() -> list[Any]:
    return [
        pytest.param(env, pool, id=f"{name} {pool.name}")
        for name, env in ENVIRONMENTS.items()
        for pool in env.pools
        if pool.by_karpenter
    ]


@pytest.mark.parametrize(("env", "pool"), pools())
def test_a_pool_finds_exactly_its_machines(env: Environment, pool: Pool) -> None:
    types = instance_types(env, PriceList())
    for name, capacity in pool.node_pools.items():
        wanted = node_pool(env, pool, name, capacity)["spec"]["template"]["spec"]["requirements"]
        found = {one["name"] for one in types if any(takes(wanted, labels) for labels in offers(one))}
        assert found == {machine.name for machine in pool.machines if machine.name in USD_PER_HOUR}
        assert found


@pytest.mark.parametrize("env", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_a_copy_differs_in_its_name_and_its_node_class_alone(env: Environment) -> None:
    made = {(one["kind"], one["metadata"]["name"]): one for one in copies(env)}
    for pool in env.pools:
        for declared in node_pools(env, pool) if pool.by_karpenter else ():
            back = copy.deepcopy(made["NodePool", declared["metadata"]["name"] + "-fast"])
            spec = back["spec"]["template"]["spec"]
            assert ("KWOKNodeClass", spec["nodeClassRef"]["name"]) in made
            spec["nodeClassRef"] = {**spec["nodeClassRef"], "group": "karpenter.k8s.aws"}
            spec["nodeClassRef"] |= {"kind": "EC2NodeClass", "name": pool.name}
            back["metadata"]["name"] = declared["metadata"]["name"]
            assert back == declared


@pytest.mark.parametrize("env", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_a_copied_overlay_is_of_the_copied_pools_and_of_the_same_machines(env: Environment) -> None:
    made = {one["metadata"]["name"]: one for one in copies(env) if one["kind"] == "NodeOverlay"}
    declared = [(pool, one) for pool in env.pools for one in node_overlays(env, pool)]
    assert len(made) == len(declared)
    for pool, one in declared:
        found = made[one["metadata"]["name"] + "-fast"]["spec"]
        wanted = {need["key"]: need["values"] for need in one["spec"]["requirements"]}
        assert found["capacity"] == one["spec"]["capacity"]
        got = {need["key"]: need["values"] for need in found["requirements"]}
        assert got["karpenter.sh/nodepool"] == [f"{name}-fast" for name in wanted["karpenter.sh/nodepool"]]
        assert {str(MACHINES[name].gpus) for name in got["node.kubernetes.io/instance-type"]} == set(
            wanted["karpenter.k8s.aws/instance-gpu-count"]
        )
        assert set(got["node.kubernetes.io/instance-type"]) <= {machine.name for machine in pool.machines}


def test_prices_are_those_of_the_list_and_of_the_environment() -> None:
    cost = {"prices": {"g4dn.xlarge": 3.0}, "spot_factor": 0.5}
    changed = parse({**aws(SLICED).resolved(), "cost": cost})
    found = {
        (one["name"], labels["karpenter.sh/capacity-type"]): offering["Price"]
        for one in instance_types(changed, PriceList())
        for labels, offering in zip(offers(one), one["offerings"], strict=True)
    }
    assert found["g4dn.xlarge", "on-demand"] == found["g4dn.xlarge", "reserved"] == 3.0
    assert found["g4dn.xlarge", "spot"] == 1.5
    assert found["g5.xlarge", "on-demand"] == 1.006
    assert {name for name, _ in found} == set(USD_PER_HOUR)


def test_a_type_has_the_pods_of_the_pool_that_says_most() -> None:
    one = {"machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 16}}}
    other = {**one, "taints": [{"key": "team", "value": "a"}], "aws": {"max_pods": 110}}
    env = aws(one, other)
    found = {one["name"]: one["resources"] for one in instance_types(env, PriceList())}
    assert (found["g4dn.xlarge"]["pods"], found["g4dn.2xlarge"]["pods"]) == ("110", "29")
    assert (found["g4dn.xlarge"]["cpu"], found["g4dn.xlarge"]["nvidia.com/gpu"]) == ("4", "1")


def test_the_simulator_is_told_the_gpus_and_nothing_of_the_size() -> None:
    assert hardware(MACHINES["p4d.24xlarge"]) == {
        "simulator.gpuform.io/gpu": "10de:20b0",
        "simulator.gpuform.io/gpu-count": "8",
        "simulator.gpuform.io/host-driver": "595.91.07",
    }
    assert hardware(MACHINES["m6i.xlarge"]) == {}

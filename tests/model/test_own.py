"""GPU models and machines that an environment declares: what is derived from them, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.config import parse
from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.gpu import drivers
from infra.model.gpu.models import GPUS
from infra.model.pool import allocatable
from infra.plan import cost, gpu_operator, karpenter, nodes, sharing
from lab.simulator.hardware import parse_model
from tests.config.edits import changed, message
from tests.config.tables import GOOD
from tests.plan.aws_environments import aws as _aws
from tests.plan.environments import on

pytestmark = pytest.mark.unit

ENV = GOOD["own"]
A100_64 = ENV["gpus"]["A100-64GB"]
X9 = {"gpu": "X1", "count": 4, "vcpu": 96, "memory_gib": 512, "pods": 737, "efa": 2, "usd_per_hour": 30.0}
X1 = {**{key: value for key, value in A100_64.items() if key != "mig"}, "product": "NVIDIA X1"}


def on_aws(pool: dict[str, Any]) -> Environment:
    base = _aws({"machine": "g5.xlarge", "nodes": 1}).resolved()
    own = {"gpus": {"X1": X1}, "machines": {"x9.24xlarge": X9}}
    return parse({**base, **own, "pools": [{"name": "p0", **pool}]})


def test_a_declared_model_is_planned_like_a_built_in_one() -> None:
    before = dict(GPUS)
    env = parse(ENV)
    (pool,) = env.pools
    assert pool.gpus[0].product == "NVIDIA-A100-SXM-64GB"
    assert allocatable.resources(pool) == {"nvidia.com/mig-3g.32gb": 8}
    entries = sharing.mig_parted_config_map(env)
    assert entries is not None
    assert "3g.32gb" in str(entries["data"])
    assert gpu_operator.values(env)["migManager"]["enabled"]
    assert drivers.recommended_modules(pool.gpus[0], "580.95.05") == "open"
    assert parse(env.resolved()) == env
    assert dict(GPUS) == before


def test_the_simulator_reads_it_from_the_node() -> None:
    env = parse(ENV)
    node = nodes.simulated_nodes(env, env.pools[0])[0]
    gpu = parse_model(node["metadata"]["annotations"][labels.SIM_GPU_MODEL])
    assert (gpu.product, gpu.memory_mib, gpu.compute, gpu.family, gpu.nvlink > 0) == (
        *("NVIDIA A100-SXM-64GB", 65536, (8, 0), "ampere", True),
    )
    assert gpu.mig is not None
    assert gpu.mig.profiles["1g.8gb+me"].media
    assert (gpu.mig.profiles["3g.32gb"].starts, gpu.mig.profiles["3g.32gb"].memory_mib) == ((0, 4), 32000)


def test_nodes_with_built_in_models_do_not_change() -> None:
    env = on("embedded", {"machine": "g2.5xlarge"})
    assert labels.SIM_GPU_MODEL not in nodes.simulated_nodes(env, env.pools[0])[0]["metadata"]["annotations"]
    assert not {"gpus", "machines"} & env.resolved().keys()


def test_its_price_is_in_the_bill_and_the_environments_overrides_it() -> None:
    (line,) = cost.bill(parse(ENV), PriceList()).lines
    assert line.high == pytest.approx(11.0)
    (line,) = cost.bill(parse({**ENV, "cost": {"prices": {"leonardo": 1.0}}}), PriceList()).lines
    assert line.high == pytest.approx(2.0)


def test_own_hosts_and_flavors_of_openstack_have_it() -> None:
    pool = {"name": "p", "hosts": ["a"], "gpu": {"models": ["A100-64GB"], "count": 4}}
    own = {"A100-64GB": A100_64}
    assert on("hosts", pool, gpus=own).pools[0].gpus[0].device == "NVIDIA A100-SXM-64GB"
    flavor = {"gpu": "A100-64GB", "count": 4, "vcpu": 32, "memory_gib": 512}
    env = on("openstack", {"machine": "big"}, cluster={"flavors": {"big": flavor}}, gpus=own)
    assert env.pools[0].gpus[0].memory_mib == 65536


@pytest.mark.parametrize(
    "pool", [{"machine": "x9.24xlarge"}, {"gpu": {"models": ["X1"], "count": 4}}], ids=["named", "chosen"]
)
def test_on_aws_karpenter_selects_it_by_its_type(pool: dict[str, Any]) -> None:
    env = on_aws({**pool, "elastic": {"max": {"cpu": 960}}, "zones": ["us-west-2a"], "aws": {"efa": True}})
    (made,) = karpenter.node_pools(env, env.pools[0])
    asked = made["spec"]["template"]["spec"]["requirements"]
    assert {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["x9.24xlarge"]} in asked
    assert len(karpenter.network_interfaces(env.pools[0])) == 1 + 2
    machine = env.pools[0].machines[0]
    assert cost.machine_price(env, env.pools[0], machine, PriceList()) == 30.0


def test_on_aws_the_number_of_pods_is_required() -> None:
    env = copy.deepcopy(on_aws({"machine": "x9.24xlarge", "nodes": 1}).resolved())
    del env["machines"]["x9.24xlarge"]["pods"]
    with pytest.raises(InputError) as refused:
        parse(env)
    assert refused.value.path == "machines.x9.24xlarge.pods"


def test_two_declared_models_have_labels_and_device_filters_of_their_own() -> None:
    machine = {"gpu": "twin", "vcpu": 8, "memory_gib": 64}
    pool = {"name": "q", "machine": "other", "nodes": 1}
    twin = changed(
        ENV,
        {"at": "gpus/twin", "put": A100_64},
        {"at": "machines/other", "put": machine},
        {"at": "pools/1", "put": pool},
    )
    assert message(twin).startswith("gpus.twin.product: gpus.A100-64GB has it too")
    twin["gpus"]["twin"]["product"] = "NVIDIA twin"
    assert message(twin).startswith("gpus.twin.pci: gpus.A100-64GB has it too")
    twin["gpus"]["twin"]["pci"] = "10de:20b4"
    assert parse(twin)

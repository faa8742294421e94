"""GPUs and machines: the catalogue against its source tables, declared ones, and a GPU that is chosen."""

from __future__ import annotations

import copy
import csv
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from gpuform.reports.catalogue import entries
from infra.config import parse
from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.base.prices import PriceList
from infra.model.gpu import drivers
from infra.model.gpu.choice import GpuChoice
from infra.model.gpu.machines import BUILT_IN, MACHINES, UNSUPPORTED, smallest
from infra.model.gpu.models import ALIASES, GPUS, Drivers, Gpu
from infra.model.pool import allocatable
from infra.model.pool.sharing import Mps, check_sharing
from infra.plan import cost, gpu_operator, karpenter, nodes, sharing
from lab.simulator.hardware import parse_model
from tests.build.aws_environments import aws
from tests.build.edits import changed, message
from tests.build.environments import on
from tests.config.tables import GOOD, own_on_aws
from tests.external import reference

pytestmark = pytest.mark.unit


# PCI device id: labels of discovery, typed here independently.
SEEN = {
    "10de:1db1": ("Tesla-V100-SXM2-16GB", "volta", "7.0"),
    "10de:1db4": ("Tesla-V100-PCIE-16GB", "volta", "7.0"),
    "10de:1db5": ("Tesla-V100-SXM2-32GB", "volta", "7.0"),
    "10de:1df6": ("Tesla-V100S-PCIE-32GB", "volta", "7.0"),
    "10de:1eb8": ("Tesla-T4", "turing", "7.5"),
    "10de:1eb4": ("NVIDIA-T4G", "turing", "7.5"),
    "10de:2236": ("NVIDIA-A10", "ampere", "8.6"),
    "10de:2235": ("NVIDIA-A40", "ampere", "8.6"),
    "10de:2237": ("NVIDIA-A10G", "ampere", "8.6"),
    "10de:20b7": ("NVIDIA-A30", "ampere", "8.0"),
    "10de:20b0": ("NVIDIA-A100-SXM4-40GB", "ampere", "8.0"),
    "10de:20f1": ("NVIDIA-A100-PCIE-40GB", "ampere", "8.0"),
    "10de:20b2": ("NVIDIA-A100-SXM4-80GB", "ampere", "8.0"),
    "10de:20b5": ("NVIDIA-A100-80GB-PCIe", "ampere", "8.0"),
    "10de:27b8": ("NVIDIA-L4", "ada-lovelace", "8.9"),
    "10de:26b5": ("NVIDIA-L40", "ada-lovelace", "8.9"),
    "10de:26b9": ("NVIDIA-L40S", "ada-lovelace", "8.9"),
    "10de:2330": ("NVIDIA-H100-80GB-HBM3", "hopper", "9.0"),
    "10de:2331": ("NVIDIA-H100-PCIe", "hopper", "9.0"),
    "10de:2321": ("NVIDIA-H100-NVL", "hopper", "9.0"),
    "10de:2342": ("NVIDIA-GH200-480GB", "hopper", "9.0"),
    "10de:2335": ("NVIDIA-H200", "hopper", "9.0"),
    "10de:2901": ("NVIDIA-B200", "blackwell", "10.0"),
    "10de:2941": ("NVIDIA-GB200", "blackwell", "10.0"),
    "10de:3182": ("NVIDIA-B300-SXM6-AC", "blackwell", "10.3"),
    "10de:2c3a": ("NVIDIA-RTX-PRO-4500-Blackwell-Server-Edition", "blackwell", "12.0"),
    "10de:2bb5": ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "blackwell", "12.0"),
}


def test_every_gpu_says_what_discovery_says() -> None:
    found = {g.pci: (g.product, g.family, "{}.{}".format(*g.compute)) for g in GPUS.values()}
    assert found == SEEN


def test_aliases_name_gpus_and_hide_none() -> None:
    for alias, name in ALIASES.items():
        assert name in GPUS
        assert alias not in GPUS
        found = BUILT_IN.gpu(alias)
        assert found is not None
        assert found.name == name
    assert BUILT_IN.gpu("a100") is None


def test_only_volta_ends_with_a_driver_branch() -> None:
    ended = {gpu.name for gpu in GPUS.values() if gpu.driver.last}
    assert ended == {gpu.name for gpu in GPUS.values() if gpu.family == "volta"}


# As in the talk's table: GPU, number, RAM in GB, vCPUs.
CERN = {
    "g1.xlarge": ("volta", 1, 16, 4),
    "g1.4xlarge": ("volta", 4, 64, 16),
    "g2.xlarge": ("turing", 1, 16, 4),
    "g2.5xlarge": ("turing", 1, 168, 28),
    "g3.xlarge": ("volta", 1, 16, 4),
    "g3.4xlarge": ("volta", 4, 64, 16),
    "g4.p1.40g": ("ampere", 1, 120, 16),
    "g4.p2.40g": ("ampere", 2, 240, 32),
    "g4.p4.40g": ("ampere", 4, 480, 64),
}


def test_cern_flavors() -> None:
    found = {
        m.name: (m.model.family, m.gpus, m.memory, m.vcpu)
        for m in MACHINES.values()
        if m.seller == "openstack" and m.model
    }
    assert found == CERN


def test_every_ec2_gpu_type_is_in_the_table_or_left_out_with_a_reason() -> None:
    table = reference("ec2/gpu-instance-types.csv").open()
    rows = {row["instance_type"]: row for row in csv.DictReader(table)}
    known = {name for name, machine in MACHINES.items() if machine.seller == "ec2" and machine.gpu}
    assert known | set(UNSUPPORTED) == set(rows)
    assert not known & set(UNSUPPORTED)
    for name in known:
        machine, row = MACHINES[name], rows[name]
        assert machine.model is not None
        assert (machine.vcpu, machine.memory * 1024, machine.gpus) == (
            int(row["vcpu"]),
            int(row["memory_mib"]),
            int(row["gpu_count"]),
        )
        assert (machine.arch, machine.efa, machine.pods, machine.nvme) == (
            row["arch"],
            int(row["efa"] or 0),
            int(row["alloc_pods"]),
            int(row["local_nvme_gb"] or 0),
        )
        # EC2 lists the nominal memory, NVML what is left beside ECC and firmware.
        assert 0.9 < machine.model.memory_mib / int(row["gpu_memory_mib_each"]) < 1.01, name


def test_network_cards_with_efa_are_those_of_ec2() -> None:
    """moto has EC2's own answers."""
    for machine in MACHINES.values():
        cards = INSTANCE_TYPES[machine.name]["NetworkInfo"]["NetworkCards"] if machine.efa else []
        able = [card["NetworkCardIndex"] for card in cards if "efa" in card["InterfaceTypes"]]
        assert able == list(range(machine.efa_from, machine.efa_from + machine.efa)), machine.name


def test_the_first_network_card_of_a_p6_b300_has_no_efa() -> None:
    pool = aws({"machine": "p6-b300.48xlarge", "zones": ["us-west-2a"], "aws": {"efa": True}}).pools[0]
    primary, *adapters = karpenter.network_interfaces(pool)
    assert primary == {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    assert [(adapter["networkCardIndex"], adapter["deviceIndex"]) for adapter in adapters] == [
        (card, 0) for card in range(1, 17)
    ]


@pytest.mark.parametrize(
    ("models", "count", "name"),
    [
        (("T4",), 1, "g2.xlarge"),
        (("L4", "A10G"), 1, "g5.xlarge"),
        (("A100-PCIE-40GB",), 4, "g4.p4.40g"),
        (("A100-SXM4-40GB",), 8, "p4d.24xlarge"),
    ],
)
def test_the_smallest_machine_with_these_gpus(models: tuple[str, ...], count: int, name: str) -> None:
    found = smallest(models, count)
    assert found is not None
    assert found.name == name


# NVIDIA's data sheets: boards of SXM modules have NVLink; PCIe cards have at most a bridge connector.
LINKED = {
    *("V100-SXM2-16GB", "V100-SXM2-32GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM", "H200", "B200"),
    *("B300", "GB200"),
}


HOPPER = {"H100-PCIe", "H100-NVL", "GH200"}


def models(**asked: Any) -> set[str]:
    return set(GpuChoice(count=1, **asked).models)


def test_the_linked_ones_are_the_modules() -> None:
    assert models(nvlink=True) == LINKED
    assert models(nvlink=False) == set(GPUS) - LINKED
    assert {entry["name"] for entry in entries() if entry["nvlink"]} == LINKED


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"memory_gib": 40, "nvlink": True, "compute": "8.0"}, LINKED - {"V100-SXM2-16GB", "V100-SXM2-32GB"}),
        ({"memory_gib": 140}, {"H200", "B200", "GB200", "B300"}),
        ({"memory_gib": 180}, {"GB200", "B300"}),
        # As a version: as text 12.0 would be less than 9.0.
        ({"compute": 9.0, "nvlink": False, "memory_gib": 79}, HOPPER | {"RTX-PRO-6000"}),
        ({"compute": 10}, {"B200", "GB200", "B300", "RTX-PRO-4500", "RTX-PRO-6000"}),
        (
            {"memory_gib": 24, "compute": "8.6", "nvlink": False},
            HOPPER | {"A40", "L40", "L40S", "RTX-PRO-4500", "RTX-PRO-6000"},
        ),
    ],
)
def test_every_model_that_has_it_will_do(asked: dict[str, Any], found: set[str]) -> None:
    assert models(**asked) == found


def test_a_choice_by_attributes_buys_what_the_same_models_by_name_do() -> None:
    named = {"models": ["A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM", "H200", "B200", "B300"], "count": 8}
    asked = {"memory_gib": 40, "nvlink": True, "compute": "8.0", "count": 8}
    one, two = aws({"gpu": named}), aws({"gpu": asked})
    assert karpenter.node_pools(one, one.pools[0]) == karpenter.node_pools(two, two.pools[0])
    assert two.resolved()["pools"][0]["gpu"] == asked


def test_mps_needs_the_limits_of_volta() -> None:
    old = Gpu("M60", "Tesla M60", 7680, (5, 2), "maxwell", "10de:13f2", Drivers("450"))
    with pytest.raises(InputError) as caught:
        check_sharing([GPUS["T4"], old], Mps(kind="mps", replicas=2), "single")
    assert str(caught.value) == (
        "sharing.kind: M60 has compute capability 5.2, and MPS needs 7.0 to limit each client's memory; "
        "use time_slicing"
    )
    check_sharing([GPUS["T4"]], Mps(kind="mps", replicas=2), "single")


def test_attributes_select_only_what_the_default_image_supports() -> None:
    """EC2 sells T4G with arm64 only, and older images have no driver for RTX-PRO-4500."""
    env = aws({"gpu": {"memory_gib": 15, "compute": "7.5", "count": 1}})
    assert "T4" in env.pools[0].gpu.models
    assert not {"T4G", "RTX-PRO-4500"} & set(env.pools[0].gpu.models)
    with pytest.raises(InputError, match=r"pools\[0\].aws.image: al2023-nvidia is for amd64, and g5g"):
        aws({"gpu": {"models": ["T4", "T4G"], "count": 1}})


ENV = GOOD["own"]
A100_64 = ENV["gpus"]["A100-64GB"]


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
    env = own_on_aws(
        {**pool, "elastic": {"max": {"cpu": 960}}, "zones": ["us-west-2a"], "aws": {"efa": True}}
    )
    (made,) = karpenter.node_pools(env, env.pools[0])
    asked = made["spec"]["template"]["spec"]["requirements"]
    assert {"key": labels.INSTANCE_TYPE, "operator": "In", "values": ["x9.24xlarge"]} in asked
    assert len(karpenter.network_interfaces(env.pools[0])) == 1 + 2
    machine = env.pools[0].machines[0]
    assert cost.machine_price(env, env.pools[0], machine, PriceList()) == 30.0


def test_on_aws_the_number_of_pods_is_required() -> None:
    env = copy.deepcopy(own_on_aws({"machine": "x9.24xlarge", "nodes": 1}).resolved())
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

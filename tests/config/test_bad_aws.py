"""Bad input of an AWS environment: a table of errors and messages, and what cannot be declared."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan.render import render
from tests.config.edits import changed, message
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit

GOOD = yaml.safe_load((Path(__file__).parent / "good_aws.yaml").read_text())
ROWS = yaml.safe_load((Path(__file__).parent / "bad_aws.yaml").read_text())
change = partial(changed, GOOD)


def test_the_good_one_is_good() -> None:
    assert [pool.name for pool in parse(GOOD).pools] == ["burst", "fixed", "cpu"]


@pytest.mark.parametrize("row", ROWS, ids=[row["what"] for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(change(row, *row.get("and", ()))) == row["said"]


def test_an_openstack_flavor_is_no_ec2_type() -> None:
    assert message(change({"at": "pools/0/machine", "put": "g2.5xlarge"})) == (
        "pools[0].machine: g2.5xlarge is not an EC2 instance type; use g4dn.12xlarge, g4dn.16xlarge, "
        "g4dn.2xlarge, g4dn.4xlarge, g4dn.8xlarge, g4dn.metal, g4dn.xlarge"
    )
    said = message(change({"at": "pools/1/machine", "put": "g4.p1.40g"}))
    assert said.startswith("pools[1].machine: g4.p1.40g is not an EC2 instance type; use m5.xlarge, ")


def test_an_unknown_machine_lists_the_known_ones() -> None:
    said = message(change({"at": "pools/0/machine", "put": "g4dn.xlrge"}))
    assert said.startswith(
        "pools[0].machine: unknown machine 'g4dn.xlrge'; did you mean g4dn.xlarge? known: "
    )


def test_an_adapter_on_a_type_without_one_names_those_with_one() -> None:
    said = message(change({"at": "pools/0/aws", "put": {"efa": True}}))
    assert said == (
        "pools[0].aws.efa: g4dn.xlarge has no Elastic Fabric Adapter; "
        "leave it out, or use g4dn.12xlarge, g4dn.16xlarge, g4dn.8xlarge, g4dn.metal"
    )


@pytest.mark.parametrize("place", ["cluster/interruption_queue", "cluster/queue", "pools/0/queue"])
def test_spot_without_its_queue_cannot_be_said(place: str) -> None:
    """The queue always comes with Karpenter, and no key removes it."""
    assert ": unknown key; " in message(change({"at": place, "put": None}))
    env = parse(change({"at": "pools/0/capacity", "put": ["on_demand", "spot"]}))
    assert env.pools[0].capacity == ("on_demand", "spot")


def test_pods_of_two_elastic_pools_are_kept_apart_by_a_taint() -> None:
    second = {"name": "second", "machine": "g6.xlarge", "elastic": {"max": {"cpu": 8}}}
    second["sharing"] = {"kind": "time_slicing", "replicas": 2}
    assert message(change({"at": "pools/3", "put": second})) == (
        "pools[3].taints: a pod that requests nvidia.com/gpu.shared fits pool burst and pool second, "
        "so Karpenter may use either; give one of them a taint of its own"
    )
    second["taints"] = [{"key": "team", "value": "a"}]
    assert parse(change({"at": "pools/3", "put": second}))
    second["taints"] = [{"key": "team", "value": "a", "effect": "PreferNoSchedule"}]
    assert "fits pool burst and pool second" in message(change({"at": "pools/3", "put": second}))
    del second["taints"], second["sharing"]
    assert parse(change({"at": "pools/3", "put": second})), "another resource is another pod"


EMBEDDED = {"kind": "embedded"}
EXISTING = {"kind": "existing", "kubeconfig": "/k"}
ONLY_AWS: dict[str, Any] = {
    "elastic": {"max": {"cpu": 40}},
    "capacity": ["spot"],
    "class": "training",
    "zones": ["eu-west-1a"],
    "aws": {"max_pods": 110},
}


@pytest.mark.parametrize("key", ONLY_AWS)
@pytest.mark.parametrize("cluster", [EMBEDDED, EXISTING], ids=["embedded", "existing"])
def test_what_would_change_nothing_is_refused(cluster: dict[str, Any], key: str) -> None:
    where: dict[str, Any] = {"nodes": 1} if cluster is EMBEDDED else {"selector": {"a": "b"}}
    pool = {"name": "p", "machine": "g4dn.xlarge", **where}
    mapping = {"name": "test", "cluster": cluster, "pools": [pool]}
    assert parse(mapping)
    pool[key] = ONLY_AWS[key]
    assert message(mapping) == f"pools[0].{key}: {REASONS[cluster['kind']][key]}"


_CLASS = (
    "the class decides when Karpenter may remove nodes, and this cluster has no Karpenter; "
    "leave it out, or use cluster kind aws"
)
_NOT_AWS = "the cluster is not on AWS; leave it out, or use cluster kind aws"
_THERE = "the nodes of an existing cluster already exist; leave it out, or use cluster kind aws"
REASONS = {
    "embedded": {
        "elastic": (
            "an embedded cluster simulates a fixed number of nodes; give nodes: N, or use cluster kind aws"
        ),
        "capacity": "simulated nodes have no capacity type; leave it out, or use cluster kind aws",
        "class": _CLASS,
        "zones": _NOT_AWS,
        "aws": _NOT_AWS,
    },
    "existing": {
        "elastic": _THERE,
        "capacity": _THERE,
        "class": _CLASS,
        "zones": _NOT_AWS,
        "aws": _NOT_AWS,
    },
}


HOSTS = {"kind": "hosts", "toolkit": {"version": "1.19.1"},
         "driver": {"source": "distribution", "version": "580.95.05"}}  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "where"),
    [(EMBEDDED, {"nodes": 1}), (EXISTING, {"selector": {"a": "b"}}), (HOSTS, {"hosts": ["gpu-1"]})],
    ids=["embedded", "existing", "hosts"],
)
def test_equal_nodes_have_one_number_of_gpus(cluster: dict[str, Any], where: dict[str, Any]) -> None:
    pool = {"name": "p", "gpu": {"models": ["T4"], "count": [1, 4]}, **where}
    mapping: dict[str, Any] = {"name": "test", "cluster": cluster, "pools": [pool]}
    assert message(mapping) == (
        "pools[0].gpu.count: it may only differ in an elastic pool, and own, simulated and existing "
        "nodes are not elastic; give one number, or use cluster kind aws"
    )
    for one in (1, [1]):
        pool["gpu"] = {"models": ["T4"], "count": one}
        assert parse(mapping).pools[0].gpu_counts == (1,)


def test_a_machine_with_arm64_needs_an_image_for_it() -> None:
    said = message(change({"at": "pools/0/machine", "put": "g5g.xlarge"}))
    assert said == (
        "pools[0].aws.image: al2023-nvidia is for amd64, and g5g.xlarge is arm64; "
        "use al2023-nvidia-arm64 or bottlerocket-nvidia-arm64"
    )


def test_a_gpu_that_older_images_lack_a_driver_for_wants_a_newer_image() -> None:
    edit = {"at": "pools/0", "put": {"name": "burst", "machine": "g7.2xlarge", "nodes": 1}}
    assert message(change(edit)) == (
        "cluster.images.al2023-nvidia: al2023@v20260801 has no driver for RTX-PRO-4500 (pool burst); "
        "use al2023@v20260917 or newer"
    )
    assert parse(change(edit, {"at": "cluster/images/al2023-nvidia", "put": "al2023@v20260917"}))


def test_network_cards_that_start_with_efa_at_different_places_share_no_template() -> None:
    gpu = {"models": ["B200", "B300"], "count": 8}
    pool = {"name": "burst", "gpu": gpu, "elastic": {"max": {"cpu": 192}}, "aws": {"efa": True}}
    assert "the first network card of p6-b300.48xlarge supports no EFA" in message(
        change({"at": "pools/0", "put": pool})
    )


NEVER = "are never bought; use"


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        # karpenter-provider-aws#6328: a node and a half, of which the half is never bought
        ({"machine": "p5.48xlarge", "elastic": {"max": {"nvidia.com/gpu": 12}}},
         f"nvidia.com/gpu: 1 node has 8, and the other 4 {NEVER} 8 or 16"),
        ({"machine": "p5.48xlarge", "elastic": {"max": {"nvidia.com/gpu": 16}}}, ""),
        ({"machine": "p5.48xlarge", "elastic": {"max": {"cpu": 1000}}},
         f"cpu: 5 nodes have 960, and the other 40 {NEVER} 960 or 1152"),
        # The limit that decides is filled; the other one is only a bound.
        ({"machine": "p5.48xlarge", "elastic": {"max": {"cpu": 1000, "nvidia.com/gpu": 32}}}, ""),
        ({"machine": "m6i.xlarge", "elastic": {"max": {"memory_gib": 40, "cpu": 400}}},
         f"memory_gib: 2 nodes have 32, and the other 8 {NEVER} 32 or 48"),
        ({"machine": "g4dn.xlarge", "capacity": ["on_demand", "spot"],
          "sharing": {"kind": "time_slicing", "replicas": 3},
          "elastic": {"max": {"nvidia.com/gpu.shared": 8}}},
         f"nvidia.com/gpu.shared: 2 nodes of each capacity type have 6, and the other 2 {NEVER} 6 or 9"),
        # The smaller machine fills what the larger one leaves.
        ({"gpu": {"models": ["T4"], "count": [1, 4]}, "elastic": {"max": {"nvidia.com/gpu": 6}}}, ""),
        ({"gpu": {"models": ["T4"], "count": [4, 8]}, "elastic": {"max": {"nvidia.com/gpu": 10}}},
         f"nvidia.com/gpu: 2 nodes have 8, and the other 2 {NEVER} 8 or 12"),
    ],
)  # fmt: skip
def test_a_limit_that_whole_nodes_do_not_fill_gets_a_warning(pool: dict[str, Any], said: str) -> None:
    expected = (f"pools[0].elastic.max.{said}",) if said else ()
    assert aws(pool).warnings == expected
    for amount in said.partition("use ")[2].split(" or ") if said else ():
        key = said.partition(":")[0]
        assert aws({**pool, "elastic": {"max": {key: int(amount)}}}).warnings == (), "the remedy holds"


@pytest.mark.parametrize(
    ("pool", "warned"),
    [
        ({"zones": ["us-west-2a"]}, True),
        ({"zones": ["us-west-2a"], "elastic": {"max": {"cpu": 96}}}, True),
        ({"zones": ["us-west-2a", "us-west-2b"]}, False),
        ({}, False),
        # Only one zone can be used by these.
        ({"zones": ["us-west-2a"], "aws": {"efa": True}}, False),
        ({"zones": ["us-west-2a"], "aws": {"placement_group": True}}, False),
        ({"zones": ["us-west-2a"], "capacity": ["reserved"],
          "aws": {"reservations": ["cr-0123456789abcdef0"]}}, False),
    ],
)  # fmt: skip
def test_a_pool_in_one_zone_alone_gets_a_warning(pool: dict[str, Any], warned: bool) -> None:
    """karpenter-provider-aws#8885: without another zone, a pool waits as long as EC2 has no machine there."""
    size = {} if "elastic" in pool else {"nodes": 1}
    fact = "EC2 may have no p4d.24xlarge in us-west-2a, and its nodes may start nowhere else"
    said = f"pools[0].zones: {fact}; leave it out, or name another zone of the network"
    assert aws({"machine": "p4d.24xlarge", **size, **pool}).warnings == ((said,) if warned else ())


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (
            "x9.large",
            {"pods": 5},
            "pools[2].machine: kubelet and DaemonSets leave no room for pods on x9.large",
        ),
        ("x9.large", {"memory_gib": 1}, "pools[2].machine: kubelet and DaemonSets leave no room for pods"),
        ("x9.large", {"nvme_gb": 10**6 + 1}, "machines.x9.large.nvme_gb: 1000001 is too large"),
        ("box", {}, "machines.box: 'box' is not the name of an EC2 instance type"),
        ("X9.large", {}, "machines.X9.large: 'X9.large' is not the name of an EC2 instance type"),
    ],
)
def test_an_instance_type_of_one_s_own_has_room_and_a_name_of_ec2(
    name: str, given: dict[str, Any], said: str
) -> None:
    machine = {"vcpu": 8, "memory_gib": 32, "pods": 58, **given}
    pool = {"name": "cpu", "machine": name, "nodes": 1}
    edits = ({"at": "machines", "put": {name: machine}}, {"at": "pools/2", "put": pool})
    assert message(changed(GOOD, *edits)).startswith(said)


def test_the_names_of_prepulled_images_fit_into_user_data() -> None:
    names = [f"registry.example/team/image-{number}:1" for number in range(300)]
    assert message(changed(GOOD, {"at": "pools/0/aws", "put": {"prepull": names}})) == (
        "pools[0].aws.prepull: the names have 10090 bytes, and a node's user data has room for 8192; "
        "name fewer, those that every pod waits for"
    )


def of_many(nodes: int, **more: Any) -> dict[str, Any]:
    subnets = {zone: f"subnet-0123456789abcdef{zone[-1]}" for zone in ("eu-west-1a", "eu-west-1b")}
    return changed(
        {**GOOD, "workloads": []},
        {"at": "cluster/network", "put": {"vpc": "vpc-0123456789abcdef0", "subnets": subnets}},
        {"at": "pools", "put": [{"name": "many", "machine": "m6i.xlarge", "nodes": nodes, **more}]},
        {"at": "cluster/images/al2023-nvidia", "remove": True},
    )


@pytest.mark.parametrize("nodes", [5000, 5001, 100_000])
def test_eks_has_as_many_nodes_as_its_ultra_scale_tier_in_bounded_time(nodes: int) -> None:
    began = time.process_time()
    env = parse(of_many(nodes))
    render(env)
    assert time.process_time() - began < 2
    said = f"pools: they may have {nodes} nodes, and EKS has more than 5000 in its ultra scale tier alone"
    assert env.warnings == ((f"{said}; agree on it with AWS before",) if nodes > 5000 else ())


def test_pools_together_have_no_more_nodes_than_eks() -> None:
    mapping = of_many(100_000)
    mapping["pools"].append({"name": "one", "machine": "m6i.xlarge", "nodes": 1})
    assert message(mapping) == (
        "pools: they have 100001 nodes, and a cluster of EKS has at most 100000; "
        "declare fewer, or several clusters"
    )


@pytest.mark.parametrize(("cores", "refused"), [(400_000, False), (400_004, True)])
def test_a_limit_allows_no_more_nodes_than_eks(cores: int, refused: bool) -> None:
    mapping = of_many(1)
    mapping["pools"] = [{"name": "many", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": cores}}}]
    if refused:
        assert message(mapping) == (
            "pools[0].elastic.max.cpu: allows 100001 nodes, and a cluster of EKS has at most 100000; "
            "use 400000 or less"
        )
    else:
        assert "they may have 100000 nodes" in parse(mapping).warnings[-1]

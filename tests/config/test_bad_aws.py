"""What bad_aws.yaml cannot say of an AWS environment in one line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from infra import versions
from infra.config import parse
from infra.model.base.prices import PriceList
from infra.model.checks.environment import warnings
from infra.plan import eks, node_groups
from infra.plan.cost import bill
from infra.plan.render import render
from tests.build.aws_environments import aws
from tests.build.edits import changed, message
from tests.config import tables

pytestmark = pytest.mark.unit

GOOD = tables.GOOD["aws"]
change = partial(changed, GOOD)


@pytest.mark.parametrize("place", ["cluster/interruption_queue", "cluster/queue", "pools/0/queue"])
def test_spot_without_its_queue_cannot_be_said(place: str) -> None:
    """The queue always comes with Karpenter, and no key removes it."""
    assert ": unknown key; " in message(change({"at": place, "put": None}))
    env = parse(change({"at": "pools/0/capacity", "put": ["on_demand", "spot"]}))
    assert env.pools[0].capacity == ("on_demand", "spot")


def test_pods_of_two_elastic_pools_are_kept_apart_by_a_taint() -> None:
    second = {"name": "second", "machine": "g6.xlarge", "elastic": {"max": {"cpu": 8}}}
    shared = {"sharing": {"kind": "time_slicing", "replicas": 2}, "taints": [{"key": "team", "value": "a"}]}
    assert parse(change({"at": "pools/3", "put": {**second, **shared}}))
    assert parse(change({"at": "pools/3", "put": second})), "another resource is another pod"


def test_on_aws_short_names_are_those_of_what_ec2_sells() -> None:
    short = aws(*({"gpu": {"models": [name], "count": 8}, "nodes": 1} for name in ("A100-40GB", "V100")))
    assert [pool.gpus[0].name for pool in short.pools] == ["A100-SXM4-40GB", "V100-SXM2-32GB"]
    assert [pool.machines[0].name for pool in short.pools] == ["p4d.24xlarge", "p3dn.24xlarge"]


def test_the_system_nodes_may_be_of_a_declared_machine() -> None:
    own = {"c7i.4xlarge": {"vcpu": 16, "memory_gib": 32, "pods": 234}}
    env = parse(
        change({"at": "machines", "put": own}, {"at": "cluster/system", "put": {"machine": "c7i.4xlarge"}})
    )
    assert [machine.pods for machine in node_groups.system_pool(env).machines] == [234]
    text = message(change({"at": "cluster/system", "put": {"machine": "c7i.4xlarg"}}))
    assert text.startswith("cluster.system.machine: unknown machine 'c7i.4xlarg'")


def test_a_gpu_that_older_images_lack_a_driver_for_wants_a_newer_image() -> None:
    edit = {"at": "pools/0", "put": {"name": "burst", "machine": "g7.2xlarge", "nodes": 1}}
    assert message(change(edit)) == (
        "cluster.images.al2023-nvidia: al2023@v20260801 has no driver for RTX-PRO-4500 (pool burst); "
        "use al2023@v20260917 or newer"
    )
    assert parse(change(edit, {"at": "cluster/images/al2023-nvidia", "put": "al2023@v20260917"}))


def test_a_version_that_only_extended_support_has_gets_a_warning() -> None:
    def warned(version: str, **more: str) -> list[str]:
        return [
            text
            for text in warnings(aws({"machine": "p5.48xlarge"}, version=version, **more))
            if "support" in text
        ]

    (text,) = warned("1.32")
    fact = "cluster.version: 1.32 is in extended support, at 0.60 instead of 0.10 USD per hour"
    assert text == f"{fact}, until 2027-03-23; use a newer version, or cluster.support: extended"
    assert warned("1.32", support="extended") == warned("1.36") == []


def test_a_version_without_pinned_add_ons_is_accepted_with_named_ones() -> None:
    """1.37: neither its add-ons nor the days of its support are known yet."""
    images = dict.fromkeys(("al2023", "al2023-nvidia"), "al2023@v20261012")
    named = {**versions.EKS_ADD_ONS["1.36"], "kube-proxy": "v1.37.0-eksbuild.1"}
    env = aws({"machine": "p5.48xlarge"}, version="1.37", add_ons=named, images=images, support="extended")
    assert not any("version" in text for text in warnings(env))
    assert eks.add_ons(env) == named
    assert "from a day that is not known yet" in str(bill(env, PriceList()))
    assert aws({"machine": "p5.48xlarge"}, images={**images, "al2023": "al2023@v20260930"}, version="1.36")


NEVER = "are never bought; use"


@pytest.mark.parametrize(
    ("pool", "wording"),
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
def test_a_limit_that_whole_nodes_do_not_fill_gets_a_warning(pool: dict[str, Any], wording: str) -> None:
    expected = (f"pools[0].elastic.max.{wording}",) if wording else ()
    assert warnings(aws(pool)) == expected
    for amount in wording.partition("use ")[2].split(" or ") if wording else ():
        key = wording.partition(":")[0]
        assert warnings(aws({**pool, "elastic": {"max": {key: int(amount)}}})) == (), "the remedy holds"


TRAIN = {"name": "train", "kind": "job", "pool": "p0", "image": "a:1"}
GANG = {**TRAIN, "indexed": True, "parallelism": 2, "count": 8}
ADA = {"name": "ada", "kind": "notebook", "editor": "vscode", "user": "ada", "pool": "p0"}
P5 = {"machine": "p5.48xlarge", "class": "training", "elastic": {"max": {"nvidia.com/gpu": 32}}}
FABRIC = {**P5, "zones": ["us-west-2a"], "aws": {"efa": True}, "hugepages": "10Gi"}
ONE_A10G = {"machine": "g5.xlarge"}
ENDS = "Karpenter ends nodes {} old, with {}; use training, which ends only empty nodes"
NOTICE = "capacity: EC2 ends spot nodes two minutes after its notice, with {}; leave spot out"
TCP = "aws.efa: job train requests no adapter, so NCCL uses TCP between nodes; give the workload efa: {}"
BUFFERS = (
    "hugepages: libfabric allocates its buffers there, and job train requests none; use 5Gi in both, "
    "or env: {FI_EFA_USE_HUGE_PAGE: 0} in the workload"
)
IDLE = (
    "hugepages: each node reserves 10Gi at boot, and job train requests none; leave it out, "
    "or request hugepages"
)


@pytest.mark.parametrize(
    ("pool", "works", "expected"),
    [
        # What ends nodes: jobs whose pods start again by themselves are no reason.
        (ONE_A10G, [{**TRAIN, "parallelism": 4, "completions": 12}], ()),
        ({**ONE_A10G, "capacity": ["on_demand", "spot"]}, [{**TRAIN, "parallelism": 4}], ()),
        ({**ONE_A10G, "class": "batch"}, [{**TRAIN, "wait_minutes": 1440}], ()),
        ({**ONE_A10G, "class": "batch"}, [{**TRAIN, "wait_minutes": 1441}],
         [f"class: {ENDS.format('30m after they are 24h', 'job train')}"]),
        ({**ONE_A10G, "class": "interactive"}, [ADA],
         [f"class: {ENDS.format('8h after they are 120m', 'notebook ada')}"]),
        ({**ONE_A10G, "class": "batch"}, [ADA, {**ADA, "name": "bob", "user": "bob"}],
         [f"class: {ENDS.format('30m after they are 24h', 'notebook ada and 1 more')}"]),
        ({**ONE_A10G, "class": "training"}, [ADA, {**TRAIN, "wait_minutes": 10080}], ()),
        ({**ONE_A10G, "class": "training", "capacity": ["on_demand", "spot"]}, [ADA],
         [NOTICE.format("notebook ada")]),
        ({**ONE_A10G, "nodes": 2, "capacity": ["spot"]}, [{**GANG, "count": 1}],
         [NOTICE.format("job train")]),
        ({**ONE_A10G, "capacity": ["spot"]}, [{**TRAIN, "kind": "pod"}], [NOTICE.format("pod train")]),
        ({**ONE_A10G, "nodes": 2}, [ADA, {**GANG, "count": 1}], ()),  # managed node groups do not expire
        ({**P5, "class": "inference"}, [GANG],
         [f"class: {ENDS.format('15m after they are 336h', 'job train')}"]),
        # Adapters and huge pages; a pool of which no workload is declared here serves others.
        (FABRIC, [], ()),
        (FABRIC, [{**GANG, "efa": 32, "hugepages": "5Gi"}], ()),
        (FABRIC, [{**GANG, "hugepages": "5Gi"}], [TCP.format(32)]),
        (FABRIC, [{**GANG, "count": 4, "parallelism": 4, "hugepages": "5Gi"}], [TCP.format(16)]),
        (FABRIC, [{**GANG, "count": 4, "hugepages": "5Gi"}], ()),  # both on one node
        (FABRIC, [{**GANG, "completions": 4, "hugepages": "5Gi"}], ()),  # they do not meet
        (FABRIC, [{**GANG, "efa": 32}], [BUFFERS]),
        (FABRIC, [{**GANG, "efa": 32, "env": {"FI_EFA_USE_HUGE_PAGE": 0}}], [IDLE]),
        ({**FABRIC, "hugepages": None}, [{**GANG, "efa": 32}], [BUFFERS]),
        ({**FABRIC, "hugepages": None}, [{**GANG, "efa": 32, "env": {"FI_EFA_USE_HUGE_PAGE": 0}}], ()),
        ({**ONE_A10G, "hugepages": "10Gi"}, [TRAIN], [IDLE]),
        ({**ONE_A10G, "hugepages": "10Gi"}, [TRAIN, {**TRAIN, "name": "b", "hugepages": "5Gi"}], ()),
        (P5, [GANG], ()),  # no adapters to request
    ],
)  # fmt: skip
def test_a_pool_that_does_not_suit_its_workloads_gets_a_warning(
    pool: dict[str, Any], works: list[dict[str, Any]], expected: Sequence[str]
) -> None:
    used = {key: value for key, value in pool.items() if value is not None}
    assert warnings(aws(used, workloads=works)) == tuple(f"pools[0].{text}" for text in expected)


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
    expected = f"pools[0].zones: {fact}; leave it out, or name another zone of the network"
    assert warnings(aws({"machine": "p4d.24xlarge", **size, **pool})) == ((expected,) if warned else ())


@pytest.mark.parametrize(
    ("least", "sharing", "warned"),
    [
        (0, {"kind": "time_slicing", "replicas": 4}, True),
        (1, {"kind": "time_slicing", "replicas": 4}, False),
        (0, {"kind": "exclusive"}, False),
    ],
)
def test_a_group_that_may_be_empty_gets_a_warning_if_its_nodes_offer_shares(
    least: int, sharing: dict[str, Any], warned: bool
) -> None:
    pool = {"machine": "g4dn.xlarge", "nodes": 1, "aws": {"scaling": {"min": least, "max": 2}}}
    found = warnings(aws({**pool, "sharing": sharing}))
    tag = "k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu.shared"
    fact = "cluster-autoscaler does not know that nodes of an empty group offer nvidia.com/gpu.shared"
    remedy = f"use 1, or give its Auto Scaling group the tag {tag}"
    assert found == ((f"pools[0].aws.scaling.min: {fact}; {remedy}",) if warned else ())


FULL = "pools[2].machine: kubelet and DaemonSets leave no room for pods"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("x9.large", {"pods": 5}, f"{FULL} on x9.large"),
        ("x9.large", {"memory_gib": 1}, FULL),
        ("x9.large", {"nvme_gb": 10**6 + 1}, "machines.x9.large.nvme_gb: 1000001 is too large"),
        ("box", {}, "machines.box: 'box' is not the name of an EC2 instance type"),
        ("X9.large", {}, "machines.X9.large: 'X9.large' is not the name of an EC2 instance type"),
    ],
)
def test_an_instance_type_of_one_s_own_has_room_and_a_name_of_ec2(
    name: str, given: dict[str, Any], expected: str
) -> None:
    machine = {"vcpu": 8, "memory_gib": 32, "pods": 58, **given}
    pool = {"name": "cpu", "machine": name, "nodes": 1}
    edits = ({"at": "machines", "put": {name: machine}}, {"at": "pools/2", "put": pool})
    assert message(changed(GOOD, *edits)).startswith(expected)


def test_the_names_of_prepulled_images_fit_into_user_data() -> None:
    names = [f"registry.example/team/image-{number}:1" for number in range(300)]
    assert message(changed(GOOD, {"at": "pools/0/aws", "put": {"prepull": names}})) == (
        "pools[0].aws.prepull: the names have 10090 bytes, and a node's user data has room for 8192; "
        "name fewer, those that every pod waits for"
    )


def fleet_of(nodes: int, **more: Any) -> dict[str, Any]:
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
    env = parse(fleet_of(nodes))
    render(env)
    assert time.process_time() - began < 2
    expected = f"pools: they may have {nodes} nodes, and EKS has more than 5000 in its ultra scale tier alone"
    assert warnings(env) == ((f"{expected}; agree on it with AWS before",) if nodes > 5000 else ())


def test_pools_together_have_no_more_nodes_than_eks() -> None:
    mapping = fleet_of(100_000)
    mapping["pools"].append({"name": "one", "machine": "m6i.xlarge", "nodes": 1})
    assert message(mapping) == (
        "pools: they have 100001 nodes, and a cluster of EKS has at most 100000; "
        "declare fewer, or several clusters"
    )


@pytest.mark.parametrize(("cores", "refused"), [(400_000, False), (400_004, True)])
def test_a_limit_allows_no_more_nodes_than_eks(cores: int, refused: bool) -> None:
    mapping = fleet_of(1)
    mapping["pools"] = [{"name": "many", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": cores}}}]
    if refused:
        assert message(mapping) == (
            "pools[0].elastic.max.cpu: allows 100001 nodes, and a cluster of EKS has at most 100000; "
            "use 400000 or less"
        )
    else:
        assert "they may have 100000 nodes" in warnings(parse(mapping))[-1]

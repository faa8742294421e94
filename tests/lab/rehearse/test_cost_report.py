"""From nodes and pods to pools, cost and cells."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage import nodes as seen
from gpuform.usage.node_prices import PoolOutcome, used_share
from gpuform.usage.nodes import Node, Pod
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from lab.rehearse.cost_report import CostReport, cells
from lab.rehearse.watch import NodeLifetime, Snapshot
from lab.simulator.device_plugin import gpu_id, mig_id
from tests.build.aws_environments import CLAIMED, CLAIMED_SLICES, SLICED, aws
from tests.build.environments import on
from tests.usage.top.played import node as live

pytestmark = pytest.mark.unit

LAYOUT = {"3g.20gb": 1, "2g.10gb": 2}
MIG: dict[str, Any] = {"machine": "p4d.24xlarge", "nodes": 1, "sharing": {"kind": "mig", "layout": LAYOUT}}
SPLIT = {**MIG, "sharing": {**MIG["sharing"], "devices": [0, 1], "share": {"replicas": 2}}}
CORES = {"machine": "m6i.xlarge", "nodes": 1}
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
BIG, SMALL = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-2g.10gb"
PARTS = {"0": ("2g.10gb@0", "2g.10gb@2", "2g.10gb@4")}
MIXED = ("2g.10gb@0", "2g.10gb@2", "3g.20gb@4")


def node(pool: str, machine: str, offers: dict[str, float], **more: Any) -> Node:
    given = {"name": f"{pool}-n", "uid": f"uid-{pool}", "zone": "", "capacity": "", **more}
    return Node(pool=pool, machine=machine, ready=True, offers=offers, **given)


def pod(node: str, asks: dict[str, float], namespace: str = "lab", **more: Any) -> Pod:
    return Pod(namespace, more.pop("name", "a"), more.pop("workload", "a"), node, "Running", asks, **more)


def of_first_pool(env: Environment, *nodes: Node, pods: tuple[Pod, ...] = ()) -> PoolOutcome:
    costs = CostReport(env, PriceList())
    return costs.pool_outcome(costs.pools[-len(env.pools)], Snapshot(1.0, nodes, pods), [])


@pytest.mark.parametrize(
    ("pool", "offers", "requests", "share"),
    [
        # 8 GPUs of 3 + 2 x 2 compute slices; requested are 3 + 2 x 2 = one GPU of eight.
        (MIG, {BIG: 8, SMALL: 16}, [{BIG: 1}, {SMALL: 2}], 1 / 8),
        # One whole GPU, and of another 3 / 2 + 2 x 2 / 2 of its 7 compute slices.
        (
            SPLIT,
            {f"{BIG}.shared": 4, f"{SMALL}.shared": 8, GPU: 6},
            [{GPU: 1}, {f"{BIG}.shared": 1, f"{SMALL}.shared": 2}],
            (1 + 3.5 / 7) / 8,
        ),
        # Without GPUs the fuller of cores and memory.
        (CORES, {"cpu": 4, "memory_gib": 16}, [{"cpu": 1, "memory_gib": 12}], 0.75),
        (CORES, {"cpu": 4, "memory_gib": 16}, [], 0.0),
    ],
)
def test_a_node_is_used_by_what_its_pods_request(
    pool: dict[str, Any], offers: dict[str, float], requests: list[dict[str, float]], share: float
) -> None:
    env, one = aws(pool), node("p0", pool["machine"], offers)
    held = [pod("p0-n", item) for item in requests]
    assert used_share(env, env.pools[0], one, held) == pytest.approx(share)


def test_a_pool_costs_its_nodes_and_is_idle_by_what_is_not_requested() -> None:
    requests = (pod("p0-n", {BIG: 1}), pod("p0-n", {SMALL: 2}))
    result = of_first_pool(aws(MIG), node("p0", "p4d.24xlarge", {BIG: 8, SMALL: 16}), pods=requests)
    assert result.usd_per_hour == pytest.approx(21.9576)
    assert result.idle_usd_per_hour == pytest.approx(21.9576 * 7 / 8)
    assert result.resources[SMALL].idle == 14


def test_idle_devices_for_claims_follow_from_the_allocated_ones() -> None:
    env = aws(CLAIMED_SLICES, CLAIMED)
    cut, whole = env.pools
    layout = {str(index): MIXED for index in range(8)}
    a100 = node("p0", "p4d.24xlarge", {"mig.nvidia.com": 24}, gpus=8, layout=layout)
    given = (mig_id(a100.uid, 0, "2g.10gb", 2), mig_id(a100.uid, 5, "3g.20gb", 4))
    held = [pod(a100.name, {"mig.nvidia.com": 2}, devices=given)]
    assert used_share(env, cut, a100, held) == pytest.approx((2 / 7 + 3 / 7) / 8)
    l4 = node("p1", "g6.12xlarge", {"gpu.nvidia.com": 4}, gpus=4)
    last = pod(l4.name, {}, devices=(gpu_id(l4.uid, 3),))
    assert used_share(env, whole, l4, [last]) == 0.25
    (drawn,) = CostReport(env, PriceList()).draw_nodes(Snapshot(1.0, (l4,), (last,)))
    assert [[(cell.resource, cell.pod) for cell in row] for row in drawn.gpus] == [
        *[[("gpu", "")]] * 3,
        [("gpu", "a")],
    ]


def test_claimed_gpus_that_no_driver_reports_are_of_unknown_use_and_not_bought_in_vain() -> None:
    env = aws(CLAIMED)
    one = node("p0", "g6.12xlarge", {"cpu": 48}, gpus=4)
    costs, now = CostReport(env, PriceList()), Snapshot(1.0, (one,))
    result = costs.pool_outcome(env.pools[0], now, [NodeLifetime(one, 1.0)])
    assert (result.idle_usd_per_hour, result.fixed, result.in_vain) == (None, True, ())
    (drawn,) = costs.draw_nodes(now)
    assert [[cell.resource for cell in row] for row in drawn.gpus] == [["by claim"]] * 4


def test_the_paid_price_counts_and_a_node_without_a_pod_was_bought_in_vain() -> None:
    env = aws(SLICED)
    nodes = (
        node("p0", "g4dn.xlarge", {SHARED: 3}, name="a", capacity="spot", zone="us-west-2a"),
        node("p0", "g4dn.xlarge", {SHARED: 3}, name="b", capacity="on-demand", zone="us-west-2b"),
    )
    lives = [NodeLifetime(nodes[0], 1.0, used=True), NodeLifetime(nodes[1], 2.0)]
    now = Snapshot(3.0, nodes, (pod("a", {SHARED: 3}),))
    result = CostReport(env, PriceList(), {"a": 0.2}).pool_outcome(env.pools[0], now, lives, ("i-1",))
    assert [(machine.capacity, machine.zone, machine.usd_per_hour) for machine in result.machines] == [
        ("on-demand", "us-west-2b", 0.526),
        ("spot", "us-west-2a", 0.2),
    ]
    assert result.usd_per_hour == pytest.approx(0.726)
    assert result.idle_usd_per_hour == pytest.approx(0.526)
    assert (result.launched, result.in_vain) == (3, ("b", "i-1"))


SIZE = {"cpu": 2.0, "memory_gib": 4.0}


@pytest.mark.parametrize(
    ("env", "one", "usd", "reported"),
    [
        (aws({"machine": "p5e.48xlarge", "nodes": 1}), ("p0", "p5e.48xlarge", {GPU: 8}), None, {GPU: 8}),
        (on("hosts", {}, cost={"prices": {"p0": 1.5}}), ("p0", "", {"cpu": 256}), 1.5, {}),
    ],
    ids=["no price", "own price, size not declared"],
)
def test_a_price_is_unknown_or_its_owners(
    env: Environment, one: tuple[str, str, dict[str, float]], usd: float | None, reported: dict[str, float]
) -> None:
    result = of_first_pool(env, node(*one))
    assert result.usd_per_hour == usd
    assert {key: amount.offers for key, amount in result.resources.items()} == reported


@pytest.mark.parametrize("flavors", [{}, {"m2.medium": {"vcpu": 2, "memory_gib": 4}}])
def test_a_default_workers_size_is_told_only_where_its_flavor_is_declared(flavors: dict[str, Any]) -> None:
    workers = {"workers": {"nodes": 2, "flavor": "m2.medium"}, "flavors": flavors}
    costs = CostReport(on("openstack", {"machine": "g2.5xlarge"}, cluster=workers), PriceList())
    now = Snapshot(1.0, (node("default-worker", "m2.medium", SIZE),))
    result = costs.pool_outcome(costs.pools[0], now, [])
    assert {key: one.offers for key, one in result.resources.items()} == (SIZE if flavors else {})


def test_only_what_a_group_of_magnums_has_above_its_minimum_was_bought_in_vain() -> None:
    group = {"elastic": {"min": 1, "max": {"nodes": 3}}, "machine": "g2.5xlarge"}
    workers = {"workers": {"nodes": 2, "flavor": "m2.medium"}}
    costs = CostReport(on("openstack", group, {"machine": "g2.5xlarge"}, cluster=workers), PriceList())
    lives = [NodeLifetime(node("p0", "g2.5xlarge", {}, name=f"p0-{n}"), float(n)) for n in range(3)]
    lives[1].used = True
    assert [pool.name for pool in costs.pools] == ["default-worker", "p0", "p1"]
    assert costs.pool_outcome(costs.pools[1], Snapshot(1.0), lives).in_vain == ("p0-2",)
    lives.append(NodeLifetime(node("p1", "g2.5xlarge", {}, name="p1-0"), 0.0))
    fixed = {"p0-0": False, "p1-0": True, "p0-1": False, "p0-2": False}
    assert [(line.node, line.fixed) for line in costs.timeline(lives)] == list(fixed.items())


def test_a_pool_of_several_sizes_is_counted_node_by_node() -> None:
    env = aws({"gpu": {"models": ["T4"], "count": [1, 4]}, "sharing": SLICED["sharing"]})
    small = node("p0", "g4dn.xlarge", {SHARED: 3}, name="a", gpus=1)
    large = node("p0", "g4dn.12xlarge", {SHARED: 12}, name="b", gpus=4)
    result = of_first_pool(env, small, large, pods=(pod("a", {SHARED: 3}), pod("b", {SHARED: 3})))
    assert result.idle_usd_per_hour == pytest.approx(3.912 * 9 / 12)
    assert result.resources[SHARED].idle == 9


def test_a_queue_costs_the_part_of_gpus_that_its_pods_hold() -> None:
    pools = [{"machine": "p4d.24xlarge", "name": "p0"}, {"machine": "g1.4xlarge", "name": "own"}]
    names = ("arts", "science")
    teams = [{"name": name, "namespaces": [name], "quota": {"p0": 8}} for name in names]
    work = [{"pool": "p0", "name": "a", "namespace": name, "queue": name} for name in names]
    free = {"pool": "p0", "name": "free", "namespace": "arts"}
    env = on("embedded", *pools, queues={"teams": teams}, workloads=[*work, free])
    nodes = tuple(node(pool.name, pool.machine or "", {GPU: 8.0}, gpus=8) for pool in env.pools)
    held = [pod("p0-n", {GPU: 2.0}, "arts", name=name, workload=name) for name in ("a", "free")]
    costs = CostReport(env, PriceList())
    now = Snapshot(1.0, nodes, tuple(held))
    assert costs.queue_usd("arts", now) == pytest.approx(21.9576 / 4)
    assert costs.queue_usd("science", now) == 0
    unpriced = Snapshot(1.0, nodes, (pod("own-n", {GPU: 2.0}, "science"),))
    assert costs.queue_usd("science", unpriced) is None, "its machine has no price"


def test_cells_are_the_allocated_devices() -> None:
    layout = {"0": MIXED, "1": ()}
    one = node("p0", "p4d.24xlarge", {SMALL: 2, BIG: 1, GPU: 1}, gpus=2, layout=layout)
    small, whole = mig_id(one.uid, 0, "2g.10gb", 2), gpu_id(one.uid, 1)
    rows = cells(one, [pod("", {}, devices=(small,)), pod("", {}, name="b", devices=(whole,))])
    assert [[(cell.resource, cell.pod) for cell in row] for row in rows] == [
        [("mig-2g.10gb", ""), ("mig-2g.10gb", "a"), ("mig-3g.20gb", "")],
        [("gpu", "b")],
    ]


@pytest.mark.parametrize(
    ("layout", "offers", "name", "pods"),
    [
        ({}, {SHARED: 12}, "gpu.shared", ("", "a", "")),
        (PARTS, {f"{SMALL}.shared": 6, GPU: 1}, "mig-2g.10gb.shared", ("", "", "", "a", "", "")),
        (PARTS, {SMALL: 6, GPU: 1}, "mig-2g.10gb", ("", "", "", "a", "", "")),
        (PARTS, {SHARED: 6}, "mig-2g.10gb.shared", ("", "", "", "a", "", "")),
    ],
)
def test_shares_are_numbered(
    layout: dict[str, tuple[str, ...]], offers: dict[str, float], name: str, pods: tuple[str, ...]
) -> None:
    one = node("p0", "g4dn.12xlarge", offers, gpus=1 if layout else 4, layout=layout)
    device = mig_id(one.uid, 0, "2g.10gb", 2) if layout else gpu_id(one.uid, 3)
    rows = cells(one, [pod("", {}, devices=(f"{device}::1",))])
    assert [len(row) for row in rows] == [len(pods)] * one.gpus
    assert [(cell.resource, cell.pod) for cell in rows[-1]] == [(name, who) for who in pods]


def test_the_facts_of_a_node_and_a_pod_are_kept() -> None:
    raw = live("n", "p", 8, {"0": ["3g.20gb@4"]}, **{"karpenter.sh/capacity-type": "spot"})
    raw["spec"] = {"taints": [{"key": "gpuform.io/gpu-not-ready"}]}
    raw["status"]["allocatable"] = {"cpu": "3920m", "memory": "16384Mi", GPU: "0", "pods": "110", BIG: "8"}
    kept = seen.parse_node(raw)
    assert (kept.pool, kept.capacity, kept.ready, kept.gpus) == ("p", "spot", True, 8)
    assert kept.waits_for
    assert kept.offers == {"cpu": 3.92, "memory_gib": 16.0, BIG: 8.0}
    assert kept.layout == {"0": ("3g.20gb@4",)}
    for environment, workload in (({}, ""), ({"gpuform.io/environment": "lab"}, "w")):
        meta = {"name": "b", "namespace": "a", "labels": {"app.kubernetes.io/name": "w", **environment}}
        assert seen.parse_pod({"metadata": meta, "spec": {}}, "lab").workload == workload

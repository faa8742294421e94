"""From nodes and pods to pools, cost and cells."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage import nodes as seen
from gpuform.usage.node_prices import PoolOutcome
from gpuform.usage.nodes import Node, Pod
from infra.config import parse
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from lab.rehearse.cost_report import CostReport, cells, used_share
from lab.rehearse.reasons import latest_events
from lab.rehearse.watch import NodeLifetime, Snapshot
from lab.simulator.device_plugin import gpu_id, mig_id
from tests.plan.aws_environments import CLAIMED, CLAIMED_SLICES, aws
from tests.plan.test_simulated_clouds import ELASTIC, openstack
from tests.usage.top.played import node as live

pytestmark = pytest.mark.unit

SHARED: dict[str, Any] = {
    "machine": "g4dn.xlarge",
    "sharing": {"kind": "time_slicing", "replicas": 3, "rename": True},
}
MIG: dict[str, Any] = {
    "machine": "p4d.24xlarge",
    "nodes": 1,
    "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
}
GPU_SHARED, BIG, SMALL = "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-2g.10gb"


def node(pool: str, machine: str, offers: dict[str, float], **more: Any) -> Node:
    given = {"name": f"{pool}-n", "uid": f"uid-{pool}", "zone": "", "capacity": "", **more}
    return Node(pool=pool, machine=machine, ready=True, offers=offers, **given)


def pod(node: str, asks: dict[str, float], **more: Any) -> Pod:
    return Pod("lab", more.pop("name", "a"), more.pop("workload", "a"), node, "Running", asks, **more)


def of_first_pool(env: Environment, *nodes: Node, pods: tuple[Pod, ...] = ()) -> PoolOutcome:
    return CostReport(env, PriceList()).pool_outcome(env.pools[0], Snapshot(1.0, nodes, pods), [])


SPLIT = {**MIG, "sharing": {**MIG["sharing"], "devices": [0, 1], "share": {"replicas": 2}}}
CORES = {"machine": "m6i.xlarge", "nodes": 1}


@pytest.mark.parametrize(
    ("pool", "offers", "requests", "share"),
    [
        # 8 GPUs of 3 + 2 x 2 compute slices; requested are 3 + 2 x 2 = one GPU of eight.
        (MIG, {BIG: 8, SMALL: 16}, [{BIG: 1}, {SMALL: 2}], 1 / 8),
        # One whole GPU, and of another 3 / 2 + 2 x 2 / 2 of its 7 compute slices.
        (
            SPLIT,
            {f"{BIG}.shared": 4, f"{SMALL}.shared": 8, "nvidia.com/gpu": 6},
            [{"nvidia.com/gpu": 1}, {f"{BIG}.shared": 1, f"{SMALL}.shared": 2}],
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
    env = aws(pool)
    objects = node("p0", pool["machine"], offers)
    assert used_share(env, env.pools[0], objects, [pod("p0-n", item) for item in requests]) == pytest.approx(
        share
    )


def test_a_pool_costs_its_nodes_and_is_idle_by_what_is_not_requested() -> None:
    requests = (pod("p0-n", {BIG: 1}), pod("p0-n", {SMALL: 2}))
    result = of_first_pool(aws(MIG), node("p0", "p4d.24xlarge", {BIG: 8, SMALL: 16}), pods=requests)
    assert result.usd_per_hour == pytest.approx(21.9576)
    assert result.idle_usd_per_hour == pytest.approx(21.9576 * 7 / 8)
    assert result.resources[SMALL].idle == 14


def test_what_is_idle_of_claimed_gpus_is_unknown() -> None:
    env = aws({"machine": "g6.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}})
    assert of_first_pool(env, node("p0", "g6.12xlarge", {"cpu": 48})).idle_usd_per_hour is None


def test_what_is_idle_of_claimed_devices_follows_from_those_that_were_given() -> None:
    env = aws(CLAIMED_SLICES, CLAIMED)
    cut, whole = env.pools
    layout = {str(index): ("2g.10gb@0", "2g.10gb@2", "3g.20gb@4") for index in range(8)}
    objects = node("p0", "p4d.24xlarge", {"mig.nvidia.com": 24}, gpus=8, layout=layout)
    given = (mig_id(objects.uid, 0, "2g.10gb", 2), mig_id(objects.uid, 5, "3g.20gb", 4))
    held = [pod(objects.name, {"mig.nvidia.com": 2}, devices=given)]
    assert used_share(env, cut, objects, held) == pytest.approx((2 / 7 + 3 / 7) / 8)
    l4 = node("p1", "g6.12xlarge", {"gpu.nvidia.com": 4}, gpus=4)
    assert used_share(env, whole, l4, [pod(l4.name, {}, devices=(gpu_id(l4.uid, 3),))]) == 0.25
    now = Snapshot(1.0, (l4,), (pod(l4.name, {}, devices=(gpu_id(l4.uid, 3),)),))
    (drawn,) = CostReport(env, PriceList()).draw_nodes(now)
    assert [cell.pod for row in drawn.gpus for cell in row] == ["", "", "", "a"]
    assert {cell.resource for row in drawn.gpus for cell in row} == {"gpu"}


def test_what_was_paid_goes_before_the_list_and_what_had_no_pod_was_bought_in_vain() -> None:
    env = aws(SHARED)
    (pool,) = env.pools
    nodes = [
        node("p0", "g4dn.xlarge", {GPU_SHARED: 3}, name="a", capacity="spot", zone="us-west-2a"),
        node("p0", "g4dn.xlarge", {GPU_SHARED: 3}, name="b", capacity="on-demand", zone="us-west-2b"),
    ]
    lives = [NodeLifetime(nodes[0], 1.0, used=True), NodeLifetime(nodes[1], 2.0)]
    costs = CostReport(env, PriceList(), {"a": 0.2})
    result = costs.pool_outcome(
        pool, Snapshot(3.0, tuple(nodes), (pod("a", {GPU_SHARED: 3}),)), lives, ("i-1",)
    )
    assert [(machine.capacity, machine.zone, machine.usd_per_hour) for machine in result.machines] == [
        ("on-demand", "us-west-2b", 0.526),
        ("spot", "us-west-2a", 0.2),
    ]
    assert result.usd_per_hour == pytest.approx(0.726)
    assert result.idle_usd_per_hour == pytest.approx(0.526)
    assert (result.launched, result.in_vain) == (3, ("b", "i-1"))


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    env = aws({"machine": "p5e.48xlarge", "nodes": 1})
    assert of_first_pool(env, node("p0", "p5e.48xlarge", {"nvidia.com/gpu": 8})).usd_per_hour is None


def test_a_host_has_the_price_that_its_owner_gives_and_its_size_is_not_told() -> None:
    pools, prices = [{"name": "cpu", "hosts": ["a"]}], {"prices": {"cpu": 1.5}}
    env = parse({"name": "hosts", "cluster": {"kind": "hosts"}, "pools": pools, "cost": prices})
    result = of_first_pool(env, node("cpu", "", {"cpu": 256}))
    assert (result.usd_per_hour, result.resources) == (1.5, {})


def test_cells_are_the_devices_that_were_given_out() -> None:
    layout = {"0": ("2g.10gb@0", "2g.10gb@2", "3g.20gb@4"), "1": ()}
    objects = node("p0", "p4d.24xlarge", {SMALL: 2, BIG: 1, "nvidia.com/gpu": 1}, gpus=2, layout=layout)
    small = mig_id(objects.uid, 0, "2g.10gb", 2)
    whole = gpu_id(objects.uid, 1)
    rows = cells(
        objects, [pod("", {}, devices=(small,)), pod("", {}, name="b", workload="b", devices=(whole,))]
    )
    assert [[(cell.resource, cell.pod) for cell in row] for row in rows] == [
        [("mig-2g.10gb", ""), ("mig-2g.10gb", "a"), ("mig-3g.20gb", "")],
        [("gpu", "b")],
    ]


PARTS = {"0": ("2g.10gb@0", "2g.10gb@2", "2g.10gb@4")}


@pytest.mark.parametrize(
    ("layout", "offers", "name", "pods"),
    [
        ({}, {GPU_SHARED: 12}, "gpu.shared", ("", "a", "")),
        (PARTS, {f"{SMALL}.shared": 6, "nvidia.com/gpu": 1}, "mig-2g.10gb.shared", ("", "", "", "a", "", "")),
        (PARTS, {SMALL: 6, "nvidia.com/gpu": 1}, "mig-2g.10gb", ("", "", "", "a", "", "")),
        (PARTS, {GPU_SHARED: 6}, "mig-2g.10gb.shared", ("", "", "", "a", "", "")),
    ],
)
def test_shares_are_numbered(
    layout: dict[str, tuple[str, ...]], offers: dict[str, float], name: str, pods: tuple[str, ...]
) -> None:
    objects = node("p0", "g4dn.12xlarge", offers, gpus=1 if layout else 4, layout=layout)
    device = mig_id(objects.uid, 0, "2g.10gb", 2) if layout else gpu_id(objects.uid, 3)
    rows = cells(objects, [pod("", {}, devices=(f"{device}::1",))])
    assert [len(row) for row in rows] == [len(pods)] * objects.gpus
    assert [(cell.resource, cell.pod) for cell in rows[-1]] == [(name, who) for who in pods]


def test_what_is_kept_of_a_node_and_a_pod() -> None:
    raw = live("n", "p", 8, {"0": ["3g.20gb@4"]}, **{"karpenter.sh/capacity-type": "spot"})
    raw["spec"] = {"taints": [{"key": "gpuform.io/gpu-not-ready"}]}
    allocatable = {"cpu": "3920m", "memory": "16384Mi", "nvidia.com/gpu": "0", "pods": "110", BIG: "8"}
    raw["status"]["allocatable"] = allocatable
    kept = seen.parse_node(raw)
    assert (kept.pool, kept.capacity, kept.ready, kept.gpus) == ("p", "spot", True, 8)
    assert kept.waits_for
    assert kept.offers == {"cpu": 3.92, "memory_gib": 16.0, BIG: 8.0}
    assert kept.layout == {"0": ("3g.20gb@4",)}
    made = {
        "metadata": {"namespace": "a", "name": "b", "labels": {"app.kubernetes.io/name": "w"}},
        "spec": {},
    }
    assert seen.parse_pod(made, "lab").workload == "", "of another environment, or of none"
    made["metadata"]["labels"]["gpuform.io/environment"] = "lab"  # type: ignore[index]
    assert seen.parse_pod(made, "lab").workload == "w"


def test_the_last_event_of_each_source_counts() -> None:
    def raw(source: str, message: str, at: str) -> dict[str, Any]:
        about = {"kind": "Pod", "namespace": "a", "name": "b"}
        return {
            "involvedObject": about,
            "reportingComponent": source,
            "reason": "r",
            "message": message,
            "eventTime": at,
        }

    times = {("s", "new"): "09.1Z", ("s", "old"): "03Z", ("k", "other"): "05Z"}
    events = latest_events(raw(*key, f"2026-01-01T00:00:{time}") for key, time in times.items())
    assert [(item.source, item.message) for item in events] == [("k", "other"), ("s", "new")]


def test_nodes_of_a_declared_number_are_not_bought_in_vain() -> None:
    env = aws({"machine": "g6.12xlarge", "nodes": 1, "sharing": {"kind": "dra"}})
    objects = node("p0", "g6.12xlarge", {"cpu": 48}, gpus=4)
    costs = CostReport(env, PriceList())
    result = costs.pool_outcome(env.pools[0], Snapshot(1.0, (objects,)), [NodeLifetime(objects, 1.0)])
    assert (result.fixed, result.in_vain) == (True, ())
    (drawn,) = costs.draw_nodes(Snapshot(1.0, (objects,)))
    assert [[cell.resource for cell in row] for row in drawn.gpus] == [["by claim"]] * 4


def test_a_pool_of_several_sizes_is_counted_node_by_node() -> None:
    several = {"models": ["T4"], "count": [1, 4]}
    env = aws({"gpu": several, "sharing": SHARED["sharing"], "elastic": {"max": {"cpu": 100}}})
    small = node("p0", "g4dn.xlarge", {GPU_SHARED: 3}, name="a", gpus=1)
    large = node("p0", "g4dn.12xlarge", {GPU_SHARED: 12}, name="b", gpus=4)
    taken = (pod("a", {GPU_SHARED: 3}), pod("b", {GPU_SHARED: 3}))
    result = of_first_pool(env, small, large, pods=taken)
    assert result.idle_usd_per_hour == pytest.approx(3.912 * 9 / 12)
    assert result.resources[GPU_SHARED].idle == 9


def test_of_a_group_of_magnums_only_what_came_on_top_was_bought_in_vain() -> None:
    env = openstack({"elastic": ELASTIC}, {"nodes": 1})
    lives = [
        NodeLifetime(node("pool-0", "g2.5xlarge", {}, name=f"pool-0-{number}"), float(number))
        for number in range(3)
    ]
    lives[1].used = True
    costs = CostReport(env, PriceList())
    workers, pool, _ = costs.pools
    assert workers.name == "default-worker"
    assert costs.pool_outcome(pool, Snapshot(1.0), lives).in_vain == ("pool-0-2",)
    objects = [*lives, NodeLifetime(node("pool-1", "g2.5xlarge", {}, name="pool-1-0"), 0.0)]
    assert [(line.node, line.fixed) for line in costs.timeline(objects)] == [
        ("pool-0-0", False),
        ("pool-1-0", True),
        ("pool-0-1", False),
        ("pool-0-2", False),
    ]


def test_a_default_workers_size_is_told_only_where_its_flavor_is_declared() -> None:
    objects = node("default-worker", "m2.medium", {"cpu": 2, "memory_gib": 4})
    for flavors, reported in (
        ({}, {}),
        ({"m2.medium": {"vcpu": 2, "memory_gib": 4}}, {"cpu": 2, "memory_gib": 4}),
    ):
        costs = CostReport(openstack({"nodes": 1}, flavors=flavors), PriceList())
        result = costs.pool_outcome(costs.pools[0], Snapshot(1.0, (objects,)), [])
        assert {key: one.offers for key, one in result.resources.items()} == reported

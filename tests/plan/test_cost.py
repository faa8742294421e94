"""What pools cost: calculated here by hand from the same list prices."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base.prices import USD_PER_HOUR, PriceList
from infra.model.environment import Environment
from infra.plan.cost import Line, bill, per_month, to_document
from infra.plan.rules import facts
from tests.build.aws_stacks import small, stack
from tests.build.environments import declared, on

pytestmark = pytest.mark.unit

DISK = 100 * 0.08 / 730  # the default volume: 100 GiB of gp3, including 3000 IOPS and 125 MiB/s


def aws(*pools: dict[str, Any], **cost: Any) -> Environment:
    declared = small(*pools)
    return parse({**declared, "cost": cost} if cost else declared)


def line(env: Environment, what: str) -> Line:
    (found,) = [line for line in bill(env, PriceList()).lines if line.item == what]
    return found


T4 = {"name": "t4", "machine": "g4dn.xlarge"}
ELASTIC = {**T4, "elastic": {"max": {"cpu": 17, "nvidia.com/gpu.shared": 40}}}
"""Four nodes by cores, thirteen by shares."""
ELASTIC |= {"sharing": {"kind": "time_slicing", "replicas": 3, "rename": True}}
BOTH = {**ELASTIC, "capacity": ["on_demand", "spot"]}
FASTER = {"disk": {"size_gib": 200, "iops": 4000, "throughput": 225}}
SEVERAL = {"name": "t4", "gpu": {"models": ["T4"], "count": 1}, "elastic": {"max": {"nvidia.com/gpu": 2}}}
DEAREST = max(USD_PER_HOUR[machine.name] for machine in aws(SEVERAL).pools[0].machines)


@pytest.mark.parametrize(
    ("pool", "cost", "nodes", "high"),
    [
        ({**T4, "nodes": 3}, {}, (3, 3), 3 * (0.526 + DISK)),
        ({**T4, "nodes": 1, "aws": FASTER}, {}, (1, 1),
         0.526 + (200 * 0.08 + 1000 * 0.005 + 100 * 0.04) / 730),
        (ELASTIC, {}, (0, 4), 4 * (0.526 + DISK)),
        (BOTH, {}, (0, 8), 8 * (0.526 + DISK)),
        (BOTH, {"spot_factor": 0.25}, (0, 8), 5 * (0.526 + DISK)),
        (SEVERAL, {}, (0, 2), 2 * (DEAREST + DISK)),
    ],
    ids=["nodes that stay", "a faster volume", "elastic", "each way of buying", "a spot price", "dearest"],
)  # fmt: skip
def test_a_pool_costs_its_machines_and_volumes(
    pool: dict[str, Any], cost: dict[str, Any], nodes: tuple[int, int], high: float
) -> None:
    found = line(aws(pool, **cost), "pool t4")
    assert ((found.min_count, found.max_count), found.high) == (nodes, pytest.approx(high))
    assert found.low == (found.high if nodes[0] else 0)
    unknown = "capacity" in pool and not cost
    assert found.notes == (("spot counted at the on-demand price (no cost.spot_factor)",) if unknown else ())


def test_of_nodes_with_one_and_with_four_gpus_each_is_counted_by_what_it_offers() -> None:
    shared = {"kind": "time_slicing", "replicas": 3}
    pool = {"name": "t4", "gpu": {"models": ["T4"], "count": [1, 4]}, "sharing": shared}
    found = line(aws({**pool, "elastic": {"max": {"nvidia.com/gpu.shared": 24}}}), "pool t4")
    assert found.max_count == 8, "eight of one GPU, or two of four"
    assert found.high == pytest.approx(8 * (4.352 + DISK)), "g4dn.16xlarge has one GPU and costs most"
    costly = aws({**pool, "elastic": {"max": {"nvidia.com/gpu.shared": 24}}}, prices={"g4dn.12xlarge": 20})
    assert line(costly, "pool t4").high == pytest.approx(2 * (20 + DISK)), "and only two of four GPUs fit"
    by_cores = line(aws({**pool, "elastic": {"max": {"cpu": 64}}}), "pool t4")
    assert (by_cores.max_count, by_cores.high) == (16, pytest.approx(16 * (0.526 + DISK)))
    units = {"GPU": pytest.approx(0.526 + DISK), "nvidia.com/gpu.shared": pytest.approx((0.526 + DISK) / 3)}
    assert found.units == units, "on the cheapest machine, which has one GPU"


CUT = {"3g.20gb": 1, "2g.10gb": 2}
A100 = (21.9576 + DISK) / 8
T4S = (3.912 + DISK) / 4


@pytest.mark.parametrize(
    ("machine", "sharing", "units"),
    [
        ("g4dn.12xlarge", {"kind": "time_slicing", "replicas": 4},
         {"GPU": T4S, "nvidia.com/gpu.shared": T4S / 4}),
        ("p4d.24xlarge", {"kind": "mig", "layout": CUT},
         {"GPU": A100, "nvidia.com/mig-3g.20gb": A100 * 3 / 7, "nvidia.com/mig-2g.10gb": A100 * 2 / 7}),
        ("p4d.24xlarge", {"kind": "dra", "layout": CUT},
         {"GPU": A100, "3g.20gb": A100 * 3 / 7, "2g.10gb": A100 * 2 / 7}),
    ],
)  # fmt: skip
def test_shares_and_slices_cost_their_part_of_a_gpu(
    machine: str, sharing: dict[str, Any], units: dict[str, float]
) -> None:
    env = aws({"name": "p", "machine": machine, "nodes": 1, "sharing": sharing})
    assert line(env, "pool p").units == pytest.approx(units)


def test_an_unknown_price_is_named_and_an_own_one_goes_first() -> None:
    pool = {"name": "h200", "machine": "p5e.48xlarge", "nodes": 2}
    unknown = aws(pool)
    assert line(unknown, "pool h200").high is None
    assert line(unknown, "pool h200").notes == ("no price of p5e.48xlarge",)
    assert bill(unknown, PriceList()).unknown == ("pool h200",)
    assert bill(aws(pool, prices={"p5e.48xlarge": 40}), PriceList()).unknown == ()
    by_pool = aws(pool, prices={"p5e.48xlarge": 40, "h200": 30})
    assert line(by_pool, "pool h200").high == pytest.approx(2 * (30 + DISK))


def test_flavors_cost_what_their_owner_says_and_have_no_volumes() -> None:
    env = on("embedded", {"machine": "g2.5xlarge", "nodes": 2}, cost={"prices": {"g2.5xlarge": 1.5}})
    found = bill(env, PriceList())
    assert (found.low, found.high, found.region) == (3.0, 3.0, None)
    assert found.price_source == "prices: the environment's own (cost.prices)"


def test_own_hosts_cost_what_their_owner_says() -> None:
    pool = {"name": "t4", "hosts": ["gpu-1", "gpu-2"], "gpu": {"models": ["T4"], "count": 2}}
    assert bill(on("hosts", pool), PriceList()).unknown == ("pool t4",)
    own = bill(on("hosts", pool, cost={"prices": {"t4": 1.5}}), PriceList())
    assert own.price_source == "prices: the environment's own (cost.prices)"
    assert to_document(own)["prices"] is None
    (found,) = own.lines
    assert (found.min_count, found.low, found.high, found.units) == (2, 3.0, 3.0, {"GPU": 0.75})


OPENSTACK = declared(
    "openstack",
    {"name": "t4", "machine": "g2.5xlarge", "nodes": 2},
    {"name": "l40s", "machine": "gpu.l40s", "elastic": {"min": 1, "max": {"nodes": 4}}},
    cluster={
        "masters": {"nodes": 3, "flavor": "m2.medium"},
        "workers": {"nodes": 2},
        "flavors": {"gpu.l40s": {"gpu": "L40S", "count": 2, "vcpu": 32, "memory_gib": 128}},
    },
)


def test_flavors_of_openstack_have_no_list_price() -> None:
    found = bill(parse(OPENSTACK), PriceList())
    assert found.unknown == ("pool t4", "pool l40s", "masters", "default workers")
    assert (found.low, found.high, found.region) == (0, 0, None)
    assert (found.price_source, to_document(found)["prices"]) == (
        "no price is known; set your prices in cost.prices",
        None,
    )
    assert [line.notes for line in found.lines] == [
        ("no price of g2.5xlarge",),
        ("no price of gpu.l40s",),
        ("no price of m2.medium",),
        ("no price of its flavor",),
    ]


def test_an_elastic_node_group_costs_its_least_and_at_most_its_most_nodes() -> None:
    prices = {"g2.5xlarge": 1.5, "gpu.l40s": 4.0, "m2.medium": 0.25}
    found = bill(parse({**OPENSTACK, "cost": {"prices": prices}}), PriceList())
    assert {line.item: (line.min_count, line.max_count, line.low, line.high) for line in found.lines} == {
        "pool t4": (2, 2, 3.0, 3.0),
        "pool l40s": (1, 4, 4.0, 16.0),
        "masters": (3, 3, 0.75, 0.75),
        "default workers": (2, 2, None, None),
    }
    assert found.unknown == ("default workers",)
    assert next(item for item in found.lines if item.item == "pool l40s").units["GPU"] == 2.0


def test_a_node_group_that_others_scale_costs_its_least_and_at_most_its_most_nodes() -> None:
    pool = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 2}
    (one,) = [line for line in bill(parse(small(pool)), PriceList()).lines if line.item == "pool t4"]
    scaled = small({**pool, "aws": {"scaling": {"min": 0, "max": 6}}})
    (line,) = [line for line in bill(parse(scaled), PriceList()).lines if line.item == "pool t4"]
    assert (line.min_count, line.max_count, line.low) == (0, 6, 0.0)
    assert line.high == 3 * (one.high or 0) > 0


def test_nodes_without_gpus_that_come_and_go_are_counted_in_the_recorded_cost() -> None:
    flavors = {"c1.large": {"vcpu": 8, "memory_gib": 16}}
    pool = {"machine": "c1.large", "elastic": {"min": 0, "max": {"nodes": 4}}}
    env = on("openstack", pool, cluster={"flavors": flavors}, cost={"prices": {"c1.large": 0.5}})
    (found,) = (rule for rule in facts.rules(env) if rule.get("record") == facts.COST)
    assert found["expr"].startswith("0.5 * (count(")


def test_what_a_cluster_has_beside_its_nodes() -> None:
    env = parse(stack("aws-prod"))
    assert line(env, "control plane").high == 0.10
    assert line(env, "NAT gateways").high == pytest.approx(3 * 0.045)
    assert line(env, "VPC endpoints").high == pytest.approx(4 * 3 * 0.01)  # eight once it is private
    assert line(env, "pool system").high == pytest.approx(3 * (0.768 + DISK))
    single = parse(stack("aws-dev"))
    assert line(single, "NAT gateways").max_count == 1


@pytest.mark.parametrize(
    ("version", "low", "ends"), [("1.33", 0.60, "2026-07-29"), ("1.36", 0.10, "2027-08-02")]
)
def test_extended_support_costs_its_surcharge_from_its_day_on(version: str, low: float, ends: str) -> None:
    pool = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}
    found = line(parse(small(pool, version=version, support="extended")), "control plane")
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(0.60))
    assert found.notes == (f"0.50 of it for extended support, from {ends} on",)
    plain = line(parse(small(pool, version=version)), "control plane")
    assert (plain.low, plain.high, plain.notes) == (0.10, 0.10, ())


def test_the_document_adds_up_and_names_the_source_of_prices() -> None:
    known = bill(parse(stack("aws-prod")), PriceList())
    assert known.price_source == "list prices of us-east-1, 2026-07-20"
    found = to_document(known)
    assert found["prices"] == {"region": "us-east-1", "date": "2026-07-20"}
    assert found["region"] == "us-west-2"
    assert found["per_hour"]["high"] == pytest.approx(
        sum(entry["per_hour"]["high"] for entry in found["lines"]), abs=0.001
    )
    assert found["per_month"]["low"] == round(per_month(bill(parse(stack("aws-prod")), PriceList()).low))


def test_a_budget_is_for_a_month_at_every_limit() -> None:
    pool = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 16}}}
    whole = per_month(bill(aws(pool), PriceList()).high)
    assert bill(aws(pool, budget_usd_per_month=whole - 1), PriceList()).over_budget
    assert not bill(aws(pool, budget_usd_per_month=whole + 1), PriceList()).over_budget
    assert not bill(aws(pool), PriceList()).over_budget

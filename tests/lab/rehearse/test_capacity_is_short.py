"""What the real Karpenter does if AWS has no capacity, reclaims spot, or a reservation is full."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infra.model.environment import Environment
from lab.rehearse.cloud.market import Shortage
from tests.lab.rehearse.market_site import KarpenterCluster, pool
from tests.plan.aws_environments import aws

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
HELD = "cr-0123456789abcdef0"
ENV = aws(
    pool("zones", machine="g4dn.xlarge"),
    pool("types", gpu={"models": ["L4"], "count": 1}),
    pool("spot", machine="g5.xlarge", capacity=["on_demand", "spot"], **{"class": "batch"}),
    pool(
        "held",
        machine="g6e.xlarge",
        capacity=["reserved", "on_demand"],
        zones=["us-west-2b"],
        aws={"reservations": [HELD]},
    ),
)
GPU = {"nvidia.com/gpu": "1"}


@pytest.fixture(scope="module")
def opened(market: Callable[[Environment], KarpenterCluster]) -> KarpenterCluster:
    return market(ENV)


@pytest.fixture
def site(opened: KarpenterCluster) -> Iterator[KarpenterCluster]:
    yield opened
    opened.cloud.market.set_shortages()


@pytest.mark.parametrize(
    ("pool", "short", "bought"),
    [
        ("zones", Shortage(zone="us-west-2a"), ("g4dn.xlarge", "us-west-2b")),
        ("types", Shortage(machine="g6.xlarge"), ("g6.2xlarge", None)),  # the next cheapest
    ],
)
def test_a_zone_without_capacity(
    site: KarpenterCluster, pool: str, short: Shortage, bought: tuple[str, ...]
) -> None:
    site.cloud.market.set_shortages(short)
    site.sell(pool)
    site.run(pool, 2, pool, **GPU)
    site.running(pool, 2)
    assert {(instance.machine, bought[1] and instance.zone) for instance in site.bought(pool)} == {bought}
    assert pool == "zones" or "g6.xlarge" in {refusal.machine for refusal in site.cloud.market.refusals()}


def test_spot_where_on_demand_has_run_out_and_back_again(site: KarpenterCluster) -> None:
    site.cloud.market.set_shortages(Shortage(machine="g5.xlarge", capacity="on-demand"))
    site.sell("spot")
    site.run("spot", 1, "spot", **GPU)
    (pod,) = site.running("spot", 1)
    (first,) = site.bought("spot")
    assert (first.capacity, first.node) == ("spot", pod["spec"]["nodeName"])
    site.cloud.market.set_shortages(Shortage(machine="g5.xlarge", zone=first.zone, capacity="spot"))
    site.cloud.interrupt(first.id, notice_s=5.0)
    site.until(lambda: site.bought("spot")[0].ended, "the instance to be taken back")
    site.until(
        lambda: [
            p for p in site.pods("spot") if p["status"]["phase"] == "Running" and _elsewhere(p, first.node)
        ],
        "its pod to run elsewhere",
        90,
    )
    second = site.bought("spot")[-1]
    assert second.id != first.id
    assert (second.capacity, second.zone) != (first.capacity, first.zone)


def _elsewhere(pod: dict[str, object], node: str | None) -> bool:
    spec = pod["spec"]
    assert isinstance(spec, dict)
    return spec.get("nodeName") not in (None, node)


def test_a_reservation_that_is_used_up(site: KarpenterCluster) -> None:
    site.cloud.market.set_left(HELD, left=1)
    site.sell("held")
    site.run("held", 2, "held", **GPU)
    site.running("held", 2)
    bought = sorted((instance.capacity, instance.reservation) for instance in site.bought("held"))
    assert bought == [("on-demand", None), ("reserved", HELD)]

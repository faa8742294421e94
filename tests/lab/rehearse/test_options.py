"""What may be switched on in a rehearsal, and what is refused before it starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from infra.config import load, price_list
from infra.model.environment import Environment
from infra.model.prices import PriceList
from lab.rehearse import options
from lab.rehearse.cloud.market import Shortage
from lab.rehearse.cost_report import check_prices, price_source
from lab.rehearse.options import Options, short, used
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit


def stack(name: str) -> Environment:
    return load(Paths.here().root / f"Pulumi.{name}.yaml")


def test_as_they_are_written() -> None:
    assert short("p5.48xlarge") == Shortage("p5.48xlarge")
    assert short("*:us-west-2a:spot") == Shortage("*", "us-west-2a", "spot")
    assert used("cr-1") == ("cr-1", 0)
    assert used("cr-1=3") == ("cr-1", 3)
    assert str(short("p5.48xlarge:*:spot")) == "no capacity for p5.48xlarge (spot)"


@pytest.mark.parametrize("text", ["", "a:b:spot:d", "a::spot", "a:b:free"])
def test_a_shortage_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match=r"^--short"):
        short(text)


@pytest.mark.parametrize("text", ["", "=1", "cr-1=many", "cr-1=-1", "cr-1=\u00b2"])
def test_a_reservation_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match=r"^--reservation-used"):
        used(text)


REFUSED = (
    (
        "onprem-dev",
        Options(interrupt_spot=True),
        "--interrupt-spot: Karpenter launches no nodes for stack onprem-dev",
    ),
    ("aws-dev", Options(interrupt_spot=True), "--interrupt-spot: no pool uses spot capacity; leave it out"),
    ("aws-dev", Options(short=(Shortage("g4dn.2xlarge"),)), "no Karpenter pool uses this machine; did you"),
    (
        "aws-dev",
        Options(short=(Shortage("*", "us-east-1c"),)),
        "--short *:us-east-1c: is not a zone of the stack",
    ),
    (
        "aws-prod",
        Options(used_up=(("cr-1", 0),)),
        "is not a reservation of a Karpenter pool; known: cr-0123456789abcdef0",
    ),
)


@pytest.mark.parametrize(("name", "given", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_the_stack_has_no_use_for(name: str, given: Options, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        given.check(stack(name))


def test_a_reservation_of_a_node_group_is_not_karpenters() -> None:
    name = "cr-0123456789abcdef0"
    reserved = {"machine": "p5.48xlarge", "capacity": ["reserved"], "aws": {"reservations": [name]}}
    env = aws({**reserved, "nodes": 1}, {"machine": "m6i.xlarge"})
    with pytest.raises(InputError, match="not a reservation of a Karpenter pool; leave it out"):
        Options(used_up=((name, 0),)).check(env)


def test_what_it_has_use_for() -> None:
    given = Options(
        short=(Shortage("g6e.xlarge", "us-west-2b", "spot"),), used_up=(("cr-0123456789abcdef0", 1),)
    )
    given.check(stack("aws-prod"))
    Options(workloads=Path("x"), shrink=False).check(stack("local"))


UNPRICED: dict[str, Any] = {"machine": "p5e.48xlarge"}


def test_karpenter_buys_nothing_that_has_no_price() -> None:
    with pytest.raises(InputError) as caught:
        check_prices(aws({"machine": "m6i.xlarge"}, UNPRICED), PriceList())
    assert str(caught.value) == (
        "pools[1].machine: p5e.48xlarge has no price in the price list of us-east-1 of 2026-07-20, "
        "and Karpenter chooses machines by price; give one: cost.prices: {p5e.48xlarge: USD per hour}"
    )
    check_prices(aws({**UNPRICED, "nodes": 1}), PriceList())  # Karpenter does not choose
    check_prices(aws({"gpu": {"models": ["H200"], "count": 8}}), PriceList())  # the other type has a price


def test_the_stacks_here_can_all_be_rehearsed() -> None:
    for name in ("local", "aws-dev", "aws-prod", "onprem-dev"):
        check_prices(stack(name), price_list(stack(name)))
        options.Options().check(stack(name))


def test_whose_prices_they_are() -> None:
    assert (
        price_source(stack("aws-dev"), PriceList()) == "list prices of us-east-1, 2026-07-20, without volumes"
    )
    assert price_source(stack("aws-prod"), PriceList()).endswith("; spot at 0.5 of on-demand")
    spot = aws({"machine": "m6i.xlarge", "capacity": ["spot"]})
    assert price_source(spot, PriceList()).endswith("; spot at the on-demand price (no cost.spot_factor)")

from __future__ import annotations

from typing import Any

import pytest

from gpuform.reports.bills import all_of
from infra.config import parse
from infra.model.prices import PriceList
from infra.plan.cost import bill
from lab.rehearse.cost_report import price_source

pytestmark = pytest.mark.unit

FLAVORS: dict[str, Any] = {
    "name": "e",
    "cluster": {"kind": "embedded"},
    "pools": [
        {"name": "t4", "machine": "g2.5xlarge", "nodes": 2},
        {"name": "v100", "machine": "g1.4xlarge", "nodes": 1},
    ],
}


@pytest.mark.parametrize(
    ("own", "total", "said"),
    [
        ({}, "unknown", "none: no price list has these machines; set cost.prices"),
        (
            {"g2.5xlarge": 0.5},
            "730+",
            "the environment's own (cost.prices), without volumes: no price list has these machines",
        ),
    ],
)
def test_a_sum_of_nothing_but_unknown_prices_is_unknown_and_nobodys_prices(
    own: dict[str, float], total: str, said: str
) -> None:
    env = parse({**FLAVORS, "cost": {"prices": own}})
    assert all_of(bill(env, PriceList())) == total
    assert price_source(env, PriceList()) == said

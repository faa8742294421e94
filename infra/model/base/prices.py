"""The environment's budget and prices, and what machines cost.

``USD_PER_HOUR`` is on-demand, Linux, us-east-1, as AWS listed it on 2026-07-20, from the project's table of
EC2 GPU types of that date, in which p5e.48xlarge has no price. The three types without a GPU and what a
cluster has beside its nodes are from AWS's pricing pages (EC2, EBS, EKS, VPC, PrivateLink) as of 2026-04.
OpenStack flavors have no price here; it is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from infra.model.base.fields import Model, option

PRICE_DATE = "2026-07-20"

_EC2_PRICES = """
    g4dn.12xlarge 3.912, g4dn.16xlarge 4.352, g4dn.2xlarge 0.752, g4dn.4xlarge 1.204, g4dn.8xlarge 2.176,
    g4dn.metal 7.824, g4dn.xlarge 0.526, g5.12xlarge 5.672, g5.16xlarge 4.096, g5.24xlarge 8.144,
    g5.2xlarge 1.212, g5.48xlarge 16.288, g5.4xlarge 1.624, g5.8xlarge 2.448, g5.xlarge 1.006,
    g5g.16xlarge 2.744, g5g.2xlarge 0.556, g5g.4xlarge 0.828, g5g.8xlarge 1.372, g5g.metal 2.744,
    g5g.xlarge 0.42, g6.12xlarge 4.6016, g6.16xlarge 3.3968, g6.24xlarge 6.6752, g6.2xlarge 0.9776,
    g6.48xlarge 13.3504, g6.4xlarge 1.3232, g6.8xlarge 2.0144, g6.xlarge 0.8048, g6e.12xlarge 10.4926,
    g6e.16xlarge 7.57719, g6e.24xlarge 15.0656, g6e.2xlarge 2.24208, g6e.48xlarge 30.1312,
    g6e.4xlarge 3.00424, g6e.8xlarge 4.52856, g6e.xlarge 1.861, g7.12xlarge 7.12832, g7.24xlarge 14.2566,
    g7.2xlarge 2.52, g7.48xlarge 28.5133, g7.4xlarge 3.04208, g7.8xlarge 4.08624, g7e.12xlarge 8.28608,
    g7e.24xlarge 16.5722, g7e.2xlarge 3.36312, g7e.48xlarge 33.1443, g7e.4xlarge 3.99816, g7e.8xlarge 5.26824,
    gr6.4xlarge 1.5392, gr6.8xlarge 2.4464, m5.xlarge 0.192, m6i.4xlarge 0.768, m6i.xlarge 0.192,
    p3dn.24xlarge 31.212, p4d.24xlarge 21.9576, p4de.24xlarge 27.4471, p5.48xlarge 55.04, p5.4xlarge 6.88,
    p5en.48xlarge 63.296, p6-b200.48xlarge 113.933, p6-b300.48xlarge 142.416
"""
USD_PER_HOUR: Mapping[str, float] = {
    name: float(usd) for name, usd in (line.split() for line in _EC2_PRICES.split(","))
}

HOURS_PER_MONTH = 730
"""AWS's own convention: 8760 hours in twelve months."""


@dataclass(frozen=True)
class OtherPrices:
    """Costs beside machines in USD per hour; those of EBS in USD per month."""

    control_plane: float = 0.10  # EKS, every version
    extended_support: float = 0.50  # on top, once standard support has ended: 0.60 together
    nat_gateway: float = 0.045  # traffic is charged on top, and its amount is not known in advance
    endpoint: float = 0.01  # an interface endpoint in one zone
    gp3_gib_month: float = 0.08
    gp3_iops_month: float = 0.005  # each beyond 3000
    gp3_mibps_month: float = 0.04  # each beyond 125


@dataclass(frozen=True)
class PriceList:
    """Prices of one region on one day."""

    region: str = "us-east-1"
    date: str = PRICE_DATE
    usd_per_hour: Mapping[str, float] = field(default_factory=lambda: USD_PER_HOUR)
    beside: OtherPrices = field(default_factory=OtherPrices)


Usd = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
"""Of one node and hour; the dearest machine of the catalogue costs 142."""


class Cost(Model):
    """A budget, and prices that extend or override the price lists."""

    budget_usd_per_month: Annotated[float, Field(strict=True, ge=0, le=1e12, allow_inf_nan=False)] | None = (
        option("Highest cost of a month of 730 hours; `gpuform preview` refuses more.")
    )
    spot_factor: Annotated[float, Field(strict=True, ge=0.05, le=1)] | None = Field(
        default=None,
        # AWS, "Amazon EC2 Spot": discounts of up to 90 %; half of that price is our bound.
        description="Spot price as a fraction of the on-demand price, 0.05 to 1; 1 if left out.",
    )
    prices: dict[str, Usd] = option(
        "USD per hour of a node, by machine or by pool; overrides a cloud's price list.", dict
    )

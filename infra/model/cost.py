"""The environment's budget, and prices that its owner declares."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.model.base import Model

Usd = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
"""Of one node and hour; the dearest machine of the catalogue costs 142."""


class Cost(Model):
    """A budget, and prices that extend or override the price lists."""

    budget_usd_per_month: Annotated[float, Field(strict=True, ge=0, le=1e12, allow_inf_nan=False)] | None = (
        Field(
            default=None,
            description="Highest cost of a month of 730 hours; `gpuform preview` refuses more.",
        )
    )
    spot_factor: Annotated[float, Field(strict=True, ge=0.05, le=1)] | None = Field(
        default=None,
        # AWS, "Amazon EC2 Spot": discounts of up to 90 %; half of that price is our bound.
        description="Spot price as a fraction of the on-demand price, 0.05 to 1; 1 if left out.",
    )
    prices: dict[str, Usd] = Field(
        default_factory=dict,
        description="USD per hour of a node, by machine or by pool; overrides a cloud's price list.",
    )

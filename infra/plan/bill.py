"""A bill: its lines, the source of its prices, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.model.base.prices import HOURS_PER_MONTH, PriceList


@dataclass(frozen=True)
class Line:
    """One item of the bill.

    ``least`` and ``most`` are its count; ``low`` and ``high`` are USD per hour, None if a price is unknown.
    ``units`` is USD per hour of one GPU and of one unit of each resource, on the cheapest machine.
    """

    item: str
    min_count: int
    max_count: int
    low: float | None
    high: float | None
    units: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bill:
    """The lines, and the price list that they use."""

    lines: tuple[Line, ...]
    prices: PriceList
    region: str | None
    budget: float | None = None
    """USD per month; None without a budget."""
    listed: bool = True
    """Whether the price list may cover part of the bill; else only the environment's own prices count."""
    overridden: bool = False
    """Whether the environment has prices of its own."""

    @property
    def price_source(self) -> str:
        """Source of the prices, in words."""
        if self.has_no_price and not self.listed:
            return "no price is known; set your prices in cost.prices"
        if not self.listed:
            return "prices: the environment's own (cost.prices)"
        own = ", and cost.prices" if self.overridden else ""
        return f"list prices of {self.prices.region}, {self.prices.date}{own}"

    @property
    def has_no_price(self) -> bool:
        """Whether no line has a price, so that the sums mean nothing."""
        return all(line.high is None for line in self.lines)

    @property
    def over_budget(self) -> bool:
        """Whether a month with every elastic pool at its limit costs more than the budget."""
        return self.budget is not None and per_month(self.high) > self.budget

    @property
    def low(self) -> float:
        """USD per hour at minimum size; unknown prices count as 0."""
        return sum(line.low or 0.0 for line in self.lines)

    @property
    def high(self) -> float:
        """USD per hour with every elastic pool at its limit; unknown prices count as 0."""
        return sum(line.high or 0.0 for line in self.lines)

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(line.item for line in self.lines if line.high is None)


def per_month(usd_per_hour: float) -> float:
    """USD in a month of 730 hours."""
    return usd_per_hour * HOURS_PER_MONTH


def to_document(bill: Bill) -> dict[str, Any]:
    """The bill as ``--json`` and ``gpuform render`` print it: USD, null if a price is unknown.

    ``prices`` is null if the price list covers nothing in the bill.
    """
    return {
        "currency": "USD",
        "prices": {"region": bill.prices.region, "date": bill.prices.date} if bill.listed else None,
        "region": bill.region,
        "per_hour": {"low": _cents(bill.low), "high": _cents(bill.high)},
        "per_month": {"low": round(per_month(bill.low)), "high": round(per_month(bill.high))},
        "budget_usd_per_month": bill.budget,
        "over_budget": bill.over_budget,
        "unknown": list(bill.unknown),
        "lines": [
            {
                "what": line.item,
                "count": {"least": line.min_count, "most": line.max_count},
                "per_hour": {"low": _cents(line.low), "high": _cents(line.high)},
                "units": {name: _cents(usd) for name, usd in line.units.items()},
                "notes": list(line.notes),
            }
            for line in bill.lines
        ],
    }


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 4)

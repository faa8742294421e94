"""Karpenter buys by price, so a pool without a known price gets no nodes, here as on AWS."""

from __future__ import annotations

from gpuform.checkout.errors import InputError
from infra.model.environment import Environment
from infra.model.prices import PriceList
from infra.plan.cost import listed, machine_price


def said(env: Environment, prices: PriceList) -> str:
    """The source of the outcome's prices, in words."""
    if not listed(env):
        own = env.cost is not None and bool(env.cost.prices)
        if own:
            return "the environment's own (cost.prices), without volumes: no price list has these machines"
        return "none: no price list has these machines; set cost.prices"
    text = f"list prices of {prices.region}, {prices.date}, without volumes"
    if not any("spot" in pool.capacity for pool in env.pools):
        return text
    factor = env.cost.spot_factor if env.cost else None
    spot = "at the on-demand price (no cost.spot_factor)" if factor is None else f"at {factor:g} of on-demand"
    return f"{text}; spot {spot}"


def check(env: Environment, prices: PriceList) -> None:
    """Refuse a pool that Karpenter fills if none of its machines has a price. Raises InputError.

    A pool with a fixed number needs no price: it is shown as unknown, as in the bill.
    """
    for index, pool in enumerate(env.pools):
        if not env.by_karpenter(pool):
            continue
        unknown = [one for one in pool.machines if machine_price(env, pool, one, prices) is None]
        if unknown and len(unknown) == len(pool.machines):
            names = ", ".join(one.name for one in unknown)
            where = f"the price list of {prices.region} of {prices.date}"
            raise InputError(
                f"pools[{index}].{'machine' if pool.machine else 'gpu'}",
                f"{names} has no price in {where}, and Karpenter chooses machines by price",
                f"give one: cost.prices: {{{unknown[0].name}: USD per hour}}",
            )

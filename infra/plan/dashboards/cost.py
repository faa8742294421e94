"""Cost: what the running nodes cost, and how much of it is idle cost.

Prices are those of ``infra.model.prices`` and of the environment, in USD. A pool without a price is in no
sum; a panel names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.model.prices import HOURS_PER_MONTH, PriceList
from infra.plan import cost
from infra.plan.dashboards.spec import (
    NAMESPACE,
    POOL,
    Board,
    Column,
    Panel,
    Query,
    Section,
    Series,
    Stat,
    Steps,
    Table,
    Text,
    to,
)

_USD = "currencyUSD"
_COST = f"gpuform:pool:cost_per_hour{{{POOL}}}"
_OF_GPUS = f"sum({_COST} and on (pool) gpuform:pool:gpus_declared)"
# Cost of one allocatable GPU. A pool that offers nothing yet has no price per GPU.
_PER_GPU = f"{_COST} / (gpuform:pool:gpus_allocatable{{{POOL}}} > 0)"
_ASKED = f"gpuform:pool:gpus_requested{{{POOL}}}"
_USED = f"gpuform:pool:gpus_used{{{POOL}}}"
# Pods may use more than they requested: a busy GPU is neither held idle nor free, so the three add up.
_TAKEN = f"({_ASKED} + clamp_min({_USED} - {_ASKED}, 0))"
_FREE = f"({_PER_GPU}) * clamp_min(gpuform:pool:gpus_allocatable{{{POOL}}} - {_TAKEN}, 0)"
_HELD = f"({_PER_GPU}) * clamp_min({_ASKED} - {_USED}, 0)"
_BUSY = f"({_PER_GPU}) * {_USED}"


def board(env: Environment) -> Board:
    """The dashboard; without any price it shows GPU-hours but no cost."""
    unpriced = [pool.name for pool in env.pools if pool.gpus and not _has_price(env, pool)]
    sections = [*((_money(env), _pools()) if is_priced(env) else ()), _hours(is_priced(env))]
    if unpriced:
        sections.append(Section("Without a price", (_unknown(unpriced),)))
    return Board(
        "cost",
        "GPU cost",
        "What GPUs cost while they are there, and what of it is idle: asked for by nobody, or held "
        "and not used.",
        tuple(sections),
        hours=24,
    )


def is_priced(env: Environment) -> bool:
    """Whether a price is known for any pool with GPUs."""
    return any(_has_price(env, pool) for pool in env.pools if pool.gpus)


def _has_price(env: Environment, pool: Pool) -> bool:
    """Whether the price of one of its GPUs is known; False if the bill does not count its nodes."""
    line = next((one for one in cost.bill(env, PriceList()).lines if one.what == f"pool {pool.name}"), None)
    return line is not None and bool(line.units)


def _money(env: Environment) -> Section:
    panels: list[Panel] = [
        Stat(
            title="Cost per hour",
            description="Of every pool with a price, those without GPUs among them.",
            expr=f"sum({_COST})",
            unit=_USD,
        ),
        Stat(
            title="A month of this",
            description=f"{HOURS_PER_MONTH} hours like now{_of_budget(env)}.",
            expr=f"sum({_COST}) * {HOURS_PER_MONTH}",
            unit=_USD,
            steps=_budget_steps(env),
        ),
        Stat(
            title="Busy, per hour",
            description="Of pools with GPUs, the part that computes.",
            expr=f"sum({_BUSY})",
            unit=_USD,
        ),
        Stat(
            title="Held idle, per hour",
            description="Asked for by pods that do not use it. Share those GPUs more, or end those pods.",
            expr=f"sum({_HELD})",
            unit=_USD,
        ),
        Stat(
            title="Asked for by nobody, per hour",
            description="Free GPUs that are paid for. Fewer nodes, or pools that shrink.",
            expr=f"sum({_FREE})",
            unit=_USD,
        ),
        Stat(
            title="Idle part",
            description="Of what pools with GPUs cost, the part that nobody computes with.",
            expr=f"1 - sum({_BUSY}) / {_OF_GPUS}",
            unit="percentunit",
            steps=((0.5, "orange"), (0.8, "red")),
        ),
    ]
    return Section("Money", tuple(panels))


def _of_budget(env: Environment) -> str:
    budget = env.cost.budget_usd_per_month if env.cost else None
    return "" if budget is None else f"; the budget of {budget:,.0f} USD is where it turns red"


def _budget_steps(env: Environment) -> Steps:
    budget = env.cost.budget_usd_per_month if env.cost else None
    return () if budget is None else ((budget, "red"),)


def _pools() -> Section:
    def per_pool(header: str, expr: str) -> Column:
        return Column(header, f"sum by (pool, sharing) ({expr})", _USD)

    table = Table(
        title="Pools, USD per hour",
        description="Busy, held idle and free add up to the cost: what a pool costs is the price of the "
        "GPUs that its nodes offer, so that GPUs which are missing make the others dearer.",
        keys={"pool": "Pool", "sharing": "Shared by"},
        columns=(
            per_pool("Cost", _COST),
            Column("One GPU", f"max by (pool, sharing) ({_PER_GPU})", _USD),
            per_pool("Busy", _BUSY),
            per_pool("Held idle", _HELD),
            per_pool("Free", _FREE),
        ),
        links={"pool": ("Pool in the fleet", to("fleet", "pool"))},
        sort="Cost",
        width=12,
    )
    course = Series(
        title="Idle and busy money",
        description="USD per hour; the height of all is what the GPUs on offer cost.",
        queries=(
            Query(f"sum({_BUSY})", "busy"),
            Query(f"sum({_HELD})", "held idle"),
            Query(f"sum({_FREE})", "asked for by nobody"),
        ),
        unit=_USD,
        stacked=True,
    )
    return Section("Pools", (table, course))


def _hours(priced: bool) -> Section:
    def hours(what: str) -> str:
        return f"gpuform:namespace:gpu_hours_{what}_1h{{{POOL}, {NAMESPACE}}}"

    def column(header: str, what: str) -> Column:
        return Column(header, f"sum by (namespace) ({hours(what)})", "short")

    columns = [
        column("Asked for", "requested"),
        column("Used", "used"),
        column("Held idle", "idle"),
    ]
    if priced:
        price = f"on (pool, sharing) group_left () ({_PER_GPU})"
        columns += [
            Column(header, f"sum by (namespace) ({hours(what)} * {price})", _USD)
            for header, what in (("USD", "requested"), ("USD held idle", "idle"))
        ]
    table = Table(
        title="Namespaces in the last hour",
        description="GPU-hours by what was asked for, and its price where the pool has one.",
        keys={"namespace": "Namespace"},
        columns=tuple(columns),
        links={"namespace": ("Sharing in the namespace", to("sharing", "namespace"))},
        sort="Asked for",
    )
    idle = Series(
        title="GPU-hours held idle by namespace",
        description="In each hour that ends at the point: asked for, and not used.",
        queries=(Query(f"sum by (namespace) ({hours('idle')})", "{{namespace}}"),),
        unit="short",
        stacked=True,
    )
    return Section("Namespaces", (replace(table, width=12), idle))


def _unknown(names: Sequence[str]) -> Text:
    named = ", ".join(f"`{name}`" for name in names)
    return Text(
        title="",
        description="",
        content=f"No price is known of {named}, or nobody here counts their nodes: their GPUs are in no sum "
        "of money. `cost.prices` of the environment takes prices of machines and pools.",
    )

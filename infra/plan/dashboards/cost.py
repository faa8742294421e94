"""Cost: what the running nodes cost, and how much of it is idle cost.

Prices are those of ``infra.model.prices`` and of the environment, in USD. A pool without a price is in no
sum; a panel names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.model.environment import Environment
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
    priced = _priced(env)
    unpriced = [pool.name for pool in env.pools if pool.gpus and pool.name not in priced]
    sections = [*((_money(env), _pools()) if priced else ()), _hours(bool(priced))]
    if unpriced:
        sections.append(Section("Without a price", (_unknown(unpriced),)))
    return Board(
        "cost",
        "GPU cost",
        "What the running GPUs cost, and how much of it is idle: not requested, or requested and not used.",
        tuple(sections),
        hours=24,
    )


def is_priced(env: Environment) -> bool:
    """Whether a price is known for any pool with GPUs."""
    return bool(_priced(env))


def _priced(env: Environment) -> frozenset[str]:
    """Pools with a known price of one of their GPUs; the bill must count their nodes."""
    lines = {line.what for line in cost.bill(env, PriceList()).lines if line.units}
    return frozenset(pool.name for pool in env.pools if pool.gpus and f"pool {pool.name}" in lines)


def _money(env: Environment) -> Section:
    panels: list[Panel] = [
        Stat(
            title="Cost per hour",
            description="All pools with a price, also those without GPUs.",
            expr=f"sum({_COST})",
            unit=_USD,
        ),
        Stat(
            title="Cost per month at this rate",
            description=f"{HOURS_PER_MONTH} hours at the current rate{_of_budget(env)}.",
            expr=f"sum({_COST}) * {HOURS_PER_MONTH}",
            unit=_USD,
            steps=_budget_steps(env),
        ),
        Stat(
            title="Busy, per hour",
            description="Cost of the GPUs in use.",
            expr=f"sum({_BUSY})",
            unit=_USD,
        ),
        Stat(
            title="Allocated but idle, per hour",
            description="Requested by pods that do not use it. Share those GPUs more, or end those pods.",
            expr=f"sum({_HELD})",
            unit=_USD,
        ),
        Stat(
            title="Not requested, per hour",
            description="Cost of free GPUs. Use fewer nodes, or elastic pools.",
            expr=f"sum({_FREE})",
            unit=_USD,
        ),
        Stat(
            title="Idle part",
            description="Part of the cost of pools with GPUs that is idle.",
            expr=f"1 - sum({_BUSY}) / {_OF_GPUS}",
            unit="percentunit",
            steps=((0.5, "orange"), (0.8, "red")),
        ),
    ]
    return Section("Cost", tuple(panels))


def _of_budget(env: Environment) -> str:
    budget = env.cost.budget_usd_per_month if env.cost else None
    return "" if budget is None else f"; red from the budget of {budget:,.0f} USD on"


def _budget_steps(env: Environment) -> Steps:
    budget = env.cost.budget_usd_per_month if env.cost else None
    return () if budget is None else ((budget, "red"),)


def _pools() -> Section:
    def per_pool(header: str, expr: str) -> Column:
        return Column(header, f"sum by (pool, sharing) ({expr})", _USD)

    table = Table(
        title="Pools, USD per hour",
        description="Busy, allocated but idle, and not requested add up to the cost: it is divided among the "
        "allocatable GPUs, so missing GPUs raise the cost of the others.",
        keys={"pool": "Pool", "sharing": "Shared by"},
        columns=(
            per_pool("Cost", _COST),
            Column("Per GPU", f"max by (pool, sharing) ({_PER_GPU})", _USD),
            per_pool("Busy", _BUSY),
            per_pool("Allocated but idle", _HELD),
            per_pool("Not requested", _FREE),
        ),
        links={"pool": ("Pool in the fleet", to("fleet", "pool"))},
        sort="Cost",
        width=12,
    )
    course = Series(
        title="Idle and busy cost",
        description="USD per hour; the total is the cost of the allocatable GPUs.",
        queries=(
            Query(f"sum({_BUSY})", "busy"),
            Query(f"sum({_HELD})", "allocated but idle"),
            Query(f"sum({_FREE})", "not requested"),
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
        column("Requested", "requested"),
        column("Used", "used"),
        column("Allocated but idle", "idle"),
    ]
    if priced:
        price = f"on (pool, sharing) group_left () ({_PER_GPU})"
        columns += [
            Column(header, f"sum by (namespace) ({hours(what)} * {price})", _USD)
            for header, what in (("USD", "requested"), ("USD idle", "idle"))
        ]
    table = Table(
        title="Namespaces in the last hour",
        description="GPU-hours requested, used and idle, and their cost if the pool has a price.",
        keys={"namespace": "Namespace"},
        columns=tuple(columns),
        links={"namespace": ("Sharing in the namespace", to("sharing", "namespace"))},
        sort="Requested",
    )
    idle = Series(
        title="Idle GPU-hours by namespace",
        description="In the hour up to each point: requested and not used.",
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
        content=f"No price is known for {named}, or their number of nodes is not known: no cost includes "
        "their GPUs. Set prices of machines and pools in `cost.prices` of the environment.",
    )

"""Fleet: number of GPUs, how many are requested, and whether they are busy."""

from __future__ import annotations

from infra.model.environment import Environment
from infra.plan.dashboards import cost
from infra.plan.dashboards.spec import (
    POOL,
    Board,
    Column,
    Panel,
    Query,
    Section,
    Series,
    Stat,
    Table,
    to,
)

_ALLOCATABLE = f"gpuform:pool:gpus_allocatable{{{POOL}}}"
_HOT = ((80.0, "orange"), (90.0, "red"))


def board(env: Environment) -> Board:
    """The dashboard; cost only if a price is known."""
    sections = (_now(cost.is_priced(env)), _pools(cost.is_priced(env)), _load(), _nodes())
    return Board(
        "fleet", "GPU fleet", "All GPUs at a glance: number, requested, busy, temperature, cost.", sections
    )


def _now(priced: bool) -> Section:
    panels: list[Panel] = [
        Stat(
            title="GPUs declared",
            description="GPUs that the pools declare, in whole GPUs; for elastic pools, GPUs of their nodes.",
            expr=f"sum(gpuform:pool:gpus_declared{{{POOL}}})",
            unit="short",
        ),
        Stat(
            title="GPUs allocatable",
            description="Allocatable on the nodes now, in whole GPUs; slices and shares count as fractions.",
            expr=f"sum({_ALLOCATABLE})",
            unit="short",
        ),
        Stat(
            title="Requested",
            description="Part of the allocatable GPUs that pods on nodes request.",
            expr=f"sum(gpuform:pool:gpus_requested{{{POOL}}}) / sum({_ALLOCATABLE})",
            unit="percentunit",
        ),
        Stat(
            title="Busy",
            description="Part of the allocatable GPUs in use; the rest of the requested ones is idle.",
            expr=f"sum(gpuform:pool:gpus_used{{{POOL}}}) / sum({_ALLOCATABLE})",
            unit="percentunit",
        ),
        Stat(
            title="Faults",
            description="GPUs with a fault that needs a reset or a replacement.",
            expr="count(count by (node, gpu) "
            f'(gpuform:fault:active{{{POOL}, class=~"reset|replace"}})) or vector(0)',
            unit="short",
            steps=((1, "red"),),
        ),
    ]
    if priced:
        panels.append(
            Stat(
                title="Cost per hour",
                description="Cost of the current nodes of the pools, in USD by the price list.",
                expr=f"sum(gpuform:pool:cost_per_hour{{{POOL}}})",
                unit="currencyUSD",
            )
        )
    return Section("Now", tuple(panels))


def _pools(priced: bool) -> Section:
    def per_pool(header: str, what: str, unit: str = "short") -> Column:
        return Column(header, f"sum by (pool, sharing) (gpuform:pool:{what}{{{POOL}}})", unit)

    columns = [
        per_pool("Declared", "gpus_declared"),
        per_pool("Allocatable", "gpus_allocatable"),
        per_pool("Requested", "gpus_requested"),
        per_pool("Busy", "gpus_used"),
        Column(
            "Busy of allocatable",
            f"sum by (pool, sharing) (gpuform:pool:gpus_used{{{POOL}}}) "
            f"/ (sum by (pool, sharing) ({_ALLOCATABLE}) > 0)",
            "percentunit",
            bar=True,
        ),
    ]
    if priced:
        columns.append(per_pool("USD per hour", "cost_per_hour", "currencyUSD"))
    table = Table(
        title="Pools",
        description="Each pool in whole GPUs. Allocatable below declared: nodes are missing, or offer too "
        "few GPUs.",
        keys={"pool": "Pool", "sharing": "Shared by"},
        columns=tuple(columns),
        links={"pool": ("GPUs of the pool", to("devices", "pool"))},
        sort="Declared",
    )
    return Section("Pools", (table,))


def _load() -> Section:
    whole = ("allocatable", "allocatable"), ("requested", "requested"), ("used", "busy")
    return Section(
        "Load",
        (
            Series(
                title="GPUs allocatable, requested, busy",
                description="The gap between the first two is free, between the last two allocated but idle.",
                queries=tuple(
                    Query(f"sum(gpuform:pool:gpus_{what}{{{POOL}}})", name) for what, name in whole
                ),
                unit="short",
            ),
            Series(
                title="Utilisation by pool",
                description="Mean of the pool's GPUs and slices: part of the time in which a kernel ran.",
                queries=(Query(f"avg by (pool) (gpuform:device:util_ratio{{{POOL}}})", "{{pool}}"),),
                unit="percentunit",
                most=1,
            ),
            Series(
                title="GPU memory in use by pool",
                description="Part of the memory of the pool's GPUs that is allocated.",
                queries=(
                    Query(
                        f"sum by (pool) (gpuform:device:memory_used_bytes{{{POOL}}}) "
                        f"/ sum by (pool) (gpuform:device:memory_total_bytes{{{POOL}}})",
                        "{{pool}}",
                    ),
                ),
                unit="percentunit",
                most=1,
            ),
            Series(
                title="Power by pool",
                description="Power draw of the GPUs, without the rest of the machine.",
                queries=(Query(f"sum by (pool) (gpuform:gpu:power_watts{{{POOL}}})", "{{pool}}"),),
                unit="watt",
                stacked=True,
            ),
            Series(
                title="Energy in the last hour by pool",
                description="Energy used by the GPUs in the hour up to each point.",
                queries=(
                    Query(
                        f"sum by (pool) (increase(gpuform:gpu:energy_joules_total{{{POOL}}}[1h])) / 3.6e6",
                        "{{pool}}",
                    ),
                ),
                unit="kwatth",
                stacked=True,
            ),
            Series(
                title="Hottest GPU by pool",
                description="Highest temperature in each pool; most data centre GPUs throttle from about 85 "
                "degrees.",
                queries=(Query(f"max by (pool) (gpuform:gpu:temperature_celsius{{{POOL}}})", "{{pool}}"),),
                unit="celsius",
                steps=_HOT,
            ),
        ),
    )


def _nodes() -> Section:
    used, total = (f"sum by (node, pool) (gpuform:device:memory_{what}_bytes{{{POOL}}})" for what in _MEMORY)
    table = Table(
        title="Nodes with GPUs",
        description="Mean utilisation, memory, total power and highest temperature of each node's GPUs.",
        keys={"node": "Node", "pool": "Pool"},
        columns=(
            Column(
                "Utilisation",
                f"avg by (node, pool) (gpuform:device:util_ratio{{{POOL}}})",
                "percentunit",
                bar=True,
            ),
            Column("Memory in use", f"{used} / {total}", "percentunit", bar=True),
            Column("Power", f"sum by (node, pool) (gpuform:gpu:power_watts{{{POOL}}})", "watt"),
            Column(
                "Hottest",
                f"max by (node, pool) (gpuform:gpu:temperature_celsius{{{POOL}}})",
                "celsius",
                steps=_HOT,
            ),
        ),
        links={"node": ("GPUs of the node", to("devices", "node"))},
        sort="Utilisation",
        height=10,
    )
    return Section("Nodes", (table,))


_MEMORY = ("used", "total")

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
        "fleet", "GPU fleet", "All GPUs at a glance: there, asked for, busy, warm, paid for.", sections
    )


def _now(priced: bool) -> Section:
    panels: list[Panel] = [
        Stat(
            title="GPUs declared",
            description="What the pools say, in whole GPUs; of elastic pools, what their nodes have.",
            expr=f"sum(gpuform:pool:gpus_declared{{{POOL}}})",
            unit="short",
        ),
        Stat(
            title="GPUs offered",
            description="What the nodes offer to pods now, in whole GPUs; slices and shares count as "
            "their part.",
            expr=f"sum({_ALLOCATABLE})",
            unit="short",
        ),
        Stat(
            title="Asked for",
            description="Part of the offered GPUs that pods have asked for and got.",
            expr=f"sum(gpuform:pool:gpus_requested{{{POOL}}}) / sum({_ALLOCATABLE})",
            unit="percentunit",
        ),
        Stat(
            title="Busy",
            description="Part of the offered GPUs that computes; the rest of what was asked for is "
            "held idle.",
            expr=f"sum(gpuform:pool:gpus_used{{{POOL}}}) / sum({_ALLOCATABLE})",
            unit="percentunit",
        ),
        Stat(
            title="Faults",
            description="GPUs with a fault that a reset or another card must mend.",
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
                description="Price of the pools' nodes that are there, USD by the price list.",
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
        per_pool("Offered", "gpus_allocatable"),
        per_pool("Asked for", "gpus_requested"),
        per_pool("Busy", "gpus_used"),
        Column(
            "Busy of offered",
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
        description="Each pool in whole GPUs. Offered less than declared: nodes are missing, or "
        "offer too few.",
        keys={"pool": "Pool", "sharing": "Shared by"},
        columns=tuple(columns),
        links={"pool": ("GPUs of the pool", to("devices", "pool"))},
        sort="Declared",
    )
    return Section("Pools", (table,))


def _load() -> Section:
    whole = ("allocatable", "offered"), ("requested", "asked for"), ("used", "busy")
    return Section(
        "Load",
        (
            Series(
                title="GPUs offered, asked for, busy",
                description="The gap between the first two is free, between the last two held idle.",
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
                description="What the GPUs draw; the rest of the machine is not in it.",
                queries=(Query(f"sum by (pool) (gpuform:gpu:power_watts{{{POOL}}})", "{{pool}}"),),
                unit="watt",
                stacked=True,
            ),
            Series(
                title="Energy in the last hour by pool",
                description="What the GPUs took in each hour that ends at the point.",
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
                description="The warmest of each pool; most data centre GPUs slow down from about 85 "
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
        description="Means, sums and the warmest of each node's GPUs.",
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

"""``gpuform whatif``: replays a trace of jobs against a stack's pools, in a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import AsJson, OnlyStack, say, show, working
from gpuform.reports.tables import build_table
from infra.config import price_list
from infra.planner import replay, trace
from infra.planner.placement import POLICIES, Nodes
from infra.strict_yaml import short_path

_COLUMNS = (
    *("policy", "allocated", "at peak", "waited", "mean wait", "p95 wait", "fragments at peak"),
    *("GPU-hours", "of nodes", "USD"),
)


def whatif(
    stack: OnlyStack,
    file: Annotated[Path, typer.Option("--trace", help="Jobs as csv: docs/howto/whatif.md.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(help=f"Placement policy, all by default: {', '.join(POLICIES)}. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace of jobs against the stack's pools, in a model, under several placement policies.

    Nothing is started. Jobs arrive, wait for room, run and end; elastic pools are at their limit.
    """
    for name in policy or ():
        if name not in POLICIES:
            raise InputError("--policy", f"unknown policy {name!r}", f"known: {', '.join(POLICIES)}")
    paths = Paths.here()
    env = load_environment(stack, paths)
    file = short_path(file)
    jobs = trace.read_jobs(file)
    pools, unknown = replay.pool_nodes(env, price_list(env, paths.prices))
    replay.check(jobs, file, Nodes([one.size for one in pools if one.count]))
    with working("replaying") as state:
        outcomes = []
        for name in dict.fromkeys(policy or POLICIES):
            state(name)
            outcomes.append(replay.replay(name, POLICIES[name], jobs, pools))
    sizes = [
        {"name": one.pool, "nodes": one.count, "gpus": one.gpus, "elastic": one.elastic} for one in pools
    ]
    document = {
        "stack": stack,
        "jobs": len(jobs),
        "pools": sizes,
        "policies": [asdict(one) for one in outcomes],
        "unknown": unknown,
    }
    gpus = sum(one.count * one.gpus for one in pools)
    title = f"{count_of(len(jobs), 'job')} on {count_of(gpus, 'GPU')} of stack {stack}"
    show(as_json, document, [build_table(title, _COLUMNS, map(_row, outcomes), whole=_COLUMNS)])
    if not as_json:
        for line in unknown:
            say(line)
        say(
            "a model: no pod was started; taints of pools, selectors, zones, quotas, priorities, gangs, the "
            "start of nodes and the speed of shared GPUs are left out"
        )


def _row(one: replay.Outcome) -> tuple[str, ...]:
    return (
        one.policy,
        f"{one.allocated_mean:.1%}",
        f"{one.allocated_peak:.1%}",
        str(one.waited),
        _duration(one.wait_mean_s),
        _duration(one.wait_p95_s),
        f"{one.fragmented:.1%}",
        f"{one.gpu_hours:,.1f}",
        f"{one.node_gpu_hours:,.1f}",
        "unknown" if one.usd is None else f"{one.usd:,.2f}",
    )


def _duration(seconds: float) -> str:
    """``42 s``, ``12 min``, ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"

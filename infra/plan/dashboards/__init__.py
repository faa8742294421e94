"""Grafana dashboards of an environment: a YAML file each, completed with what the environment declares.

A file has rows of panels, from left to right; a panel that does not fit starts a new line. The first key of
a panel is its kind (``panels.py``), with its title; ``help`` is shown at its corner. ``width`` and ``height``
are Grafana's grid: 24 columns, lines of about 30 pixels. ``let`` names expressions of the file.

They query the recorded series (``infra.plan.rules``); NVIDIA's own series only for the GPU itself: on the
dashboards devices and pipes, and for the errors on health. A panel that could never show anything in this
environment is left out (``when``): quotas if no namespace has one, Karpenter's limits if no pool uses
Karpenter, cost if no price is known. Panels with one line for each GPU or slice show the highest 50: 1000
GPUs can have 7000 slices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from infra.model.base.labels import GPU_UNHEALTHY
from infra.model.base.prices import HOURS_PER_MONTH, PriceList
from infra.model.environment import Environment
from infra.model.workload.workload import InferenceWorkload
from infra.plan import cost, scaling, templates
from infra.plan.rules.alerts import RUNBOOKS, pods, runbook_prefix
from infra.plan.scraping import JOB

NAMES = ("fleet", "capacity", "devices", "pipes", "sharing", "cost", "health")
"""The dashboards of every environment, in reading order."""

_SIMULATED = (
    "**Simulated.** The nodes of this environment and all metrics of their GPUs come from gpuform's "
    "simulator. Prometheus, kube-state-metrics, the rules and these queries are real."
)
_NOTE = {"About this dashboard": [{"text": "", "content": _SIMULATED}]}
"""First row of each dashboard if the nodes are simulated."""
_COMMON = {
    "pool": 'pool=~"$pool"',
    "node": 'node=~"$node"',
    "namespace": 'namespace=~"$namespace"',
    # NVIDIA's series have no label pool; nodes without a pool are left out.
    "of_pool": '* on (node) group_left (pool) gpuform:node:info{pool=~"$pool"}',
    # One value per GPU: the exporter repeats a GPU's metrics for each of its slices.
    "each_gpu": "max by (node, pool, gpu)",
    "gpu": "{{node}} gpu {{gpu}}",
    "device": "{{node}} gpu {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}",
    "job": JOB,
    "unhealthy": GPU_UNHEALTHY,
    "month": HOURS_PER_MONTH,
}
"""What the files are completed with: selectors of the variables."""


def dashboards(env: Environment) -> dict[str, dict[str, Any]]:
    """JSON model of each dashboard by name; the same environment gives the same bytes."""
    return _models(_values(env), _NOTE if env.cluster.kind == "embedded" else {})


def texts(env: Environment) -> Mapping[str, str]:
    """The models as JSON text, made once for all environments that complete the files with the same."""
    values, first_row = _values(env), _NOTE if env.cluster.kind == "embedded" else {}
    return _texts(_Completed(repr((values, first_row)), values, first_row))


@dataclass(frozen=True)
class _Completed:
    """Compared by ``key``, the text of the others: these are neither hashable nor changed."""

    key: str
    values: Mapping[str, Any] = field(compare=False)
    first_row: Mapping[str, Any] = field(compare=False)


@lru_cache(maxsize=16)
def _texts(of: _Completed) -> Mapping[str, str]:
    return {
        name: json.dumps(model, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for name, model in _models(of.values, of.first_row).items()
    }


def _models(values: Mapping[str, Any], first_row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Grafana's SDK is imported here, so that a program without monitoring does not wait for it."""
    from infra.plan.dashboards import grafana

    models = {}
    for name in NAMES:
        board = templates.read(Path(__file__).with_name(f"{name}.yaml"))
        rows = templates.fill(board["rows"], templates.with_let(board.get("let", {}), values))
        models[name] = grafana.model({**board, "name": name, "rows": {**first_row, **rows}})
    return models


def _values(env: Environment) -> dict[str, Any]:
    """What the files are completed with; ``when`` of a panel names a fact, ``each`` a list."""
    priced = _priced_pools(env)
    unpriced = [f"`{pool.name}`" for pool in env.pools if pool.gpus and pool.name not in priced]
    inference = [work for work in env.workloads if isinstance(work, InferenceWorkload)]
    budget = env.cost.budget_usd_per_month if env.cost else None
    return {
        **_COMMON,
        "quotas": env.namespaces,
        "karpenter": env.has_karpenter,
        "node_groups": any(pool.elastic for pool in env.pools) and env.cluster.kind == "openstack",
        "layouts": env.has_mig_manager and any(pool.cuts for pool in env.pools),
        "nvlink": any(gpu.nvlink for pool in env.pools for gpu in pool.gpus),
        "queues": env.queues,
        "scaled": [_workload_values(env, work) for work in inference if work.scale],
        "measured": [_workload_values(env, work) for work in inference if scaling.query(env, work)],
        "priced": priced,
        "unpriced": ", ".join(unpriced),
        "budget": {} if budget is None else {budget: "red"},
        "of_budget": "" if budget is None else f"; red from the budget of {budget:,.0f} USD on",
        "runbooks": runbook_prefix(env),
        "runbook": f"{runbook_prefix(env)}{RUNBOOKS}/$1.md",
    }


def _priced_pools(env: Environment) -> frozenset[str]:
    """Pools with a known price of one of their GPUs; the bill must count their nodes."""
    lines = {line.item for line in cost.bill(env, PriceList()).lines if line.units}
    return frozenset(pool.name for pool in env.pools if pool.gpus and f"pool {pool.name}" in lines)


def _workload_values(env: Environment, work: InferenceWorkload) -> dict[str, str]:
    return {"work": f"{work.namespace}/{work.name}", "pods": pods(work), "query": scaling.query(env, work)}

"""What the dashboards' files are completed with: selectors of the variables, and facts of the environment."""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment
from infra.model.labels import GPU_UNHEALTHY
from infra.model.prices import HOURS_PER_MONTH, PriceList
from infra.model.workload import InferenceWorkload
from infra.plan import cost, scaling
from infra.plan.rules.alerts import RUNBOOKS, pages, pods
from infra.plan.scraping import JOB

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


def values(env: Environment) -> dict[str, Any]:
    """Everything by name; ``when`` of a panel names a fact, ``each`` a list."""
    priced = _priced(env)
    unpriced = [f"`{pool.name}`" for pool in env.pools if pool.gpus and pool.name not in priced]
    works = [work for work in env.workloads if isinstance(work, InferenceWorkload)]
    budget = env.cost.budget_usd_per_month if env.cost else None
    return {
        **_COMMON,
        "quotas": env.namespaces,
        "karpenter": any(env.by_karpenter(pool) for pool in env.pools),
        "node_groups": any(pool.elastic for pool in env.pools) and env.cluster.kind == "openstack",
        "layouts": env.has_mig_manager and any(pool.layout for pool in env.pools),
        "nvlink": any(gpu.nvlink for pool in env.pools for gpu in pool.gpus),
        "queues": env.queues,
        "scaled": [_served(env, work) for work in works if work.scale],
        "measured": [_served(env, work) for work in works if scaling.query(env, work)],
        "priced": priced,
        "unpriced": ", ".join(unpriced),
        "budget": {} if budget is None else {budget: "red"},
        "of_budget": "" if budget is None else f"; red from the budget of {budget:,.0f} USD on",
        "runbooks": pages(env),
        "runbook": f"{pages(env)}{RUNBOOKS}/$1.md",
    }


def _priced(env: Environment) -> frozenset[str]:
    """Pools with a known price of one of their GPUs; the bill must count their nodes."""
    lines = {line.what for line in cost.bill(env, PriceList()).lines if line.units}
    return frozenset(pool.name for pool in env.pools if pool.gpus and f"pool {pool.name}" in lines)


def _served(env: Environment, work: InferenceWorkload) -> dict[str, str]:
    return {"work": f"{work.namespace}/{work.name}", "pods": pods(work), "query": scaling.query(env, work)}

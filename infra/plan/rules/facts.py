"""Facts of the environment's pools, as series: the other rules are then the same on every stack.

``offer.unit_parts`` says how much of a GPU a unit is: a slice counts by its compute slices, and a GPU is the
sum of its slices. Claimed GPUs are not a resource, so their requests are unknown; their use is known.
Prices are those of ``gpuform preview``; a pool without a price has no cost here either.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.model.aws.cluster import AwsCluster
from infra.model.base.labels import GPU_COUNT, INSTANCE_GPU_COUNT, NVIDIA_GPU
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.elastic import MEMORY_GIB, NODES
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig
from infra.plan import cost
from infra.plan.rules.promql import NODE_INFO, Rule, constant, label, number, record

UNIT = "gpuform:unit:gpus"
DEVICE_PART = "gpuform:device:gpus"
PER_NODE = "gpuform:unit:per_node"
NODE_GPUS = "gpuform:node:gpus"
NODE_DECLARED = "gpuform:resource:declared"
NODE_SIZE = "gpuform:nodepool:node_size"
MAX_NODES = "gpuform:nodepool:nodes_most"
DECLARED = "gpuform:pool:gpus_declared"
COST = "gpuform:pool:cost_per_hour"
CLAIM = "claim"
"""Stands for the resource of claimed GPUs."""
_GIB = 1024**3
_NO_NODES = "0 * max(kube_node_info)"
"""Zero (a pool without nodes) while the cluster's state is known, else no series."""


def rules(env: Environment) -> Iterator[Rule]:
    """Recording rules of facts: per pool units, nodes and limits, then costs."""
    yield record("gpuform:rules:running", "vector(1)")
    for pool in env.pools:
        if pool.gpus:
            yield from _units(env, pool)
            yield from _nodes(env, pool)
            yield _declared(pool)
        yield from _node_sizes(env, pool)
    yield from _costs(env)


def _labels(pool: Pool) -> dict[str, str]:
    return {"pool": pool.name, "sharing": pool.sharing.kind}


def _units(env: Environment, pool: Pool) -> Iterator[Rule]:
    """GPUs in one unit of each resource and one device of each profile, and units on the largest node."""
    for resource, part in allocatable.unit_parts(pool).items():
        yield constant(UNIT, part, {**_labels(pool), "resource": label(resource)})
    for profile, (resource, part) in _devices(pool).items():
        instance = {"GPU_I_PROFILE": profile} if profile else {}
        yield constant(DEVICE_PART, part, {**_labels(pool), "resource": resource, **instance})
    for resource, count in allocatable.max_resources(pool).items():
        yield constant(PER_NODE, count, {"pool": pool.name, "resource": label(resource)})


def _devices(pool: Pool) -> dict[str, tuple[str, float]]:
    """Resource and part of a GPU by MIG profile; the profile of a whole GPU is empty."""
    parts = allocatable.unit_parts(pool)
    if not pool.cuts:
        resource = CLAIM if pool.by_claim else label(next(iter(parts)))
        return {"": (resource, 1.0)}
    result = {name: (_resource(pool, name), part) for name, part in allocatable.slice_parts(pool).items()}
    if pool.whole_gpus:
        result[""] = (label(NVIDIA_GPU), 1.0)
    return result


def _resource(pool: Pool, profile: str) -> str:
    if not isinstance(pool.sharing, Mig):
        return CLAIM
    base = allocatable.mig_resource(profile) if pool.strategy == "mixed" else NVIDIA_GPU
    return label(allocatable.shared_name(base, pool.sharing.share))


def _nodes(env: Environment, pool: Pool) -> Iterator[Rule]:
    """GPUs and resources that each node should have; by a label if nodes differ."""
    resources_by_gpus = {gpus: allocatable.resources(pool, gpus) for gpus in pool.gpu_counts}
    pool_label = {"pool": pool.name}
    yield record(NODE_GPUS, _per_node(pool, {gpus: gpus for gpus in resources_by_gpus}), pool_label)
    for resource in resources_by_gpus[pool.gpu_counts[-1]]:
        amounts = {gpus: names[resource] for gpus, names in resources_by_gpus.items()}
        yield record(NODE_DECLARED, _per_node(pool, amounts), {**pool_label, "resource": label(resource)})


def _per_node(pool: Pool, amounts: dict[int, int]) -> str:
    nodes = f'{NODE_INFO}{{pool="{pool.name}"}}'
    if len(amounts) == 1:
        return f"{next(iter(amounts.values()))} * {nodes}"
    count = f"label_{label(INSTANCE_GPU_COUNT if pool.elastic else GPU_COUNT)}"
    terms = [
        f'{amount} * ({nodes} and on (node) kube_node_labels{{{count}="{gpus}"}})'
        for gpus, amount in amounts.items()
    ]
    return " or ".join(terms)


def _declared(pool: Pool) -> Rule:
    """GPUs of the pool: declared, or those of its current nodes if their number is not declared."""
    if pool.declared_nodes and not pool.bounds:
        return constant(DECLARED, pool.declared_nodes * pool.gpu_count, _labels(pool))
    return record(DECLARED, f'sum({NODE_GPUS}{{pool="{pool.name}"}}) or {_NO_NODES}', _labels(pool))


def _node_sizes(env: Environment, pool: Pool) -> Iterator[Rule]:
    """What a node counts against each limit: in a NodePool the smallest machine, in Karpenter's units.

    In a node group that an autoscaler scales each node counts as one, and the maximum is a series too.
    """
    if pool.bounds:
        labels = {"nodepool": pool.name, "pool": pool.name, "resource_type": NODES}
        yield constant(NODE_SIZE, 1, labels)
        yield constant(MAX_NODES, pool.max_nodes, labels)
    if pool.elastic is None or not isinstance(env.cluster, AwsCluster) or not pool.machines:
        return
    amounts = [allocatable.limit_amounts(pool, machine) for machine in pool.machines]
    for name in pool.node_pools:
        for key in pool.elastic.max:
            size = min(amount.get(key, 0) for amount in amounts)
            kind = "memory" if key == MEMORY_GIB else key.lower().replace("-", "_")
            labels = {"nodepool": name, "pool": pool.name, "resource_type": kind}
            if size:
                yield constant(NODE_SIZE, size * (_GIB if key == MEMORY_GIB else 1), labels)


def _costs(env: Environment) -> Iterator[Rule]:
    lines = {line.item: line for line in cost.bill(env, PriceList()).lines}
    for pool in env.pools:
        line = lines.get(f"pool {pool.name}")
        if line is None:
            continue
        if pool.elastic is None and not pool.bounds:
            if line.low is not None:
                yield constant(COST, line.low, _labels(pool))
        elif pool.gpus and "GPU" in line.units:
            gpu = line.units["GPU"] * _factor(env, pool)
            yield record(COST, f'{number(gpu)} * sum({DECLARED}{{pool="{pool.name}"}})', _labels(pool))
        elif line.high and line.max_count and (pool.flavor or len(pool.machines) == 1):
            nodes = f'count({NODE_INFO}{{pool="{pool.name}"}}) or {_NO_NODES}'
            yield record(COST, f"{number(line.high / line.max_count)} * ({nodes})", _labels(pool))


def _factor(env: Environment, pool: Pool) -> float:
    """Spot factor of a pool bought only as spot, if declared; else 1, the on-demand price."""
    factor = env.cost.spot_factor if env.cost else None
    return factor if factor is not None and pool.capacity == ("spot",) else 1.0

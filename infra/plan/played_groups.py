"""Simulated nodes of Magnum's node groups as they join: with the group's label, and none of gpuform's.

For the embedded control plane. The program and the pool keeper set the labels and taints of the pools, as on
real nodes. A group of fixed size has its declared number of nodes, an elastic one as many as the
environment's own workloads need, within its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from infra.model import labels, operator_checks
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.model.pool import Pool
from infra.plan import magnum, played_nodes
from infra.plan.nodes import bare

Manifest = dict[str, Any]


def manifests(env: Environment, proven: bool = False) -> tuple[Manifest, ...]:
    """The nodes of an OpenStack environment: Magnum's default workers, then pool after pool.

    ``proven`` nodes carry the readiness gate's proof, for runs without a gate.
    """
    made = [*_workers(env)]
    for pool in env.pools:
        made += [joining(env, pool, f"{pool.name}-{index}", proven) for index in range(size(env, pool))]
    return tuple(made)


def joining(env: Environment, pool: Pool, name: str, proven: bool = False) -> Manifest:
    """A node of the pool's group as it joins the cluster."""
    machine = pool.flavor
    assert machine is not None  # checked when the environment was parsed
    made = bare(env, pool, machine, name, magnum.selector(env, pool))
    if pool.gpus and env.ownership.driver != "operator":
        driver = operator_checks.driver_version(env.gpu_operator, [pool])
        made["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = driver
    if pool.gpus and proven:
        made["metadata"]["annotations"][labels.GPU_READY] = "played"
    return made


def size(env: Environment, pool: Pool) -> int:
    """Number of nodes once the group has scaled for the environment's workloads, within its bounds."""
    machine = pool.flavor
    if pool.elastic is None or machine is None:
        return pool.least
    work = [one for one in env.workloads if pool.name == (one.pool or played_nodes.taken(env, one))]
    fits = [max(1, played_nodes.per_node(env, pool, machine, one)) for one in work]
    needed = sum(math.ceil(one.pods / fit) for one, fit in zip(work, fits, strict=True)) + (pool.spare or 0)
    return min(max(needed, pool.least), pool.most)


def unknown(env: Environment) -> str:
    """Message that the default workers' size is not declared; empty if their flavor is known."""
    declared = magnum.cluster_of(env)
    if declared.machine(declared.workers.flavor):
        return ""
    flavor = declared.workers.flavor or "the template's flavor"
    return f"cores and memory of {magnum.DEFAULT_WORKERS} ({flavor}) are not declared"


def _workers(env: Environment) -> Iterator[Manifest]:
    declared = magnum.cluster_of(env)
    cores, gib = played_nodes.UNDECLARED
    flavor = declared.workers.flavor or magnum.DEFAULT_WORKERS
    machine = declared.machine(declared.workers.flavor) or Machine(flavor, "openstack", cores, gib)
    label = {magnum.GROUP_LABELS[declared.driver]: magnum.DEFAULT_WORKERS}
    for index in range(declared.workers.nodes):
        yield bare(env, None, machine, f"{magnum.DEFAULT_WORKERS}-{index}", label)

"""Simulated nodes of an AWS environment: those that node groups and Karpenter would make.

For the embedded control plane. A pool of fixed size has its declared number of nodes. An elastic pool has as
many as the environment's own workloads need on the smallest machine that fits them, and its spare nodes,
within its limits; real Karpenter also compares prices, and may choose larger machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from infra import versions
from infra.model import checks, choice, labels, surge
from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.environment import Environment
from infra.model.machines import Machine
from infra.model.node_room import left_by_kubelet, room
from infra.model.pool import Pool
from infra.model.workload import Workload
from infra.plan import node_groups, sharing, startup
from infra.plan.nodes import node, sizes

_MIB = 2**20
UNDECLARED = (256, 2048)
"""Cores and GiB of nodes of undeclared size; larger than any real node, so that no pod waits for them."""

Manifest = dict[str, Any]


def manifests(env: Environment, waiting: bool = False, fixed_only: bool = False) -> tuple[Manifest, ...]:
    """The nodes of an AWS environment, pool after pool.

    GPU nodes are as the readiness gate leaves them; with ``waiting`` as they join, with the startup taint
    that only a gate removes. ``fixed_only`` leaves out Karpenter's nodes, for runs with a Karpenter.
    """
    pools = [node_groups.system_pool(env), *env.pools]
    if fixed_only:
        pools = [pool for pool in pools if not pool.by_karpenter]
    return tuple(made for pool in pools for made in _of(env, pool, waiting))


def _of(env: Environment, pool: Pool, waiting: bool) -> Iterator[Manifest]:
    machine, count = _bought(env, pool)
    if machine is None:
        return
    for index in range(count):
        made = node(env, pool, machine, f"{pool.name}-{index}")
        made["metadata"]["annotations"] |= sizes(left_by_kubelet(pool, machine))
        if machine.model:  # the image has a driver, so the operator installs none
            made["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = versions.GPU_DRIVER
        if machine.model and pool.by_karpenter:  # Karpenter labels nodes by instance type
            made["metadata"]["labels"][labels.INSTANCE_GPU_COUNT] = str(machine.gpus)
        if waiting:
            made["metadata"]["annotations"].update(startup.promise(env, pool))
            taints = [*made.get("spec", {}).get("taints", []), *startup.startup_taints(env, pool)]
            made["spec"] = {"taints": taints}
        yield made


def _bought(env: Environment, pool: Pool) -> tuple[Machine | None, int]:
    machines = sorted(pool.machines, key=lambda one: (one.vcpu, one.memory, one.name))
    if pool.elastic is None:
        return (machines[0] if machines else None), pool.nodes or 0
    work = [one for one in env.workloads if pool.name == (one.pool or taken(env, one))]
    for machine in machines:
        fits = [per_node(env, pool, machine, one) for one in work]
        if (work or pool.spare) and all(fits):
            count = sum(math.ceil(one.pods / fit) for one, fit in zip(work, fits, strict=True))
            count += pool.spare or 0
            return machine, min(count, surge.most_nodes(env.strategy(pool), pool, machine))
    return None, 0


def taken(env: Environment, work: Workload) -> str | None:
    """First pool that satisfies the workload's GPU need; None if there is none, or no need is declared."""
    strategy = env.gpu_operator.mig_strategy
    found = choice.units(strategy, env.pools, work.gpu, work.slice) if work.gpu else ()
    return found[0].pool.name if found else None


def per_node(env: Environment, pool: Pool, machine: Machine, work: Workload) -> int:
    """Pods of a workload that one empty node takes."""
    has = room(env, pool, machine)
    bounds = [has.pods, has.cpu // cpu_millis(work.cpu), has.memory * _MIB // memory_bytes(work.memory)]
    asked = checks.request(env.strategy(pool), [pool], work)
    if asked:
        bounds.append(sharing.offered(env, pool, machine.gpus)[asked] // work.amount)
    if work.efa:
        bounds.append(pool.adapters // work.efa)
    if work.hugepages:
        bounds.append(memory_bytes(pool.hugepages or "0Mi") // memory_bytes(work.hugepages))
    return min(bounds)

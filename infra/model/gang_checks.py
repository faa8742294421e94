"""Checks of gangs: pools in which Kueue can place them, and gangs that no pool can ever hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.model import labels, offer, surge
from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.queues import Queues
from infra.model.workload import JobWorkload, Workload

if TYPE_CHECKING:
    from infra.model.environment import Environment


def check_topology(env: Environment, queues: Queues) -> None:
    """Refuse pools in which Kueue's topology-aware scheduling would admit nothing, or too much.

    It places pods on nodes that exist, or on those of a ProvisioningRequest, which Karpenter does not know
    (Kueue, keps/2724-topology-aware-scheduling, Non-Goals). It counts what pods request, and no claims
    (keps/2941-DRA: "does not work with Topology Aware Scheduling").
    """
    pools = {pool.name: pool for pool in env.pools}
    for name in queues.topology:
        path = f"queues.topology.{name}"
        if name not in pools:
            raise InputError(path, f"unknown pool {name!r}", listing(pools, name))
        if not any(name in team.quota for team in queues.teams):
            raise InputError(path, "no team's quota names this pool", "leave it out, or add it to a quota")
        if pools[name].elastic:
            fact = "the pool is elastic, and Kueue places pods only on nodes that exist"
            raise InputError(path, fact, "leave it out, or give the pool nodes: N")
        if pools[name].by_claim:
            fact = "its GPUs are allocated by claim, which Kueue does not count on a node"
            raise InputError(path, fact, "leave it out, or use another sharing")


def check_workload(env: Environment, queues: Queues, work: Workload, names: Sequence[str], path: str) -> None:
    """``names`` are the pools in which the workload's queue may admit it."""
    placed = [name for name in names if name in queues.topology]
    gang = isinstance(work, JobWorkload) and work.gang
    if gang and not placed:
        which = " or ".join(names)
        fact = (
            f"queues.topology does not name pool {which}, so some of the pods could start without the others"
        )
        raise InputError(f"{path}.gang", fact, f"add it, as topology: {{{names[0]}: []}}")
    if not gang and placed and len(placed) < len(names):
        others = [name for name in names if name not in placed]
        fact = (
            f"pool {placed[0]} has a topology and pool {others[0]} has none, and Kueue looks at one kind only"
        )
        raise InputError(f"{path}.queue", fact, "name the pool")
    if not isinstance(work, JobWorkload):
        return
    if gang:
        _check_gang(env, queues, work, placed, path)
    _check_held(env, work, placed if gang else names, path)


def _check_gang(
    env: Environment, queues: Queues, work: JobWorkload, placed: Sequence[str], path: str
) -> None:
    shared = [name for name in placed if offer.shared(env.pool(name))]
    if shared:
        fact = f"pool {shared[0]} offers shares, and several of the pods could get the same GPU"
        raise InputError(f"{path}.gang", fact, "leave it out, or use a pool of whole GPUs or slices")
    if work.topology is None:
        return
    known = dict.fromkeys(level for name in placed for level in (*queues.topology[name], labels.HOSTNAME))
    if work.topology.level not in known:
        key = "required" if work.topology.required else "preferred"
        fact = f"no level {work.topology.level} in the topology of pool {' or '.join(placed)}"
        raise InputError(f"{path}.topology.{key}", fact, listing(known, work.topology.level))


def _check_held(env: Environment, work: JobWorkload, names: Sequence[str], path: str) -> None:
    """Kueue admits a job with all its pods in one pool; the limit of an elastic pool may still be raised."""
    pools = [env.pool(name) for name in names]
    held = [surge.held(env.gpu_operator.mig_strategy, pool, env.pools, work) for pool in pools]
    known = [number for number in held if number is not None]
    if len(known) < len(held) or any(pool.elastic for pool in pools):
        return
    if work.pods > max(1, *known):  # one that fits no node: see node_room
        where = " or ".join(names)
        fact = f"all nodes of pool {where} hold {max(known)} such pods, and a job in a queue runs in one pool"
        raise InputError(f"{path}.parallelism", fact, "use fewer or smaller pods, or more nodes")

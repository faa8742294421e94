"""Room for an update's new pods beside the old ones, within the nodes that pools may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from infra.model import checks, choice, offer
from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.elastic import CPU, MEMORY_GIB
from infra.model.errors import InputError
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.serving import Surge
from infra.model.workload import DeploymentWorkload, InferenceWorkload, JobWorkload, Workload

if TYPE_CHECKING:
    from infra.model.environment import Environment

CLAIMED = ".deviceclass.resource.k8s.io/devices"
"""ResourceQuota key suffix for devices of a class (k8s.io/api, core/v1 ResourceClaimsPerClass)."""
_UNKNOWN = 2**63
_AWAY_AT_ONCE = 4
"""From this many replicas on, Kubernetes' default update ends an old pod before a new one is ready."""


def _pools(env: Environment, work: Workload) -> list[Pool]:
    return choice.pools_of(env.gpu_operator.mig_strategy, env.pools, work)


def asks(env: Environment, work: Workload) -> dict[str, int]:
    """Requests of each pod of a workload, by quota key; empty if it requests no GPU."""
    found = _pools(env, work)
    if not found:
        return {}
    claimed = [name for pool in found for name in offer.claimable(pool)]
    if claimed:
        return {claimed[0] + CLAIMED: work.amount}
    resource = checks.request(env.gpu_operator.mig_strategy, found, work)
    return {offer.quota_key(resource): work.amount} if resource else {}


def pods(env: Environment, work: Workload) -> int:
    """Extra pods of an update.

    Kubernetes' default lets a quarter of the pods be unavailable, rounded down; if that is 0, a new pod
    starts first.
    """
    if not isinstance(work, DeploymentWorkload):
        return 0
    if isinstance(work.update, Surge):
        return work.update.step
    by_default = work.update is None and work.pods < _AWAY_AT_ONCE
    return int(by_default and not scarce(env, work))


def scarce(env: Environment, work: DeploymentWorkload) -> bool:
    """Whether Kubernetes' default update might wait forever: for a GPU of a fixed number of nodes, for a
    node that the pool's limit does not allow, or in a queue for quota that the old pods have.
    """
    if work.queue or any(pool.gpus and not pool.elastic for pool in _pools(env, work)):
        return True
    return work.pods < _AWAY_AT_ONCE and not _fit(env, work, 1)


def check(env: Environment) -> None:
    """Refuse updates that no node has room for, and more pods than pools of a fixed size hold.

    ``update: {kind: surge}`` would wait forever. Pods count of one workload, and of Deployments together; the
    limit of an elastic pool is a budget, which may be raised while pods wait.
    """
    for index, work in enumerate(env.workloads):
        update = work.update if isinstance(work, DeploymentWorkload) else None
        if isinstance(update, Surge) and not _fit(env, work, update.step):
            where = " or ".join(pool.name for pool in _pools(env, work))
            fact = f"{work.pods} pods and {update.step} new ones beside them have no room within the nodes of"
            remedy = "use kind: rolling, or allow more nodes"
            raise InputError(f"workloads[{index}].update", f"{fact} pool {where}", remedy)
    for index, work in enumerate(env.workloads):
        _check_held(env, index, work)


def _check_held(env: Environment, index: int, work: Workload) -> None:
    """The last of the Deployments that run nowhere else is refused; those in a queue wait for their turn."""
    mine = _pools(env, work)
    if not work.pinned and env.cluster.kind == "embedded":  # other clusters have more nodes than the pools'
        mine = [pool for pool in env.pools if not pool.gpus]
    if not mine or any(pool.elastic for pool in mine):
        return
    found = _held(env, mine, _needs(env, work))
    if found is None:
        return
    where, path = " or ".join(pool.name for pool in mine), f"workloads[{index}].{_counted(work)}"
    fewer = "use fewer or smaller pods, or more nodes"
    if work.pods > max(1, found[0]):  # one that fits no node: see node_room
        raise InputError(path, f"all nodes of pool {where} together hold {found[0]} such pods", fewer)
    if not _stays(work):
        return
    asked = _asked(env, [one for one in env.workloads[: index + 1] if _stays(one)], mine)
    for key, has in found[1].items():
        if asked[key] > has:
            what = {CPU: "cores", MEMORY_GIB: "memory"}.get(key, key.removeprefix("requests."))
            fact = f"with the Deployments before it, it needs more {what} than all nodes of pool {where} have"
            raise InputError(path, fact, fewer)


def _stays(work: Workload) -> bool:
    """Whether its pods never end, and wait in no queue."""
    return isinstance(work, DeploymentWorkload) and not work.queue


def _asked(env: Environment, works: Sequence[Workload], mine: Sequence[Pool]) -> Counter[str]:
    """What those of the workloads request that can run nowhere else."""
    found = Counter[str]()
    for one in works:
        where = _pools(env, one)
        if where and all(pool in mine for pool in where):
            found.update({key: amount * one.pods for key, amount in _needs(env, one).items()})
    return found


def held(env: Environment, pool: Pool, work: Workload) -> int | None:
    """How many of the workload's pods the pool's nodes hold together; None if its nodes are unknown."""
    found = _held(env, [pool], _needs(env, work))
    return None if found is None else found[0]


def _counted(work: Workload) -> str:
    """Key of the number of its pods."""
    if isinstance(work, InferenceWorkload) and work.scale:
        return "scale.max"
    return "parallelism" if isinstance(work, JobWorkload) else "replicas"


def _held(env: Environment, mine: Sequence[Pool], each: Mapping[str, int]) -> tuple[int, Counter[str]] | None:
    """How many such pods the pools' nodes hold, and the room of these nodes; None if nodes are unknown.

    Of different machines, the one that holds most counts: Karpenter buys what the limit still allows.
    """
    slots, room = 0, Counter[str]()
    for pool in mine:
        may = list(nodes(env.gpu_operator.mig_strategy, pool))
        if not may:
            return None
        able = [(count, has) for count, has in may if all(has.get(key, 0) >= each[key] for key in each)]
        slots += max((count * min(has[key] // each[key] for key in each) for count, has in able), default=0)
        room.update({key: max((count * has[key] for count, has in able), default=0) for key in each})
    return slots, room


def _fit(env: Environment, work: Workload, more: int) -> bool:
    """Whether the pods and ``more`` have room beside those that can run nowhere else.

    True if a pool's nodes are unknown, or the workload runs on any node.
    """
    mine, each = _pools(env, work), _needs(env, work)
    found = _held(env, mine, each)
    if not mine or found is None:
        return True
    rest = [one for one in env.workloads if (one.namespace, one.name) != (work.namespace, work.name)]
    slots, room, asked = *found, _asked(env, (work, *rest), mine)
    fits = all(asked[key] + more * each[key] <= room[key] for key in each)
    return fits and work.pods + more <= slots


def _needs(env: Environment, work: Workload) -> dict[str, int]:
    own = {CPU: cpu_millis(work.cpu), MEMORY_GIB: memory_bytes(work.memory)}
    return {**own, **asks(env, work)}


def nodes(strategy: MigStrategy, pool: Pool) -> Iterator[tuple[int, dict[str, int]]]:
    """For each machine of the pool: how many nodes of it the pool may have, and what one has for pods.

    Never all cores and all memory: the kubelet and DaemonSets have a part. Those of own hosts are unknown.
    """
    if pool.hosts:
        has = dict.fromkeys((CPU, MEMORY_GIB), _UNKNOWN)
        offered = offer.offered(strategy, pool, pool.gpu_count)
        yield len(pool.hosts), has | {offer.quota_key(key): number for key, number in offered.items()}
        return
    for machine in pool.machines or [one for one in (pool.node_machine,) if one]:
        count = pool.nodes
        if pool.elastic:  # each capacity type has the whole limit
            count = offer.most_nodes(strategy, pool, machine) * len(pool.capacity)
        if count is not None:
            has = {CPU: machine.vcpu * 1000 - 1, MEMORY_GIB: machine.memory * 2**30 - 1}
            for key, number in offer.offered(strategy, pool, machine.gpus).items():
                has[offer.quota_key(key)] = number
            yield count, has | {key + CLAIMED: number for key, number in offer.claimable(pool).items()}

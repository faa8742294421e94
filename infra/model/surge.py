"""Room for an update's new pods beside the old ones, within the nodes that pools may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from infra.model import checks, choice, offer
from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.elastic import CPU, MEMORY_GIB, NODES
from infra.model.errors import InputError
from infra.model.machines import Machine
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.rollout import Surge
from infra.model.workload import DeploymentWorkload, InferenceWorkload, JobWorkload, Workload

CLAIMED = ".deviceclass.resource.k8s.io/devices"
"""ResourceQuota key suffix for devices of a class (k8s.io/api, core/v1 ResourceClaimsPerClass)."""
_UNKNOWN = 2**63
_AWAY_AT_ONCE = 4
"""From this many replicas on, Kubernetes' default update ends an old pod before a new one is ready."""


def asks(strategy: MigStrategy, pools: Sequence[Pool], work: Workload) -> dict[str, int]:
    """Requests of each pod of a workload, by quota key; empty if it requests no GPU."""
    found = choice.pools_of(strategy, pools, work)
    if not found:
        return {}
    claimed = [name for pool in found for name in offer.claimable(pool)]
    if claimed:
        return {claimed[0] + CLAIMED: work.amount}
    resource = checks.request(strategy, found, work)
    return {offer.quota_key(resource): work.amount} if resource else {}


def pods(strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload], work: Workload) -> int:
    """Extra pods of an update.

    Kubernetes' default lets a quarter of the pods be unavailable, rounded down; if that is 0, a new pod
    starts first.
    """
    if not isinstance(work, DeploymentWorkload):
        return 0
    if isinstance(work.update, Surge):
        return work.update.step
    by_default = work.update is None and work.pods < _AWAY_AT_ONCE
    return int(by_default and not scarce(strategy, pools, workloads, work))


def scarce(
    strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload], work: DeploymentWorkload
) -> bool:
    """Whether Kubernetes' default update might wait forever: for a GPU of a fixed number of nodes, for a
    node that the pool's limit does not allow, or in a queue for quota that the old pods have.
    """
    if work.queue or any(pool.gpus and not pool.elastic for pool in choice.pools_of(strategy, pools, work)):
        return True
    return work.pods < _AWAY_AT_ONCE and not _fit(strategy, pools, workloads, work, 1)


def check(strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    """Refuse ``update: {kind: surge}`` that no node of the pools has room for: it would wait forever."""
    for index, work in enumerate(workloads):
        update = work.update if isinstance(work, DeploymentWorkload) else None
        if isinstance(update, Surge) and not _fit(strategy, pools, workloads, work, update.step):
            where = " or ".join(pool.name for pool in choice.pools_of(strategy, pools, work))
            fact = f"{work.pods} pods and {update.step} new ones beside them have no room within the nodes of"
            remedy = "use kind: rolling, or allow more nodes"
            raise InputError(f"workloads[{index}].update", f"{fact} pool {where}", remedy)


def check_held(
    cluster: str, strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]
) -> None:
    """Refuse more pods than pools of a fixed size hold: of one workload, and of Deployments together.

    The limit of an elastic pool is a budget, which may be raised while pods wait.
    """
    for index, work in enumerate(workloads):
        mine = choice.pools_of(strategy, pools, work)
        if not work.pinned and cluster == "embedded":  # other clusters have more nodes than the pools'
            mine = [pool for pool in pools if not pool.gpus]
        if not mine or any(pool.elastic for pool in mine):
            continue
        held = _held(strategy, mine, _needs(strategy, pools, work))
        if held is not None and work.pods > max(1, held[0]):  # one that fits no node: see node_room
            where = " or ".join(pool.name for pool in mine)
            fact = f"all nodes of pool {where} together hold {held[0]} such pods"
            raise InputError(
                f"workloads[{index}].{_counted(work)}", fact, "use fewer or smaller pods, or more nodes"
            )
        if held is not None and isinstance(work, DeploymentWorkload) and not work.queue:
            _check_together(strategy, pools, workloads[: index + 1], mine, held[1])


def _check_together(
    strategy: MigStrategy,
    pools: Sequence[Pool],
    workloads: Sequence[Workload],
    mine: Sequence[Pool],
    room: Mapping[str, int],
) -> None:
    """Refuse the last workload if Deployments that run nowhere else, and never end, leave it no room.

    Those in a queue wait for their turn.
    """
    asked = Counter[str]()
    for one in workloads:
        stays = isinstance(one, DeploymentWorkload) and not one.queue
        where = choice.pools_of(strategy, pools, one) if stays else ()
        if where and all(pool in mine for pool in where):
            asked.update({key: amount * one.pods for key, amount in _needs(strategy, pools, one).items()})
    for key, has in room.items():
        if asked[key] > has:
            pool = " or ".join(one.name for one in mine)
            what = {CPU: "cores", MEMORY_GIB: "memory"}.get(key, key.removeprefix("requests."))
            fact = f"with the Deployments before it, it needs more {what} than all nodes of pool {pool} have"
            path = f"workloads[{len(workloads) - 1}].{_counted(workloads[-1])}"
            raise InputError(path, fact, "use fewer or smaller pods, or more nodes")


def held(strategy: MigStrategy, pool: Pool, pools: Sequence[Pool], work: Workload) -> int | None:
    """How many of the workload's pods the pool's nodes hold together; None if its nodes are unknown."""
    found = _held(strategy, [pool], _needs(strategy, pools, work))
    return None if found is None else found[0]


def _counted(work: Workload) -> str:
    """Key of the number of its pods."""
    if isinstance(work, InferenceWorkload) and work.scale:
        return "scale.max"
    return "parallelism" if isinstance(work, JobWorkload) else "replicas"


def _held(
    strategy: MigStrategy, mine: Sequence[Pool], each: Mapping[str, int]
) -> tuple[int, Counter[str]] | None:
    """How many such pods the pools' nodes hold, and the room of these nodes; None if nodes are unknown.

    Of different machines, the one that holds most counts: Karpenter buys what the limit still allows.
    """
    slots, room = 0, Counter[str]()
    for pool in mine:
        may = list(nodes(strategy, pool))
        if not may:
            return None
        able = [(count, has) for count, has in may if all(has.get(key, 0) >= each[key] for key in each)]
        slots += max((count * min(has[key] // each[key] for key in each) for count, has in able), default=0)
        room.update({key: max((count * has[key] for count, has in able), default=0) for key in each})
    return slots, room


def _fit(
    strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload], work: Workload, more: int
) -> bool:
    """Whether the pods and ``more`` have room beside those that can run nowhere else.

    True if a pool's nodes are unknown, or the workload runs on any node.
    """
    mine, each = choice.pools_of(strategy, pools, work), _needs(strategy, pools, work)
    held, asked = _held(strategy, mine, each), Counter[str]()
    if not mine or held is None:
        return True
    slots, room = held
    rest = [one for one in workloads if (one.namespace, one.name) != (work.namespace, work.name)]
    for one in (work, *rest):
        where = choice.pools_of(strategy, pools, one)
        if where and all(pool in mine for pool in where):
            asked.update({key: amount * one.pods for key, amount in _needs(strategy, pools, one).items()})
    fits = all(asked[key] + more * each[key] <= room[key] for key in each)
    return fits and work.pods + more <= slots


def _needs(strategy: MigStrategy, pools: Sequence[Pool], work: Workload) -> dict[str, int]:
    own = {CPU: cpu_millis(work.cpu), MEMORY_GIB: memory_bytes(work.memory)}
    return {**own, **asks(strategy, pools, work)}


def most_nodes(strategy: MigStrategy, pool: Pool, machine: Machine) -> int:
    """Most nodes of that machine in an elastic pool; each capacity type has the whole limit."""
    assert pool.elastic is not None
    units = {CPU: machine.vcpu, MEMORY_GIB: machine.memory, NODES: 1}
    units |= offer.offered(strategy, pool, machine.gpus)
    found = [most // units[key] for key, most in pool.elastic.max.items() if key in units]
    return min(found, default=0) * len(pool.capacity)


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
        count = most_nodes(strategy, pool, machine) if pool.elastic else pool.nodes
        if count is not None:
            has = {CPU: machine.vcpu * 1000 - 1, MEMORY_GIB: machine.memory * 2**30 - 1}
            for key, number in offer.offered(strategy, pool, machine.gpus).items():
                has[offer.quota_key(key)] = number
            yield count, has | {key + CLAIMED: number for key, number in offer.claimable(pool).items()}

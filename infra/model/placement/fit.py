"""Room for an update's new pods beside the old ones, within the nodes that pools may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from infra.model.base.errors import InputError
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.elastic import CPU, MEMORY_GIB
from infra.model.pool.pool import Pool
from infra.model.workload import matching
from infra.model.workload.serving import Surge
from infra.model.workload.workload import DeploymentWorkload, InferenceWorkload, JobWorkload, Workload

CLAIM_SUFFIX = ".deviceclass.resource.k8s.io/devices"
"""ResourceQuota key suffix for devices of a class (k8s.io/api, core/v1 ResourceClaimsPerClass)."""
_UNKNOWN = 2**63
_UNAVAILABLE_FROM = 4
"""From this many replicas on, Kubernetes' default update ends an old pod before a new one is ready."""


def workload_pools(env: Environment, work: Workload) -> list[Pool]:
    """Pools on which the workload's pods may be scheduled."""
    return matching.pools_of(env.pools, work)


def requests_of(env: Environment, work: Workload) -> dict[str, int]:
    """Requests of each pod of a workload, by quota key; empty if it requests no GPU."""
    pools = workload_pools(env, work)
    if not pools:
        return {}
    claimed = [name for pool in pools for name in allocatable.claimable(pool)]
    if claimed:
        return {claimed[0] + CLAIM_SUFFIX: work.device_count}
    resource = matching.requested_resource(pools, work)
    return {allocatable.quota_key(resource): work.device_count} if resource else {}


def extra_pods(env: Environment, work: Workload) -> int:
    """Extra pods of an update.

    Kubernetes' default lets a quarter of the pods be unavailable, rounded down; if that is 0, a new pod
    starts first.
    """
    if not isinstance(work, DeploymentWorkload):
        return 0
    if isinstance(work.update, Surge):
        return work.update.step
    surges = work.update is None and work.pods < _UNAVAILABLE_FROM
    return int(surges and not update_may_block(env, work))


def update_may_block(env: Environment, work: DeploymentWorkload) -> bool:
    """Whether Kubernetes' default update might wait forever: for a GPU of a fixed number of nodes, for a
    node that the pool's limit does not allow, or in a queue for quota that the old pods have.
    """
    if work.queue or any(pool.gpus and not pool.elastic for pool in workload_pools(env, work)):
        return True
    return work.pods < _UNAVAILABLE_FROM and not _has_room(env, work, 1)


def check(env: Environment) -> None:
    """Refuse updates that no node has room for, and more pods than pools of a fixed size hold.

    ``update: {kind: surge}`` would wait forever. Pods count of one workload, and of Deployments together; the
    limit of an elastic pool is a budget, which may be raised while pods wait.
    """
    for index, work in enumerate(env.workloads):
        update = work.update if isinstance(work, DeploymentWorkload) else None
        if isinstance(update, Surge) and not _has_room(env, work, update.step):
            names = " or ".join(pool.name for pool in workload_pools(env, work))
            fact = f"{work.pods} pods and {update.step} new ones beside them have no room within the nodes of"
            remedy = "use kind: rolling, or allow more nodes"
            raise InputError(f"workloads[{index}].update", f"{fact} pool {names}", remedy)
    before = _Totals(env)
    for index, work in enumerate(env.workloads):
        if _runs_forever(work):
            before.add(work)
        _check_fits(env, index, work, before)


def _check_fits(env: Environment, index: int, work: Workload, before: _Totals) -> None:
    """The last of the Deployments that run nowhere else is refused; those in a queue wait for their turn."""
    pools = workload_pools(env, work)
    if (
        not work.selects_pools and env.cluster.kind == "embedded"
    ):  # other clusters have more nodes than the pools'
        pools = [pool for pool in env.pools if not pool.gpus]
    if not pools or any(pool.elastic for pool in pools):
        return
    fitting = _fitting_pods(pools, _requests(env, work))
    if fitting is None:
        return
    names, path = " or ".join(pool.name for pool in pools), f"workloads[{index}].{_count_key(work)}"
    remedy = "use fewer or smaller pods, or more nodes"
    waits = isinstance(work, JobWorkload) and not (work.gang or work.has_rendezvous)  # pods run one by one
    if work.pods > max(1, fitting[0]) and not waits:  # one that fits no node: see node_resources
        raise InputError(path, f"all nodes of pool {names} together hold {fitting[0]} such pods", remedy)
    if not _runs_forever(work):
        return
    requested = before.within(pools)
    for key, available in fitting[1].items():
        if requested[key] > available:
            noun = {CPU: "cores", MEMORY_GIB: "memory"}.get(key, key.removeprefix("requests."))
            fact = f"with the Deployments before it, it needs more {noun} than all nodes of pool {names} have"
            raise InputError(path, fact, remedy)


def _runs_forever(work: Workload) -> bool:
    """Whether its pods never end, and wait in no queue."""
    return isinstance(work, DeploymentWorkload) and not work.queue


class _Totals:
    """What workloads request, by the pools on which they can run."""

    def __init__(self, env: Environment, works: Iterable[Workload] = ()) -> None:
        self._env = env
        self._by_pools: dict[frozenset[str], Counter[str]] = {}
        for work in works:
            self.add(work)

    def add(self, work: Workload) -> None:
        names = frozenset(pool.name for pool in workload_pools(self._env, work))
        requests = {key: amount * work.pods for key, amount in _requests(self._env, work).items()}
        self._by_pools.setdefault(names, Counter()).update(requests)

    def within(self, pools: Sequence[Pool]) -> Counter[str]:
        """Of those that can run on these pools only."""
        totals, names = Counter[str](), {pool.name for pool in pools}
        for selected, requests in self._by_pools.items():
            if selected and selected <= names:
                totals.update(requests)
        return totals


@dataclass(frozen=True)
class _ById:
    """An environment has mappings, so it is hashable by its identity only."""

    id: int
    env: Environment = field(compare=False)


@lru_cache(maxsize=4)
def _totals(of: _ById) -> _Totals:
    """Of all workloads; each of them is compared with it."""
    return _Totals(of.env, of.env.workloads)


def fitting_pods(env: Environment, pool: Pool, work: Workload) -> int | None:
    """How many of the workload's pods the pool's nodes hold together; None if its nodes are unknown."""
    fitting = _fitting_pods([pool], _requests(env, work))
    return None if fitting is None else fitting[0]


def _count_key(work: Workload) -> str:
    """Key of the number of its pods."""
    if isinstance(work, InferenceWorkload) and work.scale:
        return "scale.max"
    return "parallelism" if isinstance(work, JobWorkload) else "replicas"


def _fitting_pods(pools: Sequence[Pool], each: Mapping[str, int]) -> tuple[int, Counter[str]] | None:
    """How many such pods the pools' nodes hold, and the room of these nodes; None if nodes are unknown.

    Of different machines, the one that holds most counts: Karpenter buys what the limit still allows.
    """
    slots, available = 0, Counter[str]()
    for pool in pools:
        kinds = list(node_kinds(pool))
        if not kinds:
            return None
        fits = [(count, has) for count, has in kinds if all(has.get(key, 0) >= each[key] for key in each)]
        slots += max((count * min(has[key] // each[key] for key in each) for count, has in fits), default=0)
        available.update({key: max((count * has[key] for count, has in fits), default=0) for key in each})
    return slots, available


def _has_room(env: Environment, work: Workload, extra: int) -> bool:
    """Whether the pods and ``extra`` have room beside those that can run nowhere else.

    True if a pool's nodes are unknown, or the workload runs on any node.
    """
    pools, requests = workload_pools(env, work), _requests(env, work)
    fitting = _fitting_pods(pools, requests)
    if not pools or fitting is None:
        return True
    slots, available, requested = *fitting, _totals(_ById(id(env), env)).within(pools)
    if work not in env.workloads:  # declared by a program of its own, beside the stack
        requested.update({key: amount * work.pods for key, amount in requests.items()})
    fits = all(requested[key] + extra * requests[key] <= available[key] for key in requests)
    return fits and work.pods + extra <= slots


def _requests(env: Environment, work: Workload) -> dict[str, int]:
    base = {CPU: cpu_millis(work.cpu), MEMORY_GIB: memory_bytes(work.memory)}
    return {**base, **requests_of(env, work)}


def node_kinds(pool: Pool) -> Iterator[tuple[int, dict[str, int]]]:
    """For each machine of the pool: how many nodes of it the pool may have, and what one has for pods.

    Never all cores and all memory: the kubelet and DaemonSets have a part. Those of own hosts are unknown.
    """
    if pool.hosts:
        size = dict.fromkeys((CPU, MEMORY_GIB), _UNKNOWN)
        offered = allocatable.resources(pool, pool.gpu_count)
        yield len(pool.hosts), size | {allocatable.quota_key(key): number for key, number in offered.items()}
        return
    for machine in pool.machines or [item for item in (pool.node_machine,) if item]:
        count = pool.max_nodes if pool.bounds else pool.nodes
        if pool.elastic:  # each capacity type has the whole limit
            count = allocatable.max_nodes(pool, machine) * len(pool.capacity)
        if count is not None:
            size = {CPU: machine.vcpu * 1000 - 1, MEMORY_GIB: machine.memory * 2**30 - 1}
            for key, number in allocatable.resources(pool, machine.gpus).items():
                size[allocatable.quota_key(key)] = number
            yield (
                count,
                size | {key + CLAIM_SUFFIX: number for key, number in allocatable.claimable(pool).items()},
            )


def with_max_pods(env: Environment) -> Environment:
    """With the most pods of each scaled workload instead of what scales them."""
    return with_pods(env, lambda work: work.pods)


def without_models(env: Environment) -> Environment:
    """With a Deployment of its own instead of KServe's for each workload with a model."""
    works = tuple(
        work.model_copy(update={"model": None}) if isinstance(work, InferenceWorkload) else work
        for work in env.workloads
    )
    return env.model_copy(update={"workloads": works})


def with_pods(env: Environment, pods: Callable[[InferenceWorkload], int]) -> Environment:
    """With a number of pods, which may be 0, of each inference workload instead of what scales them."""
    return env.model_copy(update={"workloads": tuple(_with_pods(work, pods) for work in env.workloads)})


def _with_pods(work: Workload, pods: Callable[[InferenceWorkload], int]) -> Workload:
    if not isinstance(work, InferenceWorkload):
        return work
    fields = {key: getattr(work, key) for key in DeploymentWorkload.model_fields}
    # Not checked again: what fits the most pods, such as a step of an update, may exceed fewer.
    return DeploymentWorkload.model_construct(**{**fields, "kind": "deployment", "replicas": pods(work)})

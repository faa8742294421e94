"""Checks of queues: names, cohorts, limits of Kueue, and workloads that no queue can ever admit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from infra.model.base import namespaces
from infra.model.base.errors import InputError
from infra.model.base.fields import listing
from infra.model.checks import openstack, workloads
from infra.model.environment import Environment
from infra.model.placement import fit, queue_limits, quotas
from infra.model.placement.queue_limits import Limits
from infra.model.pool.pool import Pool
from infra.model.workload import matching
from infra.model.workload.queues import Cohort, Queues, Team
from infra.model.workload.workload import JobWorkload, Workload

# Kueue 0.19.2: apis/kueue/v1beta2/clusterqueue_types.go and resourceflavor_types.go,
# pkg/webhooks/clusterqueue_webhook.go. A ClusterQueue's status lists 64 flavors at most, so 64 pools in all.
MAX_GROUPS = 16
MAX_FLAVORS = 64
MAX_RESOURCES = 64
MAX_COMBINATIONS = 512
MAX_TOLERATIONS = 8


def check(env: Environment) -> None:
    """Refuse queues that contradict themselves, the pools or the workloads."""
    queues = env.queues
    if queues is None:
        for index, work in enumerate(env.workloads):
            if work.queue:
                fact, remedy = "no queues are declared", "leave it out, or declare queues"
                raise InputError(f"workloads[{index}].queue", fact, remedy)
        return
    _check_cohorts(queues.cohorts)
    _check_names(env, queues)
    limits: dict[str, Limits] = {}
    for index, team in enumerate(queues.teams):
        try:
            _check_team(queues, team)
            limits[team.name] = queue_limits.limits_of(env.pools, team)
            _check_pools(env, team)
            check_groups(limits[team.name])
        except InputError as error:
            path = f"queues.teams[{index}].{error.path}"
            raise InputError(path, error.fact, error.remedy) from None
    workloads.check_topology(env, queues)
    for index, work in enumerate(env.workloads):
        if work.queue:
            _check_workload(env, queues, limits, work, f"workloads[{index}].queue")


def _check_cohorts(cohorts: Sequence[Cohort]) -> None:
    parents: dict[str, str | None] = {}
    for index, cohort in enumerate(cohorts):
        if cohort.name in parents:
            fact = f"{cohort.name!r} is declared twice"
            raise InputError(f"queues.cohorts[{index}].name", fact, "give each cohort a name of its own")
        parents[cohort.name] = cohort.parent
    for index, cohort in enumerate(cohorts):
        path, chain, parent = f"queues.cohorts[{index}].parent", [cohort.name], cohort.parent
        if parent is not None and parent not in parents:
            raise InputError(path, f"unknown cohort {parent!r}", listing(parents, parent))
        while parent is not None and parent in parents:
            chain.append(parent)
            if parent == cohort.name:
                fact = f"the parents form a circle: {' -> '.join(chain)}"
                raise InputError(path, fact, "leave it out, or name another cohort")
            if parent in chain[:-1]:
                break  # a circle that this cohort is not part of, refused at one that is
            parent = parents[parent]


def _check_names(env: Environment, queues: Queues) -> None:
    """Each team has its own name, and each namespace one team and no ResourceQuota beside it.

    A ResourceQuota refuses pods that Kueue has admitted, and counts what is borrowed; they would wait outside
    of the queue's order.
    """
    index_of_team, team_of = dict[str, int](), dict[str, str]()
    for index, team in enumerate(queues.teams):
        path = f"queues.teams[{index}]"
        if team.name in index_of_team:
            fact = f"{team.name!r} is also the name of queues.teams[{index_of_team[team.name]}]"
            raise InputError(f"{path}.name", fact, "give each team a name of its own")
        index_of_team[team.name] = index
        for name_index, namespace in enumerate(team.namespaces):
            namespace_path = f"{path}.namespaces[{name_index}]"
            namespaces.check(namespace, namespace_path)
            if namespace in team_of:
                fact = f"{namespace!r} is in team {team_of[namespace]}, too"
                raise InputError(namespace_path, fact, "name it in one team only")
            team_of[namespace] = team.name
    for index, quota in enumerate(env.namespaces):
        if quota.quota is not None and quota.name in team_of:
            fact = (
                f"{quota.name} is in team {team_of[quota.name]}, and two quotas would contradict each other"
            )
            raise InputError(f"namespaces[{index}]", fact, "leave it out, or take it out of the team")


def _check_team(queues: Queues, team: Team) -> None:
    known = [cohort.name for cohort in queues.cohorts]
    if team.cohort and known and team.cohort not in known:
        raise InputError("cohort", f"unknown cohort {team.cohort!r}", listing(known, team.cohort))
    if team.weight is not None and not queues.fair_sharing:
        raise InputError("weight", "fair_sharing is off", "leave it out, or set queues.fair_sharing: true")
    if team.cohort:
        return
    fact = "the team is in no cohort"
    for key in ("borrow", "lend", "weight"):
        if getattr(team, key):
            raise InputError(key, fact, "leave it out, or give the team a cohort")
    if team.preempt.reclaim != "never":
        raise InputError("preempt.reclaim", fact, "leave it out, or give the team a cohort")


def _check_pools(env: Environment, team: Team) -> None:
    """Refuse pools for which no flavor can be made: admitted pods select the pool by its label."""
    empty = openstack.unlabelled_pools(env.pools) if env.cluster.kind == "openstack" else {}
    for pool in env.pools:
        path, taints = f"quota.{pool.name}", len(pool.taints) + 1
        if pool.name in team.quota and taints > MAX_TOLERATIONS:
            fact = f"its nodes have {taints} taints, and a flavor of Kueue tolerates {MAX_TOLERATIONS}"
            raise InputError(path, fact, "give the pool fewer taints")
        if pool.name in team.quota and pool.name in empty:
            raise openstack.empty_pool_error(path, pool.name)


def check_groups(limits: Limits) -> None:
    """Refuse more than a ClusterQueue of Kueue holds; the path is relative to the team."""
    groups = queue_limits.resource_groups(limits)
    pairs = max(len(pools) * len(names) for pools, names in groups)
    counts = (
        (len(limits), MAX_FLAVORS, "pools"),
        (len(groups), MAX_GROUPS, "groups of pools with the same resources"),
        (max(len(names) for _, names in groups), MAX_RESOURCES, "resources in a group of pools"),
        (pairs, MAX_COMBINATIONS, "pairs of pool and resource in a group"),
    )
    for number, limit, noun in counts:
        if number > limit:
            fact = f"names {number} {noun}, and a queue of Kueue has {limit} at most"
            raise InputError("quota", fact, "name fewer pools")


def _check_workload(
    env: Environment, queues: Queues, limits: Mapping[str, Limits], work: Workload, path: str
) -> None:
    team = next((team for team in queues.teams if team.name == work.queue), None)
    if team is None:
        names = [team.name for team in queues.teams]
        raise InputError(path, f"unknown queue {work.queue!r}", listing(names, work.queue or ""))
    if work.namespace not in team.namespaces:
        fact = f"queue {team.name} has no namespace {work.namespace}"
        remedy = f"use {' or '.join(team.namespaces)}, or add it to the team"
        raise InputError(path.removesuffix("queue") + "namespace", fact, remedy)
    requests = fit.requests_of(env, work)
    if not requests:
        fact = "the workload requests no GPU, and queues count only GPUs"
        raise InputError(path, fact, "leave it out")
    pools = matching.pools_of(env.pools, work)
    names = [pool.name for pool in pools if pool.name in team.quota]
    if not names:
        fact = f"the quota of {team.name} has none of {', '.join(pool.name for pool in pools)}"
        raise InputError(path, fact, "add one to the quota, or use another pool")
    for key, amount in requests.items():
        request = names, quotas.counted_resource(key), amount
        if refusal := _refusal(env, queues, limits, work, *request):
            free = queue_limits.limits_of(env.pools, team.model_copy(update={"borrow": {}}))
            still = _refusal(env, queues, {**limits, team.name: free}, work, *request)
            borrow = "" if still else " or what the team may borrow"
            raise InputError(path, refusal, f"raise the quota{borrow}, or request less")
    workloads.check_gang(env, queues, work, names, path.removesuffix(".queue"))


def _refusal(
    env: Environment,
    queues: Queues,
    limits: Mapping[str, Limits],
    work: Workload,
    names: Sequence[str],
    resource: str,
    amount: int,
) -> str | None:
    """Why Kueue never admits it: a Job as a whole, with all its pods in one pool, other pods one by one."""
    available = [queue_limits.max_amount(queues, limits, work.queue or "", name, resource) for name in names]
    extra = fit.extra_pods(env, work)
    at_once = amount * work.pods if isinstance(work, JobWorkload) else amount
    if at_once > max(available):
        pods = f" in {work.pods} pods at once" if at_once > amount else ""
        return f"requests {at_once} {resource}{pods}, and the queue can have {max(available)} at most"
    fitting = sum(share // amount for share in available)
    if not isinstance(work, JobWorkload) and work.pods + extra > fitting:
        pods = f"{work.pods} pods" + (f" and {extra} more of an update" if extra else "")
        return f"{pods} request {amount} {resource} each, and the queue can have {fitting} of them at most"
    return None


def warnings(env: Environment) -> Iterator[str]:
    """Quotas that add up to more than the pool can become, if its nodes are known."""
    if env.queues is None:
        return
    totals = Counter[tuple[str, str]]()
    for index, team in enumerate(env.queues.teams):
        for name, limits in queue_limits.limits_of(env.pools, team).items():
            max_of_pool = _max_resources(env.pool(name))
            for resource, limit in limits.items():
                before, after = totals[name, resource], totals[name, resource] + limit.nominal
                totals[name, resource] = after
                if max_of_pool and before <= max_of_pool[resource] < after:
                    fact = f"the teams' quotas add up to {after} {resource} or more"
                    fact += f", and the pool can have {max_of_pool[resource]}"
                    yield f"queues.teams[{index}].quota.{name}: {fact}; lower one, or allow more nodes"


def _max_resources(pool: Pool) -> dict[str, int]:
    """Most of each resource that the pool's nodes can offer together; empty if their number is unknown."""
    nodes = list(fit.node_kinds(pool))
    keys = quotas.quota_keys(pool) if nodes else ()
    return {
        quotas.counted_resource(key): max(count * offered.get(key, 0) for count, offered in nodes)
        for key in keys
    }

"""A plan as an environment declares it: pools, and where the workloads' pods go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from pydantic import TypeAdapter

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.elastic import NODES
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Sharing
from infra.planner.candidates import Candidate
from infra.planner.need import Need
from infra.planner.plan import Group, Plan, is_same, make_plan

PART_LABEL = "gpu-pool"
"""Distinguishes nodes of an existing cluster's pool that is split; its nodes must carry it.

Not in gpuform.io/, because updates set labels there.
"""


@dataclass(frozen=True)
class Placed:
    """``pods`` of one demand in a pool; ``part``: what each gets; ``slice``: its MIG profile, if any."""

    demand: str
    pool: str
    pods: int
    part: str
    slice: str = ""


@dataclass(frozen=True)
class Proposal:
    """Pools as a stack file declares them, by group; workloads; and what stays or goes."""

    pools: tuple[dict[str, Any], ...]
    groups: tuple[tuple[str, Group], ...]
    """The plan's groups, each with the name of its pool."""
    placed: tuple[Placed, ...]
    unused: tuple[str, ...] = ()
    """Pools with GPUs that no demand uses, and that are left out, because a cloud is paid for their nodes."""
    emptied: tuple[str, ...] = ()
    """Pools that would be left out as well, but a quota names them: they stay without nodes."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The stack with these pools, its workloads moved to them; empty if it is refused, or without a stack."""
    refusal: str = ""
    """Why gpuform would refuse the environment with these pools; empty if it does not, or without a stack."""
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of a running cluster's nodes by pool."""
    avoided: str = ""
    """Why gpuform would refuse a cheaper plan, in which pools with a quota change."""


def plan_accepted(
    env: Environment | None, needs: Sequence[Need], candidates: Sequence[Candidate], limit_s: float
) -> tuple[Plan, Proposal]:
    """The cheapest plan; if quotas refuse it, one in which their pools stay as they are shared, or all do.

    The refused one if no such plan is accepted. Raises InputError for a demand that no candidate can serve.
    """
    plan = make_plan(env, needs, candidates, limit_s)
    proposal = propose(plan, env)
    if env is None or not proposal.refusal or not (named := quota_pools(env)):
        return plan, proposal
    for names in (named, {pool.name for pool in env.pools}):
        fixed = [replace(one, fixed=one.pool is not None and one.pool.name in names) for one in candidates]
        try:
            other = make_plan(env, needs, fixed, limit_s)
        except InputError:  # a demand needs another sharing
            continue
        if not (found := propose(other, env)).refusal:
            return other, replace(found, avoided=proposal.refusal)
    return plan, proposal


def quota_pools(env: Environment) -> set[str]:
    """Names of the pools in quotas of namespaces and teams."""
    teams = env.queues.teams if env.queues else ()
    quotas = (*(space.quota or {} for space in env.namespaces), *(team.quota for team in teams))
    return {name for quota in quotas for name in quota}


def propose(plan: Plan, env: Environment | None) -> Proposal:
    """The plan's pools, each with its own name, after those without GPUs; workloads are moved to them.

    Nodes that are shared in another way are a pool of another name, so that they can be there beside those
    of now; unless the environment would be refused, as with a quota on the pool.
    """
    found = _propose(plan, env, beside=True)
    return _propose(plan, env, beside=False) if found.refusal else found


def _propose(plan: Plan, env: Environment | None, beside: bool) -> Proposal:
    by_source: dict[str, list[Group]] = defaultdict(list)
    for group in plan.groups:
        pool = group.candidate.pool
        by_source[pool.name if pool else group.candidate.name].append(group)
    taken = {pool.name for pool in env.pools} if env else set()
    named: list[tuple[str, Group]] = []
    pools: list[dict[str, Any]] = []
    labelled: dict[str, tuple[str, ...]] = {}
    linked = {need.name for need in plan.needs if need.efa}
    free = [pool for pool in env.pools if pool.name not in by_source] if env else []
    kept = [pool for pool in free if not pool.gpus or pool.by_claim or pool.nodes is None]
    for source, groups in by_source.items():
        first = groups[0].candidate.pool
        groups.sort(key=lambda group: not (first and is_same(first, group.sharing)))
        hosts: list[Any] = list((first.hosts if first else ()) or groups[0].candidate.found)
        ends = [len(hosts) - sum(group.nodes for group in groups[at:]) for at in range(1, len(groups) + 1)]
        for index, group in enumerate(groups):
            mine = hosts[ends[index - 1] if index else 0 : ends[index]]  # the first has those beyond the need
            changed = first and group.candidate.now and not is_same(first, group.sharing)
            number = index + 1 if beside and changed and not index else index
            named.append((_name(source, number, taken), group))
            split = len(groups) > 1 or number > 0
            pools.append(_pool(*named[-1], [_dump(host) for host in mine], split, linked))
            if group.candidate.found:
                labelled[named[-1][0]] = tuple(mine)
    placed = tuple(_placed(plan, named))
    named_now = {name for name, _ in named} | {pool.name for pool in kept}
    required = [pool for pool in env.pools if pool.name in quota_pools(env) - named_now] if env else []
    emptied = [pool for pool in required if pool.nodes is not None]
    unused = tuple(pool.name for pool in free if pool not in kept and pool not in emptied)
    declared = (*map(_dump, kept), *({**_dump(pool), "nodes": 0} for pool in emptied), *pools)
    whole, refusal = _environment(env, declared, placed) if env else ({}, "")
    empty = tuple(pool.name for pool in emptied)
    return Proposal(declared, tuple(named), placed, unused, empty, whole, refusal, labelled)


def _name(source: str, index: int, taken: set[str]) -> str:
    """The pool's own name for its first group, with a number for the others."""
    base = source.lower().replace(".", "-").replace(" ", "-")
    if index == 0:
        return base
    name = next(name for number in count(index + 1) if (name := f"{base}-{number}") not in taken)
    taken.add(name)
    return name


def _dump(model: Any) -> Any:
    if isinstance(model, str):
        return model
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _pool(name: str, group: Group, hosts: Sequence[Any], split: bool, linked: Set[str]) -> dict[str, Any]:
    """``split``: the pool becomes several; ``linked``: demands that need adapters."""
    one, sharing = group.candidate, _sharing(group)
    if one.pool is None:
        machine: dict[str, Any] = {"machine": one.machine} if one.machine else {}
        chosen = machine or {"gpu": {"models": [one.gpu.name], "count": one.gpus}}
        efa = {"aws": {"efa": True}} if linked & group.pods.keys() else {}
        spot = {"capacity": ["spot"]} if one.capacity == "spot" else {}
        return {"name": name} | chosen | {"nodes": group.nodes} | spot | efa | sharing
    found: dict[str, Any] = {**_dump(one.pool), "name": name}
    changes = not is_same(one.pool, group.sharing)
    if changes:
        found.pop("sharing", None)
        found |= sharing
    if one.pool.hosts:
        found["hosts"] = list(hosts)
    elif one.pool.elastic:
        found["elastic"] = _dump(one.pool.elastic)
        found["elastic"]["max"] = _limits(one.pool, group, sharing if changes else None)
    elif one.pool.selector and split:
        found["selector"] = {**one.pool.selector, PART_LABEL: name}
    elif one.pool.nodes is not None:
        found["nodes"] = group.nodes
        if one.pool.bounds:
            low, high = one.pool.bounds
            found["aws"]["scaling"] = {"min": min(low, group.nodes), "max": max(high, group.nodes)}
    return found


def _sharing(group: Group) -> dict[str, Any]:
    """The pool's key ``sharing``; slices of several profiles need the strategy mixed."""
    sharing, pool = group.sharing, group.candidate.pool
    if sharing.how == "exclusive":
        return {}
    if sharing.how == "mig":
        own = {"strategy": "mixed"} if pool and pool.strategy != "mixed" else {}
        return {"sharing": {"kind": "mig", "layout": dict(sharing.layout)} | own}
    return {"sharing": {"kind": sharing.how, "replicas": sharing.replicas}}


def _limits(pool: Pool, group: Group, changed: Mapping[str, Any] | None) -> dict[str, int]:
    """The elastic pool's limits: nodes at least as planned, resources anew for a ``changed`` sharing."""
    assert pool.elastic is not None
    limits = dict(pool.elastic.max)
    if NODES in limits:
        return {NODES: max(limits[NODES], group.nodes)}
    if changed is None:
        return limits
    sharing = TypeAdapter[Any](Sharing).validate_python(changed.get("sharing", {"kind": "exclusive"}))
    offered = allocatable.resources(pool.model_copy(update={"sharing": sharing}), group.candidate.gpus)
    kept = {key: value for key, value in limits.items() if "/" not in key}
    return kept | {key: number * group.nodes for key, number in offered.items()}


def _placed(plan: Plan, named: Sequence[tuple[str, Group]]) -> Iterator[Placed]:
    for need in plan.needs:
        found: Counter[tuple[str, str, str]] = Counter()
        for name, group in named:
            for kind, pods in group.pods.get(need.name, {}).items():
                part = plan.parts[kind]
                text = part.text if need.count == 1 else f"{need.count} whole GPUs"
                found[name, text, part.profile] += pods
        for (pool, text, profile), pods in found.items():
            yield Placed(need.name, pool, pods, text, profile)


def _environment(
    env: Environment, pools: Sequence[Mapping[str, Any]], placed: Sequence[Placed]
) -> tuple[dict[str, Any], str]:
    """The stack's environment with these pools and placements, and what gpuform finds wrong with it."""
    declared = env.model_dump(mode="json", by_alias=True, exclude_unset=True)
    where: dict[str, Placed] = {}
    for one in placed:
        if one.demand in where:
            return {}, f"{one.demand} would run in two pools; declare it as two workloads"
        where[one.demand] = one
    for work, entry in zip(env.workloads, declared.get("workloads", ()), strict=True):
        found = where.get(f"{work.namespace}/{work.name}")
        if found and work.pool:
            entry.pop("slice", None)
            entry |= {"pool": found.pool} | ({"slice": found.slice} if found.slice else {})
    declared["pools"] = list(pools)
    try:
        parse(declared)
    except InputError as error:
        return {}, "; ".join(map(str, error.errors))
    return declared, ""

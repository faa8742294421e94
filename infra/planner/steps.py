"""A change of pools as a sequence of updates in which each pod keeps its GPU until it has the next.

One update first changes the nodes, one by one and with eviction, then the workloads, and last removes pools
that are no longer declared. So nodes that pods still use must wait for the update after the one that moves
the pods. Nodes of a cloud are added beside those that go; hosts change pools as they become free. Only fixed
numbers of nodes are counted: an elastic pool has nodes for whatever moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.config import parse
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Exclusive
from infra.planner import packing
from infra.planner.demands import declared
from infra.planner.need import Need
from infra.planner.packing import Demand, Kind, Use
from infra.planner.plan import largest_sets

_LIMIT_S = 1.0


@dataclass(frozen=True)
class Step:
    """One update: the ``environment`` that it declares, and its ``nodes`` by pool, of those with a number.

    ``start``: the nodes before it.
    ``moved``: workloads that get other GPUs. ``waiting``: those of them with pods that are evicted before
    their next GPU is ready, because too few nodes are free.
    """

    environment: Mapping[str, Any]
    start: Mapping[str, int]
    nodes: Mapping[str, int]
    moved: tuple[str, ...]
    waiting: tuple[str, ...] = ()


@dataclass
class _State:
    """Nodes by pool, the pool of each host, and the GPUs of each workload: those of the next one if moved."""

    nodes: dict[str, int]
    hosts: dict[str, str]
    needs: dict[str, Need]

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.nodes.items() if count} | Counter(self.hosts.values())


def sequence(env: Environment, document: Mapping[str, Any]) -> list[Step]:
    """The updates from ``env`` to the environment of ``document``, which has the same workloads."""
    target = parse(document)
    pools = {**_counted(env), **_counted(target)}
    state, goal = _state(env), _state(target)
    left = {name for name, need in goal.needs.items() if _place(need) != _place(state.needs[name])}
    steps: list[Step] = []
    while left or state.counts() != goal.counts():
        before = state.counts()
        _resize(pools, state, goal)
        moved = _move(pools, state, goal, left)
        if not moved and state.counts() == before:
            return [*steps, Step(document, before, goal.counts(), tuple(sorted(left)), tuple(sorted(left)))]
        left -= moved
        for name in state.nodes.keys() - goal.nodes.keys():
            _shrink(pools, state, name, 0)
        is_last = not left and state.counts() == goal.counts()
        declared_now = document if is_last else _document(env, document, pools, state, left)
        steps.append(Step(declared_now, before, state.counts(), tuple(sorted(moved))))
    return steps


def _counted(env: Environment) -> dict[str, Pool]:
    """Pools with a declared number of nodes with GPUs, which pods get as resources."""
    return {
        pool.name: pool
        for pool in env.pools
        if pool.gpus and not pool.by_claim and pool.declared_nodes is not None
    }


def _state(env: Environment) -> _State:
    pools = _counted(env).values()
    return _State(
        {pool.name: pool.nodes for pool in pools if pool.nodes is not None},
        {host.name: pool.name for pool in pools for host in pool.hosts or ()},
        {need.name: need for need in declared(env)},
    )


def _place(need: Need) -> tuple[object, ...]:
    return need.pools, need.now


def _resize(pools: Mapping[str, Pool], state: _State, goal: _State) -> None:
    """As many nodes as at the end, but for those that pods use where they are."""
    for name, nodes in goal.nodes.items():
        if nodes > state.nodes.get(name, 0):
            state.nodes[name] = nodes
        else:
            _shrink(pools, state, name, nodes)
    for host, pool in goal.hosts.items():
        before = state.hosts[host]
        state.hosts[host] = pool
        if pool != before and not _holds(pools, state.counts(), state.needs.values()):
            state.hosts[host] = before


def _shrink(pools: Mapping[str, Pool], state: _State, name: str, nodes: int) -> None:
    for fewer in range(nodes, state.nodes[name] + 1):
        if _holds(pools, state.counts() | {name: fewer}, state.needs.values()):
            state.nodes[name] = fewer
            return


def _move(pools: Mapping[str, Pool], state: _State, goal: _State, left: Iterable[str]) -> set[str]:
    """Workloads that find their next GPUs free while they have the present ones."""
    moved: set[str] = set()
    held = list(state.needs.values())
    for name in sorted(left):
        if _holds(pools, state.counts(), [*held, goal.needs[name]]):
            held.append(goal.needs[name])
            moved.add(name)
    state.needs |= {name: goal.needs[name] for name in moved}
    return moved


def _holds(pools: Mapping[str, Pool], nodes: Mapping[str, int], needs: Iterable[Need]) -> bool:
    """Whether these nodes have all these GPUs at a time."""
    counted = [need for need in needs if {*(need.pools or ())} <= pools.keys()]
    uses = [use for name in nodes for use in _uses(pools[name], counted)]
    demands = [
        Demand(str(index), need.amount, {(name, need.now, need.count): 1.0 for name in need.pools or ()})
        for index, need in enumerate(counted)
    ]
    try:
        packing.pack(uses, demands, _LIMIT_S, nodes)
    except (packing.Unsatisfiable, TimeoutError):
        return False
    return True


def _uses(pool: Pool, needs: Sequence[Need]) -> Iterator[Use]:
    """What one of its nodes offers; of whole GPUs, each way to hand them out."""
    offers = allocatable.resources(pool, min(pool.gpu_counts))
    if not isinstance(pool.sharing, Exclusive):
        yield Use(pool.name, {(pool.name, key, 1): count for key, count in offers.items()}, stock=pool.name)
        return
    for resource, count in offers.items():
        sizes = {need.count for need in needs if pool.name in (need.pools or ())}
        for index, sets in enumerate(largest_sets(count, sorted(sizes))):
            slots: dict[Kind, int] = {(pool.name, resource, size): n for size, n in sets.items()}
            yield Use(f"{pool.name} {index}", slots, stock=pool.name)


def _document(
    env: Environment,
    document: Mapping[str, Any],
    counted: Mapping[str, Pool],
    state: _State,
    left: Iterable[str],
) -> dict[str, Any]:
    """The environment in between: pools with their nodes of now, and the workloads ``left`` as they were."""
    old = env.model_dump(mode="json", by_alias=True, exclude_unset=True)
    counts = state.counts()
    hosts = [host for pool in old["pools"] for host in pool.get("hosts") or ()]
    pools = []
    for pool in {pool["name"]: pool for pool in (*old["pools"], *document["pools"])}.values():
        name = pool["name"]
        if name not in counted:
            pools.append(pool)
        elif pool.get("hosts"):
            pools.append(pool | {"hosts": [host for host in hosts if state.hosts.get(host["name"]) == name]})
        else:
            pools.append(pool | {"nodes": counts.get(name, 0)})
    pools = [pool for pool in pools if pool["name"] not in counted or counts.get(pool["name"])]
    works = [
        before if f"{before.get('namespace', 'default')}/{before['name']}" in left else after
        for before, after in zip(old.get("workloads", ()), document.get("workloads", ()), strict=True)
    ]
    return {**document, "pools": pools, "workloads": works}

"""A change of pools as a sequence of updates in which each pod keeps its GPU until it has the next.

One update first changes the nodes, one by one and with eviction, then the workloads, and last removes pools
that are no longer declared. So nodes that pods still use must wait for the update after the one that moves
the pods. Nodes of a cloud are added beside those that go; hosts change pools as they become free, and so do
nodes that a selector finds on a running cluster. An elastic pool has nodes for whatever moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from infra.config import parse
from infra.model.environment import Environment
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Exclusive
from infra.model.workload.matching import resources_of
from infra.planner import packing
from infra.planner.need import Need
from infra.planner.packing import Demand, Kind, Use
from infra.planner.plan import largest_sets
from infra.planner.proposal import PART_LABEL, Proposal

_LIMIT_S = 1.0
Needs = Mapping[str, tuple[Need, ...]]


@dataclass(frozen=True)
class Step:
    """One update: the ``environment`` that it declares, and nodes by pool at its ``start`` and its end.

    Of pools with a fixed number. ``moved``: workloads that get other GPUs. ``waiting``: those of them with
    pods that are evicted before these are ready, because too few nodes are free. ``labels``: value of
    PART_LABEL that nodes of a running cluster need first.
    """

    environment: Mapping[str, Any]
    start: Mapping[str, int]
    nodes: Mapping[str, int]
    moved: tuple[str, ...]
    waiting: tuple[str, ...]
    labels: Mapping[str, str]

    @property
    def changes(self) -> list[tuple[str, int, int]]:
        """Pools with other numbers of nodes: name, before, after."""
        names = sorted({*self.start, *self.nodes})
        counts = [(name, self.start.get(name, 0), self.nodes.get(name, 0)) for name in names]
        return [change for change in counts if change[1] != change[2]]


@dataclass
class _State:
    """Nodes by pool, the pool of each host, and the GPUs of each workload: those of the next one if moved."""

    nodes: dict[str, int]
    hosts: dict[str, str]
    needs: dict[str, tuple[Need, ...]]
    pools: Mapping[str, Pool] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.nodes.items() if count} | Counter(self.hosts.values())

    def holds(self, nodes: Mapping[str, int], more: Iterable[Need] = ()) -> bool:
        """Whether these nodes have the GPUs of all workloads, and ``more``, at a time."""
        needs = [*(need for needs in self.needs.values() for need in needs), *more]
        needs = [need for need in needs if {*(need.pools or ())} <= self.pools.keys()]
        uses = [use for name in nodes for use in _uses(self.pools[name], needs)]
        demands = [
            Demand(str(index), need.amount, {(name, need.now, need.count): 1.0 for name in need.pools or ()})
            for index, need in enumerate(needs)
        ]
        try:
            packing.pack(uses, demands, _LIMIT_S, nodes)
        except (packing.Unsatisfiable, TimeoutError):
            return False
        return True


def sequence(
    env: Environment, needs: Sequence[Need], proposal: Proposal, found: Mapping[str, Sequence[str]]
) -> list[Step]:
    """The updates from ``env`` to the proposed environment.

    ``needs``: what runs now. ``found``: names of a running cluster's nodes by pool of ``env``.
    """
    target = parse(proposal.environment)
    state = _state(env, found, {need.name: (need,) for need in needs})
    goal = _state(target, proposal.found, _next(state.needs, target, proposal))
    state.pools = {**state.pools, **goal.pools}
    left = {name for name in goal.needs if goal.needs[name] != state.needs[name]}
    steps: list[Step] = []
    labels: dict[str, str] = {}
    while left or state.counts() != goal.counts():
        start = state.counts()
        _resize(state, goal)
        moved = _move(state, goal, left)
        waiting: set[str] = set()
        if not moved and state.counts() == start:
            state.nodes, state.hosts, moved, waiting = goal.nodes, goal.hosts, left, left
        left = left - moved
        for name in state.nodes.keys() - goal.nodes.keys():
            _shrink(state, name, 0)
        done = not left and state.counts() == goal.counts()
        document = proposal.environment if done else _document(env, proposal.environment, state, left)
        parts = {pool["name"] for pool in document["pools"] if PART_LABEL in (pool.get("selector") or {})}
        new = {node: pool for node, pool in state.hosts.items() if pool in parts and labels.get(node) != pool}
        labels |= new
        moves = tuple(sorted(moved)), tuple(sorted(waiting))
        steps.append(Step(document, start, state.counts(), *moves, new))
    return steps


def _state(env: Environment, found: Mapping[str, Sequence[str]], needs: Needs) -> _State:
    """Of pools with a known number of nodes with GPUs, which pods get as resources."""
    pools = [
        pool
        for pool in env.pools
        if pool.gpus and not pool.by_claim and (pool.declared_nodes is not None or pool.name in found)
    ]
    hosts = {host.name: pool.name for pool in pools for host in pool.hosts or ()}
    hosts |= {host: name for name, hosts_found in found.items() for host in hosts_found}
    nodes = {pool.name: pool.nodes for pool in pools if pool.nodes is not None}
    return _State(nodes, hosts, dict(needs), {pool.name: pool for pool in pools})


def _next(needs: Needs, target: Environment, proposal: Proposal) -> dict[str, tuple[Need, ...]]:
    """What the workloads have at the end: the same if their pools still offer it."""
    found: dict[str, tuple[Need, ...]] = {}
    for name, (need,) in needs.items():
        placed = [one for one in proposal.placed if one.demand == name]
        pools = [target.pool(one.pool) for one in placed]
        next_ones = tuple(
            replace(
                need,
                replicas=one.pods,
                count=need.count if isinstance(pool.sharing, Exclusive) else 1,
                pools=(one.pool,),
                now=resources_of(pool, one.slice or None)[0],
            )
            for one, pool in zip(placed, pools, strict=True)
        )
        same = all(one.now == need.now and {*(one.pools or ())} <= {*(need.pools or ())} for one in next_ones)
        found[name] = (need,) if same else next_ones
    return found


def _resize(state: _State, goal: _State) -> None:
    """As many nodes as at the end, but for those that pods use where they are."""
    for name, nodes in goal.nodes.items():
        if nodes > state.nodes.get(name, 0):
            state.nodes[name] = nodes
        else:
            _shrink(state, name, nodes)
    for host, pool in reversed(goal.hosts.items()):
        before, state.hosts[host] = state.hosts[host], pool
        if pool != before and not state.holds(state.counts()):
            state.hosts[host] = before


def _shrink(state: _State, name: str, nodes: int) -> None:
    for fewer in range(nodes, state.nodes[name]):
        if state.holds(state.counts() | {name: fewer}):
            state.nodes[name] = fewer
            return


def _move(state: _State, goal: _State, left: Iterable[str]) -> set[str]:
    """Workloads that find their next GPUs free while they have the present ones."""
    moved: set[str] = set()
    more: list[Need] = []
    for name in sorted(left):
        if state.holds(state.counts(), [*more, *goal.needs[name]]):
            more += goal.needs[name]
            moved.add(name)
    state.needs |= {name: goal.needs[name] for name in moved}
    return moved


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
    env: Environment, document: Mapping[str, Any], state: _State, left: Iterable[str]
) -> dict[str, Any]:
    """The environment in between: pools with their nodes of now, and the workloads ``left`` as they were."""
    old = env.model_dump(mode="json", by_alias=True, exclude_unset=True)
    counts = state.counts()
    hosts = [host for pool in old["pools"] for host in pool.get("hosts") or ()]
    last = {pool["name"] for pool in document["pools"]}
    pools = []
    for pool in {pool["name"]: pool for pool in (*old["pools"], *document["pools"])}.values():
        name = pool["name"]
        if name not in state.pools:
            pools.append(pool)
        elif counts.get(name) and pool.get("hosts"):
            pools.append(pool | {"hosts": [host for host in hosts if state.hosts.get(host["name"]) == name]})
        elif counts.get(name) and pool.get("selector"):
            part = {} if name in last else {PART_LABEL: name}
            pools.append(pool | {"selector": pool["selector"] | part})
        elif counts.get(name):
            pools.append(pool | {"nodes": counts[name]})
    works = [
        before if f"{before.get('namespace', 'default')}/{before['name']}" in left else after
        for before, after in zip(old.get("workloads", ()), document.get("workloads", ()), strict=True)
    ]
    return {**document, "pools": pools, "workloads": works}

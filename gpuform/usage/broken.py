"""Faults that a person set on simulated nodes, and the commands that clear them.

Only faults that take GPUs from what the node offers: not heat, links or an exporter that is down. A real node
has none of these annotations, so nothing is ever reported for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lab.simulator import faults, keys

if TYPE_CHECKING:
    from gpuform.usage.status import ClusterStatus, PoolStatus

Json = Mapping[str, Any]


def broken(nodes: Iterable[Json]) -> dict[str, str]:
    """What is broken and the commands that clear it, by node name; healthy nodes are left out."""
    found = {str(node["metadata"]["name"]): list(_of(node)) for node in nodes}
    return {name: "; ".join(lines) for name, lines in found.items() if lines}


def faulty(current: ClusterStatus) -> dict[str, str]:
    """Nodes that do not offer what was planned because a person broke them."""
    lacking = [name for pool in current.pools for name in pool.lacking]
    return {name: current.broken[name] for name in lacking if name in current.broken}


def unsettled(current: ClusterStatus) -> tuple[PoolStatus, ...]:
    """Pools that do not offer what was planned, unless a fault set by a person is the only reason."""
    excused = faulty(current).keys()
    return tuple(
        pool
        for pool in current.pools
        if not pool.settled and not (pool.nodes and excused >= set(pool.lacking))
    )


def _of(node: Json) -> Iterator[str]:
    name, notes = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    there = [
        one for one in faults.read(notes.get(keys.FAULTS, "[]")) if one.sickening or one.kind == faults.FABRIC
    ]
    if there:
        words = ", ".join(dict.fromkeys(map(_said, there)))
        yield f"{words}: `gpuform simulate fault {name} --clear` clears it"
    sick = [one for one in notes.get(keys.UNHEALTHY, "").replace(" ", "").split(",") if one]
    if numbers := [one for one in sick if one.isdecimal()]:
        ways = ", ".join(f"`gpuform simulate health {name} --gpu {one} --ok`" for one in numbers)
        yield f"GPU {', '.join(numbers)} is unhealthy: {ways} clears it"
    if others := [one for one in sick if not one.isdecimal()]:
        yield f"{', '.join(others)} is unhealthy: `kubectl annotate node {name} {keys.UNHEALTHY}-` clears it"


def _said(one: faults.Fault) -> str:
    kind = f"XID {one.xid}" if one.kind == faults.XID else one.kind
    return kind if one.gpu < 0 else f"GPU {one.gpu} has {kind}"

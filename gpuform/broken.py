"""What of a simulated node's hardware somebody has broken on purpose, and how that is mended.

Only what takes GPUs from what the node offers: heat, links and an exporter that is down do not. A real node
has none of these annotations, so nothing is ever said of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpuform.simulator import faults, keys

if TYPE_CHECKING:
    from gpuform.status import ClusterStatus, PoolStatus

Json = Mapping[str, Any]


def broken(nodes: Iterable[Json]) -> dict[str, str]:
    """By name of the node, what is broken and the commands that clear it; nodes without are left out."""
    found = {str(node["metadata"]["name"]): list(_of(node)) for node in nodes}
    return {name: "; ".join(lines) for name, lines in found.items() if lines}


def faulty(current: ClusterStatus) -> dict[str, str]:
    """Of the nodes that do not offer what was planned, those that somebody has broken."""
    lacking = [name for pool in current.pools for name in pool.lacking]
    return {name: current.broken[name] for name in lacking if name in current.broken}


def unsettled(current: ClusterStatus) -> tuple[PoolStatus, ...]:
    """Pools that do not offer what was planned, and may yet: no wait mends what somebody has broken."""
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
        yield f"{words}: `gpuform simulate fault {name} --clear` mends it"
    sick = [one for one in notes.get(keys.UNHEALTHY, "").replace(" ", "").split(",") if one]
    if numbers := [one for one in sick if one.isdecimal()]:
        ways = ", ".join(f"`gpuform simulate health {name} --gpu {one} --ok`" for one in numbers)
        yield f"GPU {', '.join(numbers)} is sick: {ways} mends it"
    if others := [one for one in sick if not one.isdecimal()]:
        yield f"{', '.join(others)} is sick: `kubectl annotate node {name} {keys.UNHEALTHY}-` mends it"


def _said(one: faults.Fault) -> str:
    kind = f"XID {one.xid}" if one.kind == faults.XID else one.kind
    return kind if one.gpu < 0 else f"GPU {one.gpu} has {kind}"

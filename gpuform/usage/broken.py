"""Faults that a person set on simulated nodes, and the commands that clear them.

Only faults that take GPUs from what the node offers: not heat, links or an exporter that is down. A real node
has none of these annotations, so nothing is ever reported for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.model import labels
from infra.model.xid import DEVICE_PLUGIN_SKIPS

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
    words = ", ".join(dict.fromkeys(_faults(notes.get(labels.SIM_FAULTS, "[]"))))
    if words:
        yield f"{words}: `gpuform simulate fault {name} --clear` clears it"
    sick = [one for one in notes.get(labels.SIM_UNHEALTHY, "").replace(" ", "").split(",") if one]
    if numbers := [one for one in sick if one.isdecimal()]:
        ways = ", ".join(f"`gpuform simulate health {name} --gpu {one} --ok`" for one in numbers)
        yield f"GPU {', '.join(numbers)} is unhealthy: {ways} clears it"
    if others := [one for one in sick if not one.isdecimal()]:
        clears = f"`kubectl annotate node {name} {labels.SIM_UNHEALTHY}-` clears it"
        yield f"{', '.join(others)} is unhealthy: {clears}"


def _faults(annotation: str) -> Iterator[str]:
    """The faults for which GPUs are not offered; none if the simulator did not write the annotation."""
    try:
        entries = [(str(one["kind"]), one.get("gpu"), one.get("xid")) for one in json.loads(annotation)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    for kind, gpu, xid in entries:
        if kind == "fabric-manager":
            yield kind
        elif kind in ("ecc", "gpu-lost"):
            yield f"GPU {gpu} has {kind}"
        elif kind == "xid" and xid not in DEVICE_PLUGIN_SKIPS:
            yield f"GPU {gpu} has XID {xid}"

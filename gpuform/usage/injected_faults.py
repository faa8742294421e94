"""Faults that a person set on simulated nodes, and the commands that clear them.

By default only faults that take GPUs from what the node offers: not heat, links or an exporter that is down.
A real node has none of these annotations, so nothing is ever reported for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.model.base import labels
from infra.model.gpu.xid import DEVICE_PLUGIN_SKIPS

Json = Mapping[str, Any]


def injected_faults(nodes: Iterable[Json], every: bool = False) -> dict[str, str]:
    """What is broken and the commands that clear it, by node name; healthy nodes are left out."""
    lines_by_node = {str(node["metadata"]["name"]): list(_describe_faults(node, every)) for node in nodes}
    return {name: "; ".join(lines) for name, lines in lines_by_node.items() if lines}


def _describe_faults(node: Json, every: bool) -> Iterator[str]:
    name, notes = node["metadata"]["name"], node["metadata"].get("annotations") or {}
    faults = ", ".join(dict.fromkeys(_parse_faults(notes.get(labels.SIM_FAULTS, "[]"), every)))
    if faults:
        yield f"{faults}: `gpuform simulate fault {name} --clear` clears it"
    unhealthy = [ident for ident in notes.get(labels.SIM_UNHEALTHY, "").replace(" ", "").split(",") if ident]
    if numbers := [ident for ident in unhealthy if ident.isdecimal()]:
        commands = ", ".join(f"`gpuform simulate health {name} --gpu {number} --ok`" for number in numbers)
        yield f"GPU {', '.join(numbers)} is unhealthy: {commands} clears it"
    if others := [ident for ident in unhealthy if not ident.isdecimal()]:
        command = f"`kubectl annotate node {name} {labels.SIM_UNHEALTHY}-` clears it"
        yield f"{', '.join(others)} is unhealthy: {command}"


def _parse_faults(annotation: str, every: bool) -> Iterator[str]:
    """``every`` fault, or those that take a GPU away; none if the simulator did not write the annotation."""
    try:
        entries = [(str(item["kind"]), item.get("gpu"), item.get("xid")) for item in json.loads(annotation)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    for kind, gpu, xid in entries:
        takes = kind in ("fabric-manager", "ecc", "gpu-lost") or (
            kind == "xid" and xid not in DEVICE_PLUGIN_SKIPS
        )
        if every or takes:
            yield kind if gpu is None else f"GPU {gpu} has {f'XID {xid}' if kind == 'xid' else kind}"

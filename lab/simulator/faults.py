"""Simulated faults of a node: the annotation ``simulator.gpuform.io/faults``, a JSON list.

Each entry is ``{"kind": "thermal", "gpu": 2, "since": "2026-01-31T12:00:00.000+00:00"}``; kind ``xid`` also
has ``"xid": 79``, and a fault of the node has no ``gpu``. A malformed annotation counts as no fault, so that
it cannot end the simulator. ``dcgm.device`` describes what each kind does to the series.

Not modelled: intermittent faults, and faults that make others likelier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from lab.simulator import keys, xids
from lab.simulator.objects import Node, Pod

XID, ECC, GPU_LOST, THERMAL, POWER = "xid", "ecc", "gpu-lost", "thermal", "power"
NVLINK, ROW_REMAP = "nvlink", "row-remap"
FABRIC, EXPORTER_DOWN = "fabric-manager", "exporter-down"
OF_NODE = frozenset({FABRIC, EXPORTER_DOWN})
"""Faults of the node rather than of one GPU."""
KINDS = (XID, ECC, GPU_LOST, THERMAL, POWER, NVLINK, ROW_REMAP, FABRIC, EXPORTER_DOWN)
AGAIN_AFTER = 60.0
"""Seconds between two double-bit errors of a GPU with fault ``ecc``."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; ``gpu`` is -1 for a fault of the node, ``since`` is in seconds since 1970."""

    kind: str
    gpu: int
    since: float
    xid: int = 0

    def stored(self) -> dict[str, Any]:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {"kind": self.kind, "since": since}
        if self.gpu >= 0:
            entry["gpu"] = self.gpu
        return entry | ({"xid": self.xid} if self.xid else {})

    @property
    def sent(self) -> int:
        """XID that the driver reports when the fault begins; 0 for none."""
        return {XID: self.xid, ECC: xids.DOUBLE_BIT, GPU_LOST: xids.FALLEN_OFF}.get(self.kind, 0)

    @property
    def sickening(self) -> bool:
        """Whether the device plugin reports the GPU as unhealthy for this fault."""
        return bool(self.sent) and self.sent not in xids.SKIPPED


def stored(faults: Iterable[Fault]) -> str | None:
    """Value of the annotation; None without faults."""
    entries = [fault.stored() for fault in faults]
    return json.dumps(entries) if entries else None


def of(node: Node) -> tuple[Fault, ...]:
    text = node.annotations.get(keys.FAULTS)
    return read(text) if text else ()


@lru_cache(maxsize=1024)
def read(text: str) -> tuple[Fault, ...]:
    """Faults in an annotation; () if it is malformed."""
    try:
        return tuple(_one(entry) for entry in json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def _one(entry: dict[str, Any]) -> Fault:
    since = datetime.fromisoformat(entry["since"]).timestamp()
    fault = Fault(entry["kind"], int(entry.get("gpu", -1)), since, int(entry.get("xid", 0)))
    if fault.kind not in KINDS or (fault.gpu < 0) != (fault.kind in OF_NODE):
        raise ValueError(entry)
    return fault


def sick(node: Node, plugin: Pod | None) -> frozenset[int]:
    """Indexes of the GPUs that the device plugin reports as unhealthy now.

    A lost GPU is unhealthy for every plugin. An XID is an event: a plugin started after it has not seen it.
    """
    found = [fault for fault in of(node) if fault.sickening]
    if not found:
        return frozenset()
    began = datetime.fromisoformat(plugin.created).timestamp() if plugin else 0.0
    return frozenset(fault.gpu for fault in found if fault.kind == GPU_LOST or fault.since >= began)


def breaks(node: Node, kind: str) -> bool:
    return any(fault.kind == kind for fault in of(node))

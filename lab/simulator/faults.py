"""Simulated faults of a node: the annotation ``simulator.gpuform.io/faults``, a JSON list.

Each entry is ``{"kind": "thermal", "gpu": 2, "since": "2026-01-31T12:00:00.000+00:00"}``; kind ``xid`` also
has ``"xid": 79``, and a fault of the node has no ``gpu``. A malformed annotation counts as no fault, so that
it cannot end the simulator. ``dcgm.device`` describes what each kind does to the series.

XIDs are the driver's error numbers, with the names of NVIDIA's list (docs.nvidia.com/deploy/xid-errors).
Those of displays and of units of old GPUs are left out, so that a mistyped number is noticed.

Not modelled: intermittent faults, and faults that make others likelier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from lab.simulator import keys
from lab.simulator.objects import Node, Pod

XID, ECC, GPU_LOST, THERMAL, POWER = "xid", "ecc", "gpu-lost", "thermal", "power"
NVLINK, ROW_REMAP = "nvlink", "row-remap"
FABRIC, EXPORTER_DOWN = "fabric-manager", "exporter-down"
NODE_KINDS = frozenset({FABRIC, EXPORTER_DOWN})  # Faults of the node rather than of one GPU
KINDS = (XID, ECC, GPU_LOST, THERMAL, POWER, NVLINK, ROW_REMAP, FABRIC, EXPORTER_DOWN)
DOUBLE_BIT_INTERVAL_S = 60.0
"""Seconds between two double-bit errors of a GPU with fault ``ecc``."""
DOUBLE_BIT, FALLEN_OFF = 48, 79
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Application errors: NVIDIA's device plugin 0.20 keeps the GPU healthy (internal/rm/health.go)."""
XIDS: dict[int, str] = {
    **dict.fromkeys((66, 67), "Illegal access by driver"),
    **dict.fromkeys((8, 43, 46), "GPU stopped processing"),
    **dict.fromkeys((39, 40, 41), "Unused"),
    **dict.fromkeys((37, 38), "Driver firmware error"),
    **dict.fromkeys((11, 32), "Invalid or corrupted push buffer stream"),
    13: "Graphics Engine Exception",
    25: "Invalid or illegal push buffer stream",
    31: "GPU memory page fault",
    44: "Graphics Engine fault during context switch",
    45: "Preemptive cleanup, due to previous errors -- Most likely to see when running multiple cuda",
    48: "Double Bit ECC Error",
    54: "Auxiliary power is not connected to the GPU board",
    57: "Error programming video memory interface",
    58: "Unstable video memory interface detected",
    60: "Video processor exception",
    61: "Internal micro-controller breakpoint/warning",
    62: "Internal micro-controller halt",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    68: "NVDEC0 Exception",
    69: "Graphics Engine class error",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    92: "High single-bit ECC error rate",
    93: "Non-fatal violation of provisioned InfoROM wear limit",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
    106: "SMBPBI Test Message",
    107: "SMBPBI Test Message Silent",
    109: "Context Switch Timeout Error",
    110: "Security Fault Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Link Error",
    122: "SPI PMU RPC Read Failure",
    123: "SPI PMU RPC Write Failure",
    125: "Inforom FS Failure",
    126: "Robust Channel CE10 Error",
    136: "ALI Training Fail",
    137: "NVLink Privilege Error",
    139: "Robust Channel OFA1 Error",
    140: "Unrecovered ECC Error",
    141: "Robust Channel Fast Path Error",
    142: "Robust Channel NVENVC3 Error",
    143: "GPU Initialization Failure",
    144: "NVLINK: Saw Error",
    145: "NVLINK: RLW Error",
    146: "NVLINK: TLW Error",
    147: "NVLINK: TREX Error",
    148: "NVLINK: NVLPW_CTRL Error",
    149: "NVLINK: NETIR Error",
    150: "NVLINK: MSE Error",
    151: "Robust Channel Key rotation Error",
    154: "GPU Recovery Action Changed",
    155: "NVLINK: SW Defined Error",
    156: "Resource Retirement Event",
    157: "Resource Retirement Failure",
    158: "GPU Fatal Timeout",
    160: "Channel Retirement Event",
    161: "Channel Retirement Failure",
    167: "PCIE Fatal Timeout",
    171: "Uncorrectable DRAM Error",
    172: "Uncorrectable SRAM Error",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; ``gpu`` is -1 for a fault of the node, ``since`` is in seconds since 1970."""

    kind: str
    gpu: int
    since: float
    xid: int = 0

    def as_entry(self) -> dict[str, Any]:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {"kind": self.kind, "since": since}
        if self.gpu >= 0:
            entry["gpu"] = self.gpu
        return entry | ({"xid": self.xid} if self.xid else {})

    @property
    def reported_xid(self) -> int:
        """XID that the driver reports when the fault begins; 0 for none."""
        return {XID: self.xid, ECC: DOUBLE_BIT, GPU_LOST: FALLEN_OFF}.get(self.kind, 0)

    @property
    def is_lost(self) -> bool:
        """Whether the GPU has left the bus: NVML and DCGM can no longer read it."""
        return self.reported_xid == FALLEN_OFF

    @property
    def is_unhealthy(self) -> bool:
        """Whether the device plugin reports the GPU as unhealthy for this fault."""
        return bool(self.reported_xid) and self.reported_xid not in APPLICATION_XIDS


def render(faults: Iterable[Fault]) -> str | None:
    """Value of the annotation; None without faults."""
    entries = [fault.as_entry() for fault in faults]
    return json.dumps(entries) if entries else None


def faults_of(node: Node) -> tuple[Fault, ...]:
    text = node.annotations.get(keys.FAULTS)
    return parse(text) if text else ()


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[Fault, ...]:
    """Faults in an annotation; () if it is malformed."""
    try:
        return tuple(_parse_entry(entry) for entry in json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def _parse_entry(entry: dict[str, Any]) -> Fault:
    since = datetime.fromisoformat(entry["since"]).timestamp()
    fault = Fault(entry["kind"], int(entry.get("gpu", -1)), since, int(entry.get("xid", 0)))
    if fault.kind not in KINDS or (fault.gpu < 0) != (fault.kind in NODE_KINDS):
        raise ValueError(entry)
    return fault


def unhealthy_gpus(node: Node, plugin: Pod | None) -> frozenset[int]:
    """Indexes of the GPUs that the device plugin reports as unhealthy now.

    A lost GPU is unhealthy for every plugin. An XID is an event: a plugin started after it has not seen it.
    """
    unhealthy = [fault for fault in faults_of(node) if fault.is_unhealthy]
    if not unhealthy:
        return frozenset()
    began = datetime.fromisoformat(plugin.created).timestamp() if plugin else 0.0
    return frozenset(fault.gpu for fault in unhealthy if fault.is_lost or fault.since >= began)


def has_fault(node: Node, kind: str) -> bool:
    return any(fault.kind == kind for fault in faults_of(node))


def xid_name(xid: int) -> str:
    """Text of dcgm-exporter's label ``err_msg``."""
    return XIDS.get(xid, "Unknown Error") if xid else "No Error"

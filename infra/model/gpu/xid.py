"""Class of each XID: one table for the alert rules, the health loop and the documentation pages.

An XID is the number under which NVIDIA's driver reports a GPU error. The class says who acts:
``application`` the pod's owner, ``reset`` whoever may reset the GPU, ``replace`` whoever may reboot the node
or change the card, ``informational`` no one. An XID that is not in the table has no class: it is reported as
unknown and causes no action.

Sources: NVIDIA's XID catalogue (its immediate action; numbers and actions as NVIDIA's own NVSentinel maps
them), the XIDs that NVIDIA's device plugin does not count against a GPU (internal/rm/health.go), and the ones
that the EKS node monitoring agent calls fatal. They do not agree everywhere: ``differs`` says where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Class = Literal["application", "reset", "replace", "informational"]
Source = Literal["catalogue", "device plugin", "EKS agent"]

CLASSES: tuple[Class, ...] = ("replace", "reset", "application", "informational")
"""Most severe first."""

ACTIONS: Mapping[Class, str] = {
    "application": "the pod's owner checks the program and restarts it; the GPU is healthy",
    "reset": "the GPU has to be reset, with nothing running on it",
    "replace": "the node has to be rebooted, and the card or the machine replaced if the fault recurs",
    "informational": "nothing; it explains another error, or was already handled",
}

DEVICE_PLUGIN_SKIPS = frozenset({13, 31, 43, 45, 68, 109})
"""NVIDIA's device plugin ignores these; any other XID makes it remove the GPU from allocatable."""

EKS_FATAL = frozenset(
    {46, 48, 54, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158}
)
"""For these the EKS node monitoring agent sets AcceleratedHardwareReady to False."""


@dataclass(frozen=True)
class Xid:
    """One row; ``source`` is the source of the class where the sources differ."""

    number: int
    kind: Class
    meaning: str
    source: Source = "catalogue"
    catalogue: str | None = None
    """Action in NVIDIA's catalogue, if it differs from the class."""

    @property
    def disagreements(self) -> str:
        """The sources that disagree with the class, in words; empty if all agree."""
        sources = [f"the catalogue: {self.catalogue}"] if self.catalogue else []
        is_mild = self.kind in ("application", "informational")
        if is_mild and self.number in EKS_FATAL:
            sources.append("the EKS agent: fatal")
        if is_mild and self.number not in DEVICE_PLUGIN_SKIPS:
            sources.append("the device plugin: out of allocatable")
        return "; ".join(sources)


def _rows(kind: Class, meanings: Mapping[int, str]) -> tuple[Xid, ...]:
    return tuple(Xid(number, kind, meaning) for number, meaning in meanings.items())


_APPLICATION = {
    8: "a kernel ran longer than the watchdog allows",
    11: "a broken command in a channel",
    25: "a broken command in a channel",
    32: "a broken command stream, or a fault on the bus while it was read",
    39: "a copy engine faulted",
    40: "a copy engine faulted",
    41: "a copy engine faulted",
    60: "the security engine faulted",
    69: "a command that the graphics engine does not know",
    94: "an uncorrectable memory error that was contained: only the program that met it is ended",
    126: "a copy engine faulted",
    139: "the optical flow engine faulted",
}
_RESET = {
    46: "the GPU stopped answering",
    48: "an uncorrectable (double-bit) memory error",
    62: "the power management unit stopped",
    64: "a bad row of memory could not be recorded for remapping",
    74: "an NVLink error",
    95: "an uncorrectable memory error that was not contained: every program on the GPU is affected",
    110: "a security fault of the GPU",
    119: "the GPU's system processor (GSP) did not answer in time",
    120: "the GPU's system processor (GSP) failed",
    136: "an NVLink could not be trained",
    140: "an uncorrectable memory error that was not handled",
    143: "the GPU could not be initialised",
    144: "an error of a fifth-generation NVLink (unit SAW)",
    145: "an error of a fifth-generation NVLink (unit RLW)",
    146: "an error of a fifth-generation NVLink (unit TLW)",
    147: "an error of a fifth-generation NVLink (unit TREX)",
    148: "an error of a fifth-generation NVLink (unit NVLPW)",
    149: "an error of a fifth-generation NVLink (unit NETIR)",
    150: "an error of a fifth-generation NVLink (unit MSE)",
    155: "an NVLink error that software defined",
    156: "a part of the GPU was retired",
    158: "the GPU did not end a command in time, and cannot continue",
}
_REPLACE = {
    54: "the power cable or the supply: the GPU runs at lower clocks",
    79: "the GPU has fallen off the bus and cannot be reached",
    151: "the keys of confidential computing could not be changed",
    160: "a memory channel was retired",
}
_INFORMATIONAL = {
    37: "a firmware method that does not exist",
    38: "a watchdog of the firmware",
    44: "a context switch fault caused by another error",
    63: "a bad row or page of memory was recorded for remapping, and is unused after the next reset",
    66: "an access to a register that is not allowed",
    67: "a check of the firmware failed",
    92: "many correctable (single-bit) memory errors",
    93: "the InfoROM was written to too often",
    106: "a test message",
    107: "a test message",
    121: "a corrected error of the link between chips",
    137: "an access over NVLink that was not allowed, by a program",
    141: "a fast path of a channel failed, and the ordinary one was used",
    157: "a part of the GPU could not be retired",
    161: "a memory channel could not be retired",
}
_BY_HAND = (
    Xid(13, "application", "a kernel went out of its bounds, or met an illegal instruction", "device plugin"),
    Xid(31, "application", "a kernel touched memory that is not its own", "device plugin"),
    Xid(43, "application", "a kernel hung and was ended", "device plugin", "ignore"),
    Xid(45, "application", "a channel was torn down, usually after another error", "device plugin"),
    Xid(68, "application", "the video decoder faulted", "device plugin"),
    Xid(109, "application", "a context could not be switched in time", "device plugin", "reset"),
    Xid(142, "reset", "a video encoder faulted", "EKS agent", "contact support"),
    Xid(
        154,
        "reset",
        "the driver reports the recovery that the GPU needs",
        catalogue="as the accompanying XID",
    ),
)

XIDS: Mapping[int, Xid] = {
    row.number: row
    for row in sorted(
        (
            *_rows("application", _APPLICATION),
            *_rows("reset", _RESET),
            *_rows("replace", _REPLACE),
            *_rows("informational", _INFORMATIONAL),
            *_BY_HAND,
        ),
        key=lambda row: row.number,
    )
}


def numbers(kind: Class) -> tuple[int, ...]:
    return tuple(number for number, row in XIDS.items() if row.kind == kind)

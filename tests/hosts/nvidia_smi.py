"""nvidia-smi's output as values: its list (``-L``), its table, and ``--query-gpu`` as csv.

The formats are those of NVIDIA's tool from branch 525 to 595; the table is also read as in this project's
sources, where a slide has shortened its lines. Only what the checks need is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

QUERY = ("index", "uuid", "name", "driver_version", "persistence_mode", "mig.mode.current")
QUERY_COMMAND = f"nvidia-smi --query-gpu={','.join(QUERY)} --format=csv,noheader"

_GPU = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+) \(UUID: (?P<uuid>\S+)\)$")
_MIG = re.compile(r"^MIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>\S+)\)$")
_HEADER = re.compile(
    r"NVIDIA-SMI (?P<smi>\S+)\s+Driver Version: (?P<driver>\S+)\s+CUDA Version: (?P<cuda>\S+)"
)
_ROW = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A)\s+(?:\|\s*)?"
    r"(?P<bus>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s"
)


class Unreadable(ValueError):
    """Output in none of the formats; the message quotes the line."""


@dataclass(frozen=True)
class MigDevice:
    """One slice: ``3g.20gb`` and its own UUID (``MIG-...``)."""

    profile: str
    uuid: str


@dataclass(frozen=True)
class ListedGpu:
    """One GPU of ``nvidia-smi -L`` with the slices below it."""

    index: int
    name: str
    uuid: str
    mig: tuple[MigDevice, ...] = ()

    @property
    def slices(self) -> Counter[str]:
        return Counter(device.profile for device in self.mig)


@dataclass(frozen=True)
class QueriedGpu:
    """One line of ``QUERY_COMMAND``; ``[N/A]`` is None here."""

    index: int
    uuid: str
    name: str
    driver_version: str
    persistence: bool | None
    mig_mode: bool | None


@dataclass(frozen=True)
class TableGpu:
    """One GPU of the table; the table shortens long names and ends them with three dots."""

    index: int
    name: str
    persistence: bool | None
    bus: str


@dataclass(frozen=True)
class Table:
    driver_version: str
    cuda_version: str
    gpus: tuple[TableGpu, ...]


def listed(text: str) -> tuple[ListedGpu, ...]:
    """Read ``nvidia-smi -L``; empty without GPUs."""
    gpus: list[ListedGpu] = []
    for line in _lines(text):
        if found := _GPU.match(line):
            gpus.append(ListedGpu(int(found["index"]), found["name"], found["uuid"]))
        elif (found := _MIG.match(line)) and gpus:
            last = gpus.pop()
            device = MigDevice(found["profile"], found["uuid"])
            gpus.append(ListedGpu(last.index, last.name, last.uuid, (*last.mig, device)))
        elif not line.startswith("No devices"):
            raise Unreadable(f"`nvidia-smi -L` printed {line!r}")
    return tuple(gpus)


def queried(text: str) -> tuple[QueriedGpu, ...]:
    gpus = []
    for line in _lines(text):
        fields = [field.strip() for field in line.split(",")]
        if line.startswith("No devices"):
            continue
        if len(fields) != len(QUERY) or not fields[0].isdigit():
            raise Unreadable(f"`{QUERY_COMMAND}` printed {line!r}")
        index, uuid, name, driver, persistence, mig = fields
        gpus.append(QueriedGpu(int(index), uuid, name, driver, _switch(persistence), _switch(mig)))
    return tuple(gpus)


def table(text: str) -> Table:
    """Read the table: its header and the first line of each GPU."""
    header = _HEADER.search(text)
    if header is None:
        first = next(iter(_lines(text)), "nothing")
        raise Unreadable(f"`nvidia-smi` printed no header with its versions, but {first!r}")
    rows = (_ROW.match(line) for line in _lines(text))
    gpus = tuple(
        TableGpu(int(row["index"]), row["name"], _switch(row["persistence"]), row["bus"])
        for row in rows
        if row
    )
    return Table(header["driver"], header["cuda"], gpus)


def same_product(one: str, other: str) -> bool:
    """Whether two names mean one product: branches before 470 omit the leading ``NVIDIA``."""
    return one.removeprefix("NVIDIA ") == other.removeprefix("NVIDIA ")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _switch(word: str) -> bool | None:
    return {"enabled": True, "on": True, "disabled": False, "off": False}.get(word.strip("[]").lower())

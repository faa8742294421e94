"""nvidia-smi's output as values: its list (``-L``), and ``--query-gpu`` as csv.

The formats are those of NVIDIA's tool from branch 525 to 595. Only what the checks need is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

QUERY = ("index", "uuid", "name", "driver_version", "persistence_mode", "mig.mode.current")
QUERY_COMMAND = f"nvidia-smi --query-gpu={','.join(QUERY)} --format=csv,noheader"

_GPU = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+) \(UUID: (?P<uuid>\S+)\)$")
_MIG = re.compile(r"^MIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>\S+)\)$")


class ParseError(ValueError):
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


def parse_list(text: str) -> tuple[ListedGpu, ...]:
    """Read ``nvidia-smi -L``; empty without GPUs."""
    gpus: list[ListedGpu] = []
    for line in _lines(text):
        if match := _GPU.match(line):
            gpus.append(ListedGpu(int(match["index"]), match["name"], match["uuid"]))
        elif (match := _MIG.match(line)) and gpus:
            last = gpus.pop()
            device = MigDevice(match["profile"], match["uuid"])
            gpus.append(ListedGpu(last.index, last.name, last.uuid, (*last.mig, device)))
        elif not line.startswith("No devices"):
            raise ParseError(f"`nvidia-smi -L` printed {line!r}")
    return tuple(gpus)


def parse_query(text: str) -> tuple[QueriedGpu, ...]:
    gpus = []
    for line in _lines(text):
        fields = [field.strip() for field in line.split(",")]
        if line.startswith("No devices"):
            continue
        if len(fields) != len(QUERY) or not fields[0].isdigit():
            raise ParseError(f"`{QUERY_COMMAND}` printed {line!r}")
        index, uuid, name, driver, persistence, mig = fields
        gpus.append(QueriedGpu(int(index), uuid, name, driver, _switch(persistence), _switch(mig)))
    return tuple(gpus)


def same_product(name: str, other: str) -> bool:
    """Whether two names mean one product: branches before 470 omit the leading ``NVIDIA``."""
    return name.removeprefix("NVIDIA ") == other.removeprefix("NVIDIA ")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _switch(word: str) -> bool | None:
    return {"enabled": True, "on": True, "disabled": False, "off": False}.get(word.strip("[]").lower())

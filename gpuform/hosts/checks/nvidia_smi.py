"""nvidia-smi's output as values: its list (``-L``), and ``--query-gpu`` as csv; its failures as findings.

The formats are those of NVIDIA's tool from branch 525 to 595. Only what the checks need is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from testinfra.host import Host

from gpuform.hosts.checks.connections import run_with_timeout
from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import CheckFailure, first_line

QUERY = ("index", "uuid", "name", "driver_version", "persistence_mode", "mig.mode.current")
QUERY_COMMAND = f"nvidia-smi --query-gpu={','.join(QUERY)} --format=csv,noheader"

_GPU = re.compile(r"^GPU (?P<index>\d+): (?P<name>.+) \(UUID: (?P<uuid>\S+)\)$")
_MIG = re.compile(r"^MIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>\S+)\)$")

_FAILURES = {
    "Driver/library version mismatch": "reboot the host: the kernel still runs the driver before the upgrade",
    "couldn't communicate with the NVIDIA driver": "see `dmesg | grep -i nvidia`: the modules are not "
    "loaded, not built for this kernel, or refused by Secure Boot",
    "No devices were found": "see `dmesg | grep -i nvrm`: the driver runs, and no GPU answers it",
}


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


def ask(host: Host, command: str, expected: Expected) -> str:
    """Run nvidia-smi; a failure becomes a finding with the remedy for its output."""
    result = run_with_timeout(host, command)
    text = f"{result.stdout}\n{result.stderr}".strip()
    if result.rc == 0:
        return str(result.stdout)
    if result.rc == 127:
        raise CheckFailure("nvidia-smi is not installed", f"run {expected.apply}")
    if result.rc == 124:
        raise CheckFailure(
            "nvidia-smi does not return", "see `dmesg | grep -i xid`: a GPU has hung; reboot the host"
        )
    remedy = next((remedy for words, remedy in _FAILURES.items() if words in text), "see `dmesg`")
    raise CheckFailure(
        f"nvidia-smi ends with {result.rc}: {first_line(text)}", f"{remedy}, or run {expected.apply}"
    )


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

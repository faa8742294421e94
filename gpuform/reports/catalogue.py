"""The catalogue of GPUs, as ``gpuform gpus`` prints it: the documented JSON, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from gpuform.reports.tables import build_table
from infra.model.base.prices import USD_PER_HOUR
from infra.model.gpu.machines import MACHINES, Machine
from infra.model.gpu.models import ALIASES, GPUS, Gpu


def entries() -> list[dict[str, Any]]:
    """One entry per GPU model; memory in MiB, prices in USD per hour, null if unknown."""
    return [_entry(gpu) for gpu in GPUS.values()]


def is_named(entry: Mapping[str, Any], part: str) -> bool:
    """Whether a name of the GPU, or of a machine that has it, contains ``part`` in upper or lower case."""
    machines = (machine["name"] for machine in entry["machines"])
    return part.lower() in " ".join((entry["name"], entry["product"], *entry["aliases"], *machines)).lower()


def _entry(gpu: Gpu) -> dict[str, Any]:
    geometry = gpu.geometry
    return {
        "name": gpu.name,
        "aliases": sorted(alias for alias, name in ALIASES.items() if name == gpu.name),
        "product": gpu.product,
        "memory_mib": gpu.memory_mib,
        "compute_capability": ".".join(map(str, gpu.compute)),
        "nvlink": gpu.nvlink,
        "mps": gpu.mps_capable,
        "mig": {p.name: geometry.max_slices(p.name) for p in geometry.profiles} if geometry else {},
        "machines": [_machine(machine) for machine in MACHINES.values() if machine.gpu == gpu.name],
    }


def _machine(machine: Machine) -> dict[str, Any]:
    price = USD_PER_HOUR.get(machine.name)
    return {
        "name": machine.name,
        "seller": machine.seller,
        "gpus": machine.gpus,
        "deprecated": machine.deprecated,
        "usd_per_hour": price,
        "usd_per_gpu_hour": round(price / machine.gpus, 4) if price else None,
    }


def table(catalogue: Iterable[Mapping[str, Any]]) -> Table:
    """One row per GPU model: MIG profiles without their variants, the cheapest machine per GPU-hour."""
    columns = ("GPU", "also called", "memory", "compute", "NVLink", "machines", "cheapest", "$/GPU-hour")
    rows, optional = map(_row, catalogue), ("also called", "machines", "compute", "NVLink")
    return build_table("GPUs", (*columns, "MIG profiles"), rows, whole=columns[2:], optional=optional)


def _row(gpu: Mapping[str, Any]) -> tuple[str, ...]:
    priced = [machine for machine in gpu["machines"] if machine["usd_per_gpu_hour"]]
    cheapest = min(priced, key=lambda machine: machine["usd_per_gpu_hour"], default=None)
    # Without the profiles with a media or graphics attribute.
    profiles = (f"{most}x {name}" for name, most in gpu["mig"].items() if not {*"+-"} & {*name})
    return (
        gpu["name"],
        ", ".join(gpu["aliases"]),
        f"{gpu['memory_mib'] / 1024:.0f} GiB",
        gpu["compute_capability"],
        "yes" if gpu["nvlink"] else "-",
        str(len(gpu["machines"])),
        cheapest["name"] if cheapest else "-",
        f"{cheapest['usd_per_gpu_hour']:.3f}" if cheapest else "-",
        ", ".join(profiles) or "-",
    )

"""The catalogue of GPUs in the form that ``gpuform gpus --json`` documents."""

from __future__ import annotations

from typing import Any

from infra.model.gpu import ALIASES, GPUS, Gpu
from infra.model.machines import MACHINES, Machine
from infra.model.prices import USD_PER_HOUR


def entries() -> list[dict[str, Any]]:
    """One entry per GPU model; memory in MiB, prices in USD per hour, null if unknown."""
    return [_entry(gpu) for gpu in GPUS.values()]


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
        "mig": {p.name: geometry.most(p.name) for p in geometry.profiles} if geometry else {},
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

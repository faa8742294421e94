"""Checks of drivers against a pool's GPUs and of acknowledged CVEs, for Ansible and the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.model import drivers
from infra.model.errors import InputError
from infra.model.gpu import Gpu, Modules
from infra.model.pool import Pool
from infra.model.quantity import numbers


def last_branch(gpu: Gpu, pool: Pool) -> int | None:
    """The last branch that supports the GPU and, if the pool's machine has any, its EFA adapters."""
    efa = drivers.LAST_WITH_EFA.get(gpu.name) if pool.flavor and pool.flavor.efa else None
    return min((last for last in (gpu.driver.last, efa) if last is not None), default=None)


def check(version: str, gpu: Gpu, pool: Pool, path: str) -> None:
    """Refuse a driver that is too new or too old for the GPU, or too old for its MIG layout."""
    needs, last = gpu.driver, last_branch(gpu, pool)
    if last is not None and drivers.branch(version) > last:
        what = gpu.name if last == gpu.driver.last else f"EFA with {gpu.name}"
        fact = f"{version} does not support {what} (pool {pool.name}): its last branch is {last}"
        raise InputError(path, fact, f"use {last} or an older branch")
    if numbers(version) < numbers(needs.first):
        fact = f"{version} does not support {gpu.name} yet (pool {pool.name})"
        raise InputError(path, fact, f"use {needs.first} or newer")
    if pool.layout is not None and needs.mig and numbers(version) < numbers(needs.mig):
        fact = f"{version} does not support MIG on {gpu.name} yet (pool {pool.name})"
        raise InputError(path, fact, f"use {needs.mig} or newer")


def check_modules(
    modules: Modules | None,
    version: str,
    gpu: Gpu,
    pool: Pool,
    path: str,
    other: str = "leave it out",
) -> None:
    """Refuse kernel modules that do not support the GPU in this branch; None: as NVIDIA recommends."""
    able = drivers.flavours(gpu, version)
    if modules and modules not in able:
        fact = f"{modules} modules do not support {gpu.name} in branch {drivers.branch(version)}"
        raise InputError(path, f"{fact} (pool {pool.name})", f"use {able[0]}, or {other}")


def check_named(
    path: str,
    version: str,
    holes: Sequence[str],
    fixes: Mapping[str, str],
    owner: str,
    acknowledged: Sequence[str],
) -> None:
    """Refuse a version below the floor unless all its open CVEs are acknowledged."""
    missing = [cve for cve in holes if cve not in acknowledged]
    if missing:
        raise InputError(
            path,
            f"{version} allows container escapes to the host: {', '.join(missing)}",
            f"use {drivers.floor(fixes)} or newer, or accept it by {owner}.acknowledge: [{', '.join(holes)}]",
        )


def check_acknowledged(owner: str, what: str, holes: Sequence[str], acknowledged: Sequence[str]) -> None:
    """Refuse acknowledged CVEs that are not open in ``what``."""
    for index, cve in enumerate(acknowledged):
        if cve not in holes:
            fact = f"{cve} is fixed in {what}"
            raise InputError(f"{owner}.acknowledge[{index}]", fact, "leave it out")

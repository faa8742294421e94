"""Which NVIDIA driver, container toolkit and CUDA toolkit fit which GPU, and the checks of declared ones.

A GPU's driver requirements are in its entry of the catalogue (``infra.model.gpu``). Open kernel modules exist
from R515 and are NVIDIA's default from R560; they need Turing or newer (driver installation guide, kernel
modules). CUDA 11, 12 and 13 run from R450, R525 and R580 on (CUDA compatibility, minor version
compatibility); the first release that compiles for a compute capability, and CUDA 13 without Volta: CUDA's
release notes. Not in the tables: boards with NVSwitch but fewer than eight GPUs of one host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from infra.model.amounts import numbers
from infra.model.errors import InputError
from infra.model.gpu import Gpu, Modules

if TYPE_CHECKING:
    from infra.model.pool import Pool

Version = tuple[int, ...]

BRANCHES = (450, 460, 470, 510, 515, 525, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595)
FIRST_OPEN = 515
FIRST_OPEN_BY_DEFAULT = 560
NVSWITCH_GPUS = 8
"""Number of GPUs from which a host's SXM board has NVSwitch: HGX boards with four have only NVLink."""


LAST_WITH_EFA: Mapping[str, int] = {"GB200": 580, "GB300": 580}
"""Last branch with GPUDirect over the Elastic Fabric Adapter, by GPU: R595 requires a PCIe topology that P6e
machines of EC2 do not have, so that NCCL aborts [release notes of 595.91.07; NVIDIA/aicr#2383]."""

_FIRST_CUDA_OF_COMPUTE: tuple[tuple[tuple[int, int], Version], ...] = (
    ((12, 0), (12, 8)),
    ((10, 3), (12, 9)),
    ((10, 0), (12, 8)),
    ((8, 9), (11, 8)),
    ((8, 6), (11, 1)),
    ((0, 0), (11, 0)),
)
_BRANCH_OF_CUDA: Mapping[Version, int] = {
    (11, 0): 450,
    (11, 1): 455,
    (11, 8): 520,
    (12, 8): 570,
    (12, 9): 575,
}
"""Branch of the driver that came with a CUDA toolkit [CUDA release notes, "CUDA Driver"]."""
_LAST_BRANCH: Mapping[Version, int] = {(5, 0): 470, (7, 5): 580}
"""Last branch for compute capabilities before these [NVIDIA data center drivers: Kepler; R580, Volta]."""
FIRST_BRANCH_OF_CUDA: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
LAST_CUDA_OF_FAMILY: Mapping[str, int] = {"volta": 12}

BAD_TOOLKIT = "1.18.0"
"""It overwrites containerd's ``imports``, so what the cluster's installer put there is lost."""
TOOLKIT_FIXES: Mapping[str, str] = {
    "CVE-2024-0132": "1.16.2",
    "CVE-2025-23359": "1.17.4",
    "CVE-2025-23266": "1.17.8",
}
"""Escapes from a container to its host, and the release that fixed each [NVIDIA security bulletins]."""
OPERATOR_FIXES: Mapping[str, str] = {
    "CVE-2024-0132": "24.6.2",
    "CVE-2025-23359": "24.9.2",
    "CVE-2025-23266": "25.3.1",
}
"""The operator's chart that fixed each of them: an older one installs a vulnerable toolkit."""


def branch(version: str) -> int:
    """The branch of a driver: 580 for ``580.95.05``."""
    return numbers(version)[0]


def modules(gpu: Gpu, version: str) -> Modules:
    """The flavour of kernel modules that NVIDIA recommends for the GPU in this branch."""
    if "open" in flavours(gpu, version) and (
        branch(version) >= FIRST_OPEN_BY_DEFAULT or gpu.driver.modules is not None
    ):
        return "open"
    return "proprietary"


def flavours(gpu: Gpu, version: str) -> tuple[Modules, ...]:
    """The flavours of kernel modules that support the GPU in this branch."""
    if gpu.driver.modules is not None:
        return gpu.driver.modules
    if gpu.compute < (7, 5) or branch(version) < FIRST_OPEN:
        return ("proprietary",)
    return ("open", "proprietary")


def needs_fabric_manager(gpu: Gpu, count: int) -> bool:
    """Whether the host's GPUs use NVSwitch: without the fabric manager no CUDA program starts there."""
    return gpu.linked == "nvswitch" and count >= NVSWITCH_GPUS


def first_cuda(gpu: Gpu) -> Version:
    """The first CUDA toolkit that compiles for the GPU."""
    return _first_cuda(gpu.compute)


def first_branch(capability: tuple[int, int]) -> int:
    """The first driver branch that supports GPUs of this compute capability."""
    return _BRANCH_OF_CUDA[_first_cuda(capability)]


def last_branch(capability: tuple[int, int]) -> int | None:
    """The last driver branch for GPUs of this compute capability; None if none is known."""
    return next((last for before, last in _LAST_BRANCH.items() if capability < before), None)


def _first_cuda(capability: tuple[int, int]) -> Version:
    return next(cuda for compute, cuda in _FIRST_CUDA_OF_COMPUTE if capability >= compute)


def open_holes(toolkit: str) -> tuple[str, ...]:
    """The vulnerabilities that a container toolkit of this version still has, oldest first."""
    return _open(TOOLKIT_FIXES, toolkit)


def operator_holes(chart: str) -> tuple[str, ...]:
    """The vulnerabilities that an operator of this chart version (``v25.3.0``) still has, oldest first."""
    return _open(OPERATOR_FIXES, chart.removeprefix("v"))


def floor(fixes: Mapping[str, str]) -> str:
    """The first version in which all of these are fixed."""
    return max(fixes.values(), key=numbers)


def _open(fixes: Mapping[str, str], version: str) -> tuple[str, ...]:
    return tuple(cve for cve, fixed in fixes.items() if numbers(version) < numbers(fixed))


def last_branch_with_efa(gpu: Gpu, pool: Pool) -> int | None:
    """The last branch that supports the GPU and, if the pool's machine has any, its EFA adapters."""
    efa = LAST_WITH_EFA.get(gpu.name) if pool.flavor and pool.flavor.efa else None
    return min((last for last in (gpu.driver.last, efa) if last is not None), default=None)


def check(version: str, gpu: Gpu, pool: Pool, path: str) -> None:
    """Refuse a driver that is too new or too old for the GPU, or too old for its MIG layout."""
    needs, last = gpu.driver, last_branch_with_efa(gpu, pool)
    if last is not None and branch(version) > last:
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
    modules: Modules | None, version: str, gpu: Gpu, pool: Pool, path: str, other: str = "leave it out"
) -> None:
    """Refuse kernel modules that do not support the GPU in this branch; None: as NVIDIA recommends."""
    able = flavours(gpu, version)
    if modules and modules not in able:
        fact = f"{modules} modules do not support {gpu.name} in branch {branch(version)}"
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
            f"use {floor(fixes)} or newer, or accept it by {owner}.acknowledge: [{', '.join(holes)}]",
        )


def check_acknowledged(owner: str, what: str, holes: Sequence[str], acknowledged: Sequence[str]) -> None:
    """Refuse acknowledged CVEs that are not open in ``what``."""
    for index, cve in enumerate(acknowledged):
        if cve not in holes:
            fact = f"{cve} is fixed in {what}"
            raise InputError(f"{owner}.acknowledge[{index}]", fact, "leave it out")

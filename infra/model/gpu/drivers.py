"""Which NVIDIA driver, container toolkit and CUDA toolkit fit which GPU.

A GPU's driver requirements are in its entry of the catalogue (``infra.model.gpu.models``). Open kernel
modules exist from R515 and are NVIDIA's default from R560; they need Turing or newer (driver installation
guide, kernel modules). CUDA 11, 12 and 13 run from R450, R525 and R580 on (CUDA compatibility, minor version
compatibility); the first release that compiles for a compute capability, and CUDA 13 without Volta: CUDA's
release notes. Not in the tables: boards with NVSwitch but fewer than eight GPUs of one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra import facts
from infra.model.base.errors import InputError
from infra.model.base.quantities import version_numbers
from infra.model.gpu.models import Gpu, Modules

Version = tuple[int, ...]

BRANCHES = tuple(facts.BRANCHES)
FIRST_OPEN = 515
FIRST_OPEN_BY_DEFAULT = 560
NVSWITCH_GPUS = 8
"""Number of GPUs from which a host's SXM board has NVSwitch: HGX boards with four have only NVLink."""

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
_LAST_BRANCH = {tuple(row.below): row.branch for row in facts.LAST_BRANCHES if row.below}
"""Last branch for compute capabilities before these."""
FIRST_BRANCH_OF_CUDA: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
LAST_CUDA_OF_FAMILY: Mapping[str, int] = {"volta": 12}

TOOLKIT_FIXES = facts.fixes("container-toolkit")
"""Escapes from a container to its host, and the release that fixed each."""
OPERATOR_FIXES = facts.fixes("gpu-operator")
"""The operator's chart that fixed each of them: an older one installs a vulnerable toolkit."""


def branch(version: str) -> int:
    """The branch of a driver: 580 for ``580.178.04``."""
    return version_numbers(version)[0]


def recommended_modules(gpu: Gpu, version: str) -> Modules:
    """The flavour of kernel modules that NVIDIA recommends for the GPU in this branch."""
    if "open" in supported_modules(gpu, version) and (
        branch(version) >= FIRST_OPEN_BY_DEFAULT or gpu.driver.modules is not None
    ):
        return "open"
    return "proprietary"


def supported_modules(gpu: Gpu, version: str) -> tuple[Modules, ...]:
    """The flavours of kernel modules that support the GPU in this branch."""
    if gpu.driver.modules is not None:
        return gpu.driver.modules
    if gpu.compute < (7, 5) or branch(version) < FIRST_OPEN:
        return ("proprietary",)
    return ("open", "proprietary")


def needs_fabric_manager(gpu: Gpu, count: int) -> bool:
    """Whether the host's GPUs use NVSwitch: without the fabric manager no CUDA program starts there."""
    return gpu.linked == "nvswitch" and count >= NVSWITCH_GPUS


def first_cuda(capability: tuple[int, int]) -> Version:
    """The first CUDA toolkit that compiles for GPUs of this compute capability."""
    return next(cuda for compute, cuda in _FIRST_CUDA_OF_COMPUTE if capability >= compute)


def first_branch(capability: tuple[int, int]) -> int:
    """The first driver branch that supports GPUs of this compute capability."""
    return _BRANCH_OF_CUDA[first_cuda(capability)]


def last_branch(capability: tuple[int, int]) -> int | None:
    """The last driver branch for GPUs of this compute capability; None if none is known."""
    return next((last for bound, last in _LAST_BRANCH.items() if capability < bound), None)


def open_cves(fixes: Mapping[str, str], version: str) -> tuple[str, ...]:
    """Those of ``fixes`` that this version (``1.17.3`` or ``v25.3.0``) still has, oldest first."""
    return tuple(cve for cve, fixed in fixes.items() if version_numbers(version) < version_numbers(fixed))


def advice(version: str, last: int | None, path: str) -> Iterator[str]:
    """A warning of a driver without the newest security fixes; none if its GPU has no newer branch."""
    number, floor = branch(version), facts.DRIVER_FLOORS.get(branch(version))
    ends, newer = facts.BRANCHES[number].ends, [b for b in facts.DRIVER_FLOORS if number < b <= (last or b)]
    if floor and version_numbers(version) < version_numbers(floor.fixed):
        yield f"{path}: {version} has vulnerabilities (NVIDIA {floor.id}); use {floor.fixed} or newer"
    elif not floor and newer and ends and ends <= facts.BRANCHES[number].date:
        fact = f"NVIDIA's fixes for branch {number} ended on {ends}"
        yield f"{path}: {fact}; use {facts.DRIVER_FLOORS[max(newer)].fixed}, or another branch with fixes"


def check_cves(
    path: str, version: str, fixes: Mapping[str, str], owner: str, acknowledged: Sequence[str]
) -> tuple[str, ...]:
    """The version's open CVEs; InputError if one of them is not acknowledged."""
    cves = open_cves(fixes, version)
    unacknowledged = [cve for cve in cves if cve not in acknowledged]
    if unacknowledged:
        fact = f"{version} allows container escapes to the host: {', '.join(unacknowledged)}"
        fixed = max(fixes.values(), key=version_numbers)
        remedy = f"use {fixed} or newer, or accept it by {owner}.acknowledge: [{', '.join(cves)}]"
        raise InputError(path, fact, remedy)
    return cves


def check_acknowledged(owner: str, product: str, cves: Sequence[str], acknowledged: Sequence[str]) -> None:
    """Refuse acknowledged CVEs that are not open in ``product``."""
    for index, cve in enumerate(acknowledged):
        if cve not in cves:
            fact = f"{cve} is fixed in {product}"
            raise InputError(f"{owner}.acknowledge[{index}]", fact, "leave it out")

"""Which NVIDIA driver, container toolkit and CUDA toolkit fit which GPU.

Branches: NVIDIA's data center driver documentation; where no page names a GPU's first branch, it is that
of the drivers released with the GPU (A10G, A30, A100 80GB PCIe, L4, L40S, H200). Open kernel modules
exist from R515 and are NVIDIA's default from R560; they need Turing or newer, and Blackwell supports
no others (driver installation guide, kernel modules). R580 is the last branch for Volta, and B200
needs 570.133.20 (GPU operator's platform support). First drivers with MIG: NVIDIA's MIG user guide,
deployment considerations (its editions of 2025 swap the two lines for Ampere, 450.80.02, and Hopper,
525.53). CUDA 11, 12 and 13 run from R450, R525 and R580 on (CUDA
compatibility, minor version compatibility); the first release that compiles for a compute capability,
and CUDA 13 without Volta: CUDA's release notes. Product names are NVML's, as nvidia-smi prints them. Not
in the tables: GPUs that the project's catalogue does not have, and boards with NVSwitch but fewer than
eight GPUs of one host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.model.gpu import Gpu

Modules = Literal["open", "proprietary"]
Version = tuple[int, ...]

BRANCHES = (450, 460, 470, 510, 515, 525, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595)
FIRST_OPEN = 515
FIRST_OPEN_BY_DEFAULT = 560
NVSWITCH_GPUS = 8
"""Number of GPUs from which a host's SXM board has NVSwitch: HGX boards with four have only NVLink."""


@dataclass(frozen=True)
class Support:
    """A GPU's driver requirements: ``first`` is the lowest version, ``mig`` the lowest with MIG."""

    product: str
    first: str
    mig: str | None = None
    nvswitch: bool = False


_AMPERE_MIG, _HOPPER_MIG, _B200, _RTX = "450.80.02", "525.53", "570.133.20", "575.51.03"

SUPPORT: Mapping[str, Support] = {
    "V100-SXM2-16GB": Support("Tesla V100-SXM2-16GB", "450"),
    "V100-SXM2-32GB": Support("Tesla V100-SXM2-32GB", "450"),
    "V100-PCIE-16GB": Support("Tesla V100-PCIE-16GB", "450"),
    "V100S-PCIE-32GB": Support("Tesla V100S-PCIE-32GB", "450"),
    "T4": Support("Tesla T4", "450"),
    "A10G": Support("NVIDIA A10G", "470"),
    "A30": Support("NVIDIA A30", "460", mig="460"),
    "A100-PCIE-40GB": Support("NVIDIA A100-PCIE-40GB", "450", mig=_AMPERE_MIG),
    "A100-SXM4-40GB": Support("NVIDIA A100-SXM4-40GB", "450", mig=_AMPERE_MIG, nvswitch=True),
    "A100-PCIE-80GB": Support("NVIDIA A100 80GB PCIe", "470", mig="470"),
    "A100-SXM4-80GB": Support("NVIDIA A100-SXM4-80GB", "450", mig=_AMPERE_MIG, nvswitch=True),
    "L4": Support("NVIDIA L4", "525"),
    "L40S": Support("NVIDIA L40S", "535"),
    "H100-PCIe": Support("NVIDIA H100 PCIe", "525", mig=_HOPPER_MIG),
    "H100-SXM": Support("NVIDIA H100 80GB HBM3", "525", mig=_HOPPER_MIG, nvswitch=True),
    "H200": Support("NVIDIA H200", "550", mig="550", nvswitch=True),
    "B200": Support("NVIDIA B200", _B200, mig=_B200, nvswitch=True),
    "RTX-PRO-6000": Support("NVIDIA RTX PRO 6000 Blackwell Server Edition", _RTX, mig=_RTX),
}

LAST_WITH_EFA: Mapping[str, int] = {"GB200": 580, "GB300": 580}
"""Last branch with GPUDirect over the Elastic Fabric Adapter, by GPU: R595 requires a PCIe topology that P6e
machines of EC2 do not have, so that NCCL aborts [release notes of 595.91.07; NVIDIA/aicr#2383]."""

_FIRST_CUDA_OF_COMPUTE: tuple[tuple[tuple[int, int], Version], ...] = (
    ((12, 0), (12, 8)),
    ((10, 0), (12, 8)),
    ((8, 9), (11, 8)),
    ((8, 6), (11, 1)),
    ((0, 0), (11, 0)),
)
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

_VERSION = re.compile(r"\d+(\.\d+)*")


def numbers(version: str) -> Version:
    """A dotted version for comparison: ``580.95.05`` as (580, 95, 5)."""
    assert _VERSION.fullmatch(version), version
    return tuple(int(part) for part in version.split("."))


def branch(version: str) -> int:
    """The branch of a driver: 580 for ``580.95.05``."""
    return numbers(version)[0]


def support(gpu: Gpu) -> Support:
    """The row of a GPU; every GPU of the catalogue has one."""
    return SUPPORT[gpu.name]


def modules(gpu: Gpu, version: str) -> Modules:
    """The flavour of kernel modules that NVIDIA recommends for the GPU in this branch."""
    if "open" in flavours(gpu, version) and (
        branch(version) >= FIRST_OPEN_BY_DEFAULT or gpu.family == "blackwell"
    ):
        return "open"
    return "proprietary"


def flavours(gpu: Gpu, version: str) -> tuple[Modules, ...]:
    """The flavours of kernel modules that support the GPU in this branch."""
    if gpu.family == "blackwell":
        return ("open",)
    if gpu.compute < (7, 5) or branch(version) < FIRST_OPEN:
        return ("proprietary",)
    return ("open", "proprietary")


def needs_fabric_manager(gpu: Gpu, count: int) -> bool:
    """Whether the host's GPUs use NVSwitch: without the fabric manager no CUDA program starts there."""
    return support(gpu).nvswitch and count >= NVSWITCH_GPUS


def first_cuda(gpu: Gpu) -> Version:
    """The first CUDA toolkit that compiles for the GPU."""
    return next(cuda for compute, cuda in _FIRST_CUDA_OF_COMPUTE if gpu.compute >= compute)


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

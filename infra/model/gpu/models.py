"""The catalogue of GPUs: the labels that discovery sets for each, the ways to share it, its drivers.

Device names are NVML's, as ``nvidia-smi`` prints them; memory is NVML's total in MiB, which is what the label
``nvidia.com/gpu.memory`` carries: T4 15360 [CERN's label list], 189471 (GB200), 275040 (B300; EC2 says the
same), 97871 (GH200 480GB), 95830 (H100 NVL), 32623 (RTX PRO 4500 Server Edition), 46068 (A40 and L40 with
ECC), 23028 (A10 with ECC), 15360 (T4G). Compute capability and family: NVIDIA's table of CUDA GPUs. PCI
device ids: mig-parted's configuration file for the MIG-capable ones, the list of devices in the README of
NVIDIA's open kernel modules for the newer ones, the PCI id database for the rest. NVLink: NVIDIA's data
sheets; set for modules (SXM, HGX boards, GB200), which are linked on every machine, and not for PCIe cards,
some of which take a bridge that not every machine has, nor for GH200: its one GPU is linked to its
processor. NVSwitch is on HGX boards: GB200's switches are in the rack, so its hosts have no fabric manager.

Drivers: NVIDIA's data center driver documentation; where no page names a GPU's first branch, it is that of
the drivers released with the GPU (A10, A10G, A30, A40, A100 80GB PCIe, L4, L40, L40S, H100 NVL, H200, B300,
T4G). B200 needs 570.133.20 (GPU operator's platform support), and GB200 has the same chip; the drivers' list
of GPUs has the RTX PRO 4500 Server Edition from 595.58.03 on. First drivers with MIG: NVIDIA's MIG user
guide, deployment considerations (its editions of 2025 swap the two lines for Ampere, 450.80.02, and Hopper,
525.53). R580 is the last branch for Volta; NVIDIA has announced no last branch for the other families. Grace
Hopper and Blackwell run with the open kernel modules only (driver installation guide, kernel modules).

EC2's name and memory (MiB) of a GPU, in Karpenter's labels instance-gpu-name and instance-gpu-memory: EC2
DescribeInstanceTypes, in the project's table of EC2 GPU types of 2026-07-20. Bottlerocket's name: those that
its migmanager supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.model.gpu.mig import (
    A30,
    A100_40,
    A100_80,
    B200,
    B300,
    GB200,
    GH200,
    H100,
    H100_NVL,
    H100_PCIE,
    H200,
    RTX_PRO_4500,
    RTX_PRO_6000,
    Geometry,
    Profile,
)

Modules = Literal["open", "proprietary"]
Linked = Literal["", "nvlink", "nvswitch"]


@dataclass(frozen=True)
class Drivers:
    """A GPU's driver requirements.

    ``first`` is the lowest version, ``mig`` the lowest with MIG, ``last`` the last branch; ``modules``: the
    only kernel modules that support it, None where family and branch decide.
    """

    first: str
    mig: str | None = None
    last: int | None = None
    modules: tuple[Modules, ...] | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU model; ``memory_mib`` in MiB, ``pci`` as vendor:device in lower-case hex.

    ``linked``: how it is linked to the other GPUs of its machine, on every machine that has it; ``ec2`` and
    ``bottlerocket``: its names there.
    """

    name: str
    device: str
    memory_mib: int
    compute: tuple[int, int]
    family: str
    pci: str
    driver: Drivers
    geometry: Geometry | None = None
    linked: Linked = ""
    ec2: tuple[str, int] | None = None
    bottlerocket: str | None = None
    is_declared: bool = False
    """Declared by the environment."""

    @property
    def product(self) -> str:
        """``nvidia.com/gpu.product`` as GPU feature discovery writes it: the name, its spaces as dashes."""
        return "-".join(self.device.split())

    @property
    def nvlink(self) -> bool:
        return bool(self.linked)

    @property
    def mig_capable(self) -> bool:
        return self.geometry is not None

    def slice_mib(self, profile: Profile) -> int:
        """Memory of a MIG slice in MiB; if it has not been read, its share of the GPU's."""
        assert self.geometry is not None
        return profile.memory_mib or self.memory_mib * profile.memory // self.geometry.memory

    @property
    def mps_capable(self) -> bool:
        """Whether NVIDIA's device plugin can share it by MPS, which needs Volta's memory limits."""
        return self.compute >= (7, 0)

    @property
    def mps_clients(self) -> int:
        """Maximum number of MPS clients: 48 from Volta on, but NVIDIA's daemon allows it only from 7.5."""
        return 48 if self.compute >= (7, 5) else 16

    @property
    def device_filter(self) -> str:
        """The device id as mig-parted's ``device-filter`` writes it, for example 0x20F110DE."""
        vendor, device = self.pci.split(":")
        return f"0x{device.upper()}{vendor.upper()}"


_OPEN: tuple[Modules, ...] = ("open",)
_VOLTA = Drivers("450", last=580)
_A100 = Drivers("450", mig="450.80.02")
_H100 = Drivers("525", mig="525.53")
_B200 = Drivers("570.133.20", mig="570.133.20", modules=_OPEN)
_B300 = Drivers("580", mig="580", modules=_OPEN)
_GH200 = Drivers("535", mig="535", modules=_OPEN)
_RTX = Drivers("575.51.03", mig="575.51.03", modules=_OPEN)
_RTX_4500 = Drivers("595.58.03", mig="595.58.03", modules=_OPEN)
_RTX_NAME = "NVIDIA RTX PRO {} Blackwell Server Edition"

# fmt: off
_ROWS = (
    Gpu("V100-SXM2-16GB", "Tesla V100-SXM2-16GB", 16384, (7, 0), "volta", "10de:1db1", _VOLTA, None,
        "nvlink"),
    Gpu("V100-SXM2-32GB", "Tesla V100-SXM2-32GB", 32768, (7, 0), "volta", "10de:1db5", _VOLTA, None, "nvlink",
        ec2=("v100", 32768)),
    Gpu("V100-PCIE-16GB", "Tesla V100-PCIE-16GB", 16384, (7, 0), "volta", "10de:1db4", _VOLTA),
    Gpu("V100S-PCIE-32GB", "Tesla V100S-PCIE-32GB", 32768, (7, 0), "volta", "10de:1df6", _VOLTA),
    Gpu("T4", "Tesla T4", 15360, (7, 5), "turing", "10de:1eb8", Drivers("450"), ec2=("t4", 16384)),
    Gpu("T4G", "NVIDIA T4G", 15360, (7, 5), "turing", "10de:1eb4", Drivers("470"), ec2=("t4g", 16384)),
    Gpu("A10", "NVIDIA A10", 23028, (8, 6), "ampere", "10de:2236", Drivers("460")),
    Gpu("A10G", "NVIDIA A10G", 23028, (8, 6), "ampere", "10de:2237", Drivers("470"), ec2=("a10g", 22888)),
    Gpu("A30", "NVIDIA A30", 24576, (8, 0), "ampere", "10de:20b7", Drivers("460", mig="460"), A30),
    Gpu("A40", "NVIDIA A40", 46068, (8, 6), "ampere", "10de:2235", Drivers("460")),
    Gpu("A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", 40960, (8, 0), "ampere", "10de:20f1", _A100, A100_40),
    Gpu("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 40960, (8, 0), "ampere", "10de:20b0", _A100, A100_40,
        "nvswitch", ec2=("a100", 40960), bottlerocket="a100.40gb"),
    Gpu("A100-PCIE-80GB", "NVIDIA A100 80GB PCIe", 81920, (8, 0), "ampere", "10de:20b5",
        Drivers("470", mig="470"), A100_80),
    Gpu("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 81920, (8, 0), "ampere", "10de:20b2", _A100, A100_80,
        "nvswitch", ec2=("a100", 81920), bottlerocket="a100.80gb"),
    Gpu("L4", "NVIDIA L4", 23034, (8, 9), "ada-lovelace", "10de:27b8", Drivers("525"), ec2=("l4", 22888)),
    Gpu("L40", "NVIDIA L40", 46068, (8, 9), "ada-lovelace", "10de:26b5", Drivers("525")),
    Gpu("L40S", "NVIDIA L40S", 46068, (8, 9), "ada-lovelace", "10de:26b9", Drivers("535"),
        ec2=("l40s", 45776)),
    Gpu("H100-PCIe", "NVIDIA H100 PCIe", 81559, (9, 0), "hopper", "10de:2331", _H100, H100_PCIE),
    Gpu("H100-NVL", "NVIDIA H100 NVL", 95830, (9, 0), "hopper", "10de:2321", Drivers("535", mig="535"),
        H100_NVL),
    Gpu("H100-SXM", "NVIDIA H100 80GB HBM3", 81559, (9, 0), "hopper", "10de:2330", _H100, H100,
        "nvswitch", ec2=("h100", 81920), bottlerocket="h100.80gb"),
    Gpu("GH200", "NVIDIA GH200 480GB", 97871, (9, 0), "hopper", "10de:2342", _GH200, GH200),
    Gpu("H200", "NVIDIA H200", 143771, (9, 0), "hopper", "10de:2335", Drivers("550", mig="550"), H200,
        "nvswitch", ec2=("h200", 144384), bottlerocket="h200.141gb"),
    Gpu("B200", "NVIDIA B200", 183359, (10, 0), "blackwell", "10de:2901", _B200, B200, "nvswitch",
        ec2=("b200", 183359), bottlerocket="b200.180gb"),
    Gpu("GB200", "NVIDIA GB200", 189471, (10, 0), "blackwell", "10de:2941", _B200, GB200, "nvlink"),
    Gpu("B300", "NVIDIA B300 SXM6 AC", 275040, (10, 3), "blackwell", "10de:3182", _B300, B300, "nvswitch",
        ec2=("b300", 275040)),
    Gpu("RTX-PRO-4500", _RTX_NAME.format(4500), 32623, (12, 0), "blackwell", "10de:2c3a", _RTX_4500,
        RTX_PRO_4500, ec2=("rtx-pro-4500", 32768)),
    Gpu("RTX-PRO-6000", _RTX_NAME.format(6000), 97887, (12, 0), "blackwell", "10de:2bb5", _RTX,
        RTX_PRO_6000, ec2=("rtx-pro-server-6000", 98304)),
)
# fmt: on

GPUS: Mapping[str, Gpu] = {gpu.name: gpu for gpu in _ROWS}

ONLY_ARM64 = ("GH200", "GB200")
"""Modules with NVIDIA's Grace processor, so their hosts are arm64."""

ALIASES: Mapping[str, str] = {
    "V100": "V100-PCIE-16GB",
    "V100S": "V100S-PCIE-32GB",
    "A100-40GB": "A100-PCIE-40GB",  # what CERN and Bumble run
    "A100-80GB": "A100-SXM4-80GB",
    "H100": "H100-SXM",
    "H100 NVL": "H100-NVL",
    "RTX PRO 4500": "RTX-PRO-4500",
    "RTX PRO 6000": "RTX-PRO-6000",
}
"""Short names for the variant that the sources mean, or that the cloud sells."""
AWS_ALIASES: Mapping[str, str] = {**ALIASES, "V100": "V100-SXM2-32GB", "A100-40GB": "A100-SXM4-40GB"}
"""What the short names mean on AWS: EC2 sells only these."""

GKE_GPUS: Mapping[str, str] = {
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-v100": "V100-SXM2-16GB",
    "nvidia-l4": "L4",
    "nvidia-tesla-a100": "A100-SXM4-40GB",
    "nvidia-a100-80gb": "A100-SXM4-80GB",
    "nvidia-h100-80gb": "H100-SXM",
    "nvidia-h100-mega-80gb": "H100-SXM",
    "nvidia-h200-141gb": "H200",
    "nvidia-b200": "B200",
    "nvidia-gb200": "GB200",
}
"""Values of ``cloud.google.com/gke-accelerator`` (cloud.google.com, "GPU machine types")."""

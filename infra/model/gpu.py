"""The catalogue of GPUs: the labels that discovery sets for each, and the ways to share it.

Product strings are NVML's device names with spaces turned into dashes, as GPU feature discovery writes them;
memory is NVML's total in MiB, which is what the label ``nvidia.com/gpu.memory`` carries: T4 15360 [CERN's
label list]. Compute capability and family: NVIDIA's table of CUDA GPUs. PCI device ids: mig-parted's
configuration file for the MIG-capable ones, the PCI id database for the rest. NVLink: NVIDIA's data sheets;
set for modules (SXM, and the HGX boards of H200 and B200), which are linked on every machine, and not for
PCIe cards, some of which take a bridge that not every machine has. The last driver branch of Volta is R580;
NVIDIA has announced no last branch for the other families.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.model.mig import GEOMETRIES, Geometry


@dataclass(frozen=True)
class Gpu:
    """One GPU model; ``memory_mib`` in MiB, ``pci`` as vendor:device in lower-case hex."""

    name: str
    product: str
    memory_mib: int
    compute: tuple[int, int]
    family: str
    pci: str
    last_driver_branch: int | None = None
    nvlink: bool = False
    """Linked to the other GPUs of its machine by NVLink, on every machine that has it."""

    @property
    def geometry(self) -> Geometry | None:
        return GEOMETRIES.get(self.name)

    @property
    def mig_capable(self) -> bool:
        return self.geometry is not None

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


_ROWS = (
    Gpu("V100-SXM2-16GB", "Tesla-V100-SXM2-16GB", 16384, (7, 0), "volta", "10de:1db1", 580, nvlink=True),
    Gpu("V100-SXM2-32GB", "Tesla-V100-SXM2-32GB", 32768, (7, 0), "volta", "10de:1db5", 580, nvlink=True),
    Gpu("V100-PCIE-16GB", "Tesla-V100-PCIE-16GB", 16384, (7, 0), "volta", "10de:1db4", 580),
    Gpu("V100S-PCIE-32GB", "Tesla-V100S-PCIE-32GB", 32768, (7, 0), "volta", "10de:1df6", 580),
    Gpu("T4", "Tesla-T4", 15360, (7, 5), "turing", "10de:1eb8"),
    Gpu("A10G", "NVIDIA-A10G", 23028, (8, 6), "ampere", "10de:2237"),
    Gpu("A30", "NVIDIA-A30", 24576, (8, 0), "ampere", "10de:20b7"),
    Gpu("A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB", 40960, (8, 0), "ampere", "10de:20f1"),
    Gpu("A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", 40960, (8, 0), "ampere", "10de:20b0", nvlink=True),
    Gpu("A100-PCIE-80GB", "NVIDIA-A100-80GB-PCIe", 81920, (8, 0), "ampere", "10de:20b5"),
    Gpu("A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", 81920, (8, 0), "ampere", "10de:20b2", nvlink=True),
    Gpu("L4", "NVIDIA-L4", 23034, (8, 9), "ada-lovelace", "10de:27b8"),
    Gpu("L40S", "NVIDIA-L40S", 46068, (8, 9), "ada-lovelace", "10de:26b9"),
    Gpu("H100-PCIe", "NVIDIA-H100-PCIe", 81559, (9, 0), "hopper", "10de:2331"),
    Gpu("H100-SXM", "NVIDIA-H100-80GB-HBM3", 81559, (9, 0), "hopper", "10de:2330", nvlink=True),
    Gpu("H200", "NVIDIA-H200", 143771, (9, 0), "hopper", "10de:2335", nvlink=True),
    Gpu("B200", "NVIDIA-B200", 183359, (10, 0), "blackwell", "10de:2901", nvlink=True),
    Gpu(
        "RTX-PRO-6000",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
        97887,
        (12, 0),
        "blackwell",
        "10de:2bb5",
    ),
)

GPUS: Mapping[str, Gpu] = {gpu.name: gpu for gpu in _ROWS}

ALIASES: Mapping[str, str] = {
    "V100": "V100-PCIE-16GB",
    "V100S": "V100S-PCIE-32GB",
    "A100-40GB": "A100-PCIE-40GB",  # what CERN and Bumble run
    "A100-80GB": "A100-SXM4-80GB",
    "H100": "H100-SXM",
    "RTX PRO 6000": "RTX-PRO-6000",
}
"""Short names for the variant that the sources mean, or that the cloud sells."""


def find(name: str) -> Gpu | None:
    """The GPU with exactly that name or alias; None if the catalogue has no such GPU."""
    return GPUS.get(ALIASES.get(name, name))


def names() -> tuple[str, ...]:
    """Every name that ``find`` knows, aliases last."""
    return (*GPUS, *ALIASES)

"""GPU models and machines that an environment declares, validated like the built-in ones.

MIG starts with compute capability 8.0, and Blackwell runs with the open kernel modules only, as in the
catalogue. The family follows from the compute capability as in GPU feature discovery (k8s-device-plugin
0.19.0, internal/lm/resource.go, getArchFamily).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.model import drivers
from infra.model.base import Model, Strict, matching, option, refusing, required
from infra.model.errors import InputError
from infra.model.gpu import ALIASES, GPUS, Drivers, Gpu, Modules
from infra.model.gpu_choice import Compute
from infra.model.own_mig import OwnMig
from infra.model.quantities import version_numbers

_FAMILIES: tuple[tuple[tuple[int, int], str], ...] = (
    ((13, 0), "undefined"),
    ((12, 0), "blackwell"),
    ((11, 0), "undefined"),
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada-lovelace"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((3, 0), "kepler"),
)
_FIRST_WITH_MIG = (8, 0)


Name = Annotated[
    Strict,
    matching(
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "a name",
        "use at most 63 letters, digits, '-', '_' and '.'",
    ),
]
_Product = Annotated[
    Strict,
    matching(
        r"[A-Za-z0-9]([A-Za-z0-9._-]| (?! ))*[A-Za-z0-9]",
        "the name of a GPU",
        "write it as nvidia-smi prints it, for example NVIDIA L4",
        63,
    ),
]
_Pci = Annotated[
    Strict,
    matching(
        "10de:(?!0000)[0-9a-f]{4}", "a PCI id of NVIDIA", "write it as lspci -nn does, for example 10de:2236"
    ),
]
_Driver = Annotated[
    Strict,
    matching(
        r"(4[5-9]|[5-9][0-9])[0-9](\.[0-9]+){0,2}",
        "a version of NVIDIA's driver from branch 450 on",
        "write it as 570 or 570.133.20, in quotes",
    ),
]


GpuKey = Annotated[
    Name,
    refusing(
        lambda name: name in GPUS or name in ALIASES,
        "the catalogue has a GPU {}",
        "use that, or another name",
    ),
]


class OwnDriver(Model):
    """Versions of NVIDIA's data center driver."""

    first: _Driver = required("First version or branch that supports it.")
    last: Annotated[int, Field(strict=True, ge=450, le=999)] | None = option(
        "Last branch that supports it; the last for its compute capability, if any, if left out."
    )
    mig: _Driver | None = option("First version that supports MIG on it; `first` if left out.")
    modules: Modules | None = option(
        "The only kernel modules that support it; by architecture and branch if left out."
    )


class OwnGpu(Model):
    """A GPU model that the catalogue does not have, with the values of ``nvidia-smi`` and ``lspci -nn``."""

    product: _Product = required(
        "Name that nvidia-smi prints; nvidia.com/gpu.product has dashes for its spaces."
    )
    memory_mib: Annotated[int, Field(strict=True, ge=512, le=4194304)] = required(
        "Memory in MiB, as nvidia-smi prints it."
    )
    compute: Compute = required("CUDA compute capability, for example 8.9.")
    pci: _Pci = required("PCI vendor and device, as lspci -nn prints them: 10de:2236.")
    driver: OwnDriver = required("NVIDIA drivers that support it.")
    mig: OwnMig | None = option("Its MIG table; the GPU has no MIG if left out.")
    linked: Literal["nvlink", "nvswitch"] | None = option(
        "Link to the other GPUs of its machine: nvlink, or nvswitch (needs the fabric manager on hosts with "
        "eight GPUs); no link if left out."
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> OwnGpu:
        if self.capability < _FAMILIES[-1][0]:
            fact = f"no driver from branch {drivers.BRANCHES[0]} on supports {self.compute}"
            raise InputError("compute", fact, "write it as NVIDIA does, for example 8.0")
        product = "-".join(self.product.split())
        twin = next((gpu for gpu in GPUS.values() if gpu.product == product), None)
        if twin:
            fact = (
                f"{self.product!r} is {twin.name} of the catalogue, and both would have the same node labels"
            )
            raise InputError("product", fact, f"use {twin.name}")
        self._check_drivers()
        if self.mig is None:
            return self
        if self.capability < _FIRST_WITH_MIG:
            fact = f"MIG needs compute capability 8.0, and this GPU has {self.compute}"
            raise InputError("mig", fact, "leave it out")
        twin = next((gpu for gpu in GPUS.values() if gpu.pci == self.pci and gpu.geometry), None)
        if twin:
            fact = f"{self.pci} is {twin.name} of the catalogue, and mig-parted selects GPUs by this id"
            raise InputError("pci", fact, f"use {twin.name}, or correct the id")
        self.mig.check(self.memory_mib)
        return self

    def _check_drivers(self) -> None:
        driver = self.driver
        if drivers.branch(driver.first) < (first_branch := drivers.first_branch(self.capability)):
            fact = f"NVIDIA's first branch for compute capability {self.compute} is {first_branch}"
            raise InputError("driver.first", fact, f"use {first_branch} or newer")
        last_branch = drivers.last_branch(self.capability)
        if last_branch is not None and max(drivers.branch(driver.first), driver.last or 0) > last_branch:
            fact = f"NVIDIA's last branch for compute capability {self.compute} is {last_branch}"
            key = "last" if drivers.branch(driver.first) <= last_branch else "first"
            raise InputError(f"driver.{key}", fact, f"use {last_branch} or an older branch")
        if driver.last is not None and driver.last < drivers.branch(driver.first):
            fact = f"{driver.last} is older than the first, {driver.first}"
            raise InputError("driver.last", fact, "correct one of them")
        if driver.mig is not None and self.mig is None:
            raise InputError("driver.mig", "the GPU has no MIG table", "add mig, or leave it out")
        if driver.mig is not None and version_numbers(driver.mig) < version_numbers(driver.first):
            fact = f"{driver.mig} is older than the first that supports the GPU, {driver.first}"
            raise InputError("driver.mig", fact, f"use {driver.first} or newer, or leave it out")
        if driver.mig and driver.last is not None and drivers.branch(driver.mig) > driver.last:
            fact = f"{driver.mig} is newer than the last branch, {driver.last}"
            raise InputError("driver.mig", fact, "correct one of them")
        if driver.modules == "proprietary" and self.family == "blackwell":
            fact = "Blackwell runs with the open kernel modules only"
            raise InputError("driver.modules", fact, "leave it out")

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = map(int, self.compute.split("."))
        return major, minor

    @property
    def family(self) -> str:
        return next(family for first, family in _FAMILIES if self.capability >= first)

    def gpu(self, name: str) -> Gpu:
        driver, family = self.driver, self.family
        only = driver.modules or ("open" if family == "blackwell" else None)
        mig = (driver.mig or driver.first) if self.mig else None
        last = driver.last or drivers.last_branch(self.capability)
        return Gpu(
            name,
            self.product,
            self.memory_mib,
            self.capability,
            family,
            self.pci,
            Drivers(driver.first, mig, last, (only,) if only else None),
            self.mig.geometry if self.mig else None,
            self.linked or "",
            is_declared=True,
        )

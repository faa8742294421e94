"""GPU models and machines that an environment declares, validated like the built-in ones.

MIG starts with compute capability 8.0, and Blackwell runs with the open kernel modules only, as in the
catalogue. The family follows from the compute capability as in GPU feature discovery (k8s-device-plugin
0.19.0, internal/lm/resource.go, getArchFamily).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import (
    Cores,
    Count,
    Flag,
    GpuCount,
    MemoryGib,
    Model,
    Strict,
    listing,
    matching,
    option,
    refusing,
    required,
)
from infra.model.base.prices import Usd
from infra.model.base.quantities import version_numbers
from infra.model.gpu import drivers
from infra.model.gpu.choice import Compute
from infra.model.gpu.machines import BUILT_IN, MACHINES, UNSUPPORTED, Catalogue, Machine, catalogue_of
from infra.model.gpu.mig import Geometry, Profile
from infra.model.gpu.models import ALIASES, AWS_ALIASES, GPUS, Drivers, Gpu, Modules

_PROFILE = re.compile(r"([1-9])g\.([1-9][0-9]*)gb(\+me|\+gfx|\+me\.all|-me)?")
_Slices = Annotated[int, Field(strict=True, ge=1, le=16)]
_MAX_ROUNDING = 0.05
"""How far a name may be from its share of the memory: an H200's 3g.71gb has 70.2 GiB."""
_MIN_SHARE = 0.85
"""Least part of its share that NVML reports: 0.91 for an H200's 1g.18gb."""


class OwnProfile(Model):
    """A MIG profile, as ``nvidia-smi mig -lgip`` and ``-lgipp`` list it."""

    compute: _Slices = required("Compute slices.")
    memory: _Slices = required("Memory slices.")
    starts: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, le=15)], ...],
        AfterValidator(lambda starts: tuple(sorted(set(starts)))),
    ] = required("Memory slices at which it may start, from 0.", min_length=1)
    memory_mib: Annotated[int, Field(strict=True, ge=1, le=4194304)] | None = option(
        "Memory in MiB that nvidia-smi reports for a slice; its share of the GPU if left out."
    )
    media: Flag = option("Has the media engines, which only one slice can have (+me).", False)


class OwnMig(Model):
    """MIG slices of the whole GPU, and its profiles."""

    compute: _Slices = required("Compute slices of the GPU.")
    memory: _Slices = required("Memory slices of the GPU.")
    profiles: dict[str, OwnProfile] = required(
        "Profiles by name, for example 3g.20gb.", min_length=1, max_length=32
    )

    @property
    def geometry(self) -> Geometry:
        """The table in the catalogue's form, the smallest profile first."""
        profiles = [
            Profile(name, item.compute, item.memory, item.starts, item.media, item.memory_mib or 0)
            for name, item in self.profiles.items()
        ]
        profiles.sort(key=lambda item: (item.compute, item.memory, item.media, item.name))
        return Geometry(self.compute, self.memory, tuple(profiles))

    def check(self, memory_mib: int) -> None:
        """Refuse a table that contradicts itself or the GPU's memory; paths start at the GPU."""
        for name, profile in self.profiles.items():
            path = f"mig.profiles.{name}"
            self._check_slices(path, profile)
            share = memory_mib * profile.memory / self.memory
            self._check_name(path, name, profile, share)
            if profile.memory_mib and not _MIN_SHARE * share <= profile.memory_mib <= share:
                fact = (
                    f"{profile.memory} of {self.memory} memory slices of the GPU's {memory_mib} MiB are "
                    f"{share:.0f} MiB, and NVML reports slightly less"
                )
                raise InputError(f"{path}.memory_mib", fact, "correct it, memory or the GPU's memory_mib")

    def _check_slices(self, path: str, profile: OwnProfile) -> None:
        for key in ("compute", "memory"):
            takes, has = getattr(profile, key), getattr(self, key)
            if takes > has:
                fact = f"takes {takes} {key} slices, and the GPU has {has}"
                raise InputError(f"{path}.{key}", fact, f"use {has} or fewer, or correct mig.{key}")
        last = self.memory - profile.memory
        if profile.starts[-1] > last:
            fact = f"{profile.memory} of {self.memory} memory slices cannot start at {profile.starts[-1]}"
            raise InputError(f"{path}.starts", fact, f"use {last} or less")

    def _check_name(self, path: str, name: str, profile: OwnProfile, share: float) -> None:
        match = _PROFILE.fullmatch(name)
        if not match:
            raise InputError(path, f"{name!r} is not the name of a profile", "write it as 3g.20gb")
        compute, gib = int(match[1]), int(match[2])
        if compute != profile.compute:
            fact = f"the name says {compute} compute slices, and compute {profile.compute}"
            raise InputError(f"{path}.compute", fact, "give both the same number")
        if abs(gib - share / 1024) > max(1.0, _MAX_ROUNDING * share / 1024):
            fact = (
                f"the name says {gib} GiB, and {profile.memory} of {self.memory} memory slices are "
                f"{share / 1024:.1f} GiB"
            )
            raise InputError(path, fact, "correct the name, memory or the GPU's memory_mib")
        if profile.media != (match[3] in ("+me", "+me.all")):
            fact = "exactly the profiles with +me or +me.all in their name have the media engines"
            raise InputError(f"{path}.media", fact, "correct it, or the name")


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
_UNKNOWN_PCI = "10de:ffff"
"""Of simulated nodes with a GPU without a declared id; no GPU of NVIDIA has it."""


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
    pci: _Pci | None = option("PCI vendor and device, as lspci -nn prints them: 10de:2236; needed with mig.")
    driver: OwnDriver | None = option("Drivers that support it; by its compute capability if left out.")
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
        for key in ("pci", "driver"):
            if getattr(self, key) is None:
                raise InputError(key, "missing, and the MIG manager needs it", "add it, or leave mig out")
        twin = next((gpu for gpu in GPUS.values() if gpu.pci == self.pci and gpu.geometry), None)
        if twin:
            fact = f"{self.pci} is {twin.name} of the catalogue, and mig-parted selects GPUs by this id"
            raise InputError("pci", fact, f"use {twin.name}, or correct the id")
        self.mig.check(self.memory_mib)
        return self

    def _check_drivers(self) -> None:
        driver = self.drivers
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
    def drivers(self) -> OwnDriver:
        """As declared, or all for its compute capability."""
        return self.driver or OwnDriver(first=str(drivers.first_branch(self.capability)))

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = map(int, self.compute.split("."))
        return major, minor

    @property
    def family(self) -> str:
        return next(family for first, family in _FAMILIES if self.capability >= first)

    def gpu(self, name: str) -> Gpu:
        driver, family = self.drivers, self.family
        only = driver.modules or ("open" if family == "blackwell" else None)
        mig = (driver.mig or driver.first) if self.mig else None
        last = driver.last or drivers.last_branch(self.capability)
        return Gpu(
            name,
            self.product,
            self.memory_mib,
            self.capability,
            family,
            self.pci or _UNKNOWN_PCI,
            Drivers(driver.first, mig, last, (only,) if only else None),
            self.mig.geometry if self.mig else None,
            self.linked or "",
            is_declared=True,
        )


_ONLY_AWS = ("pods", "efa", "nvme_gb")


def _new_machine(name: str) -> str:
    if name in UNSUPPORTED:
        raise InputError("", f"{name} has {UNSUPPORTED[name]}", "use another machine")
    if name in MACHINES:
        raise InputError("", f"the catalogue has a machine {name}", "use that, or another name")
    return name


MachineKey = Annotated[Name, AfterValidator(_new_machine)]


class OwnMachine(Model):
    """An instance type, or a kind of machine, that the catalogue does not have."""

    gpu: Strict | None = option("GPU model of the catalogue or of gpus; no GPU if left out.")
    count: GpuCount | None = option("GPUs of a node; 1 if left out.")
    vcpu: Cores = required("vCPUs of a node.")
    memory_gib: MemoryGib = required("Memory of a node in GiB.")
    arch: Literal["amd64", "arm64"] = option("Architecture of its processor.", "amd64")
    pods: Annotated[Count, Field(le=5000)] | None = option(
        "Pods that its network interfaces have addresses for, as in eni-max-pods.txt of "
        "awslabs/amazon-eks-ami; required on AWS, and only there."
    )
    efa: Annotated[int, Field(strict=True, ge=1, le=64)] | None = option(
        "Network cards with an Elastic Fabric Adapter, counted from the first card (AWS)."
    )
    nvme_gb: Annotated[Count, Field(le=10**6)] | None = option(
        "Size of all its local NVMe disks in GB (AWS)."
    )
    usd_per_hour: Usd | None = option("USD per hour of a node; cost.prices overrides it.")

    @model_validator(mode="after")
    def _check_consistency(self, info: ValidationInfo) -> OwnMachine:
        catalogue = catalogue_of(info)
        if self.gpu is not None and catalogue.gpu(self.gpu) is None:
            raise InputError("gpu", f"unknown GPU {self.gpu!r}", listing(catalogue.gpu_names, self.gpu))
        if self.count is not None and self.gpu is None:
            fact = "no GPU is named, so there is nothing to count"
            raise InputError("count", fact, "add gpu, or leave it out")
        is_aws = (info.context or {}).get("cluster") == "aws"
        for key in _ONLY_AWS if not is_aws else ():
            if getattr(self, key) is not None:
                raise InputError(key, "the cluster is not on AWS", "leave it out")
        if is_aws and self.pods is None:
            fact = "missing, and on AWS a pod gets an address of the machine's network interfaces"
            raise InputError("pods", fact, "give the number in eni-max-pods.txt of awslabs/amazon-eks-ami")
        return self

    def machine(self, name: str, kind: str | None, catalogue: Catalogue) -> Machine:
        """The entry of the catalogue, as an EC2 type on AWS."""
        model = catalogue.gpu(self.gpu) if self.gpu else None
        return Machine(
            name,
            "ec2" if kind == "aws" else "own",
            self.vcpu,
            self.memory_gib,
            model.name if model else None,
            (self.count or 1) if model else 0,
            pods=self.pods or 110,
            efa=self.efa or 0,
            nvme=self.nvme_gb or 0,
            arch=self.arch,
            declared_gpu=model,
            usd_per_hour=self.usd_per_hour,
            is_declared=True,
        )


def own_catalogue(gpus: Any, machines: Any, kind: str | None) -> Catalogue:
    """The catalogue with what an environment declares, read before its validation.

    Invalid entries are skipped: the environment's own validation reports them, with their path.
    """
    own_gpus: dict[str, Gpu] = {}
    for name, data in gpus.items() if isinstance(gpus, Mapping) else ():
        try:
            own_gpus[str(name)] = OwnGpu.model_validate(data).gpu(str(name))
        except ValidationError:
            continue
    built_in = replace(BUILT_IN, aliases=AWS_ALIASES) if kind == "aws" else BUILT_IN
    catalogue = built_in.extended(own_gpus, {})
    context = {"catalogue": catalogue, "cluster": kind}
    declared: dict[str, Machine] = {}
    for name, data in machines.items() if isinstance(machines, Mapping) else ():
        try:
            declared[str(name)] = OwnMachine.model_validate(data, context=context).machine(
                str(name), kind, catalogue
            )
        except ValidationError:
            continue
    return catalogue.extended({}, declared)

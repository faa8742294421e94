"""Machines that an environment declares, validated like the built-in ones, and its catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, model_validator

from infra.model.base import Model, Strict, listing, option, required
from infra.model.errors import InputError
from infra.model.gpu import AWS_ALIASES, Gpu
from infra.model.machines import BUILT_IN, MACHINES, UNSUPPORTED, Catalogue, Machine, catalogue_of
from infra.model.own_gpu import Name, OwnGpu
from infra.model.prices import Usd
from infra.model.values import Cores, Count, GpuCount, MemoryGib

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

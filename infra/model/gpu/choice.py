"""Names of GPUs and machines, and choices of GPUs by their attributes, for pools and for workloads."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from infra.facts import FIRST_IMAGES
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    Count,
    Counts,
    Flag,
    Model,
    each_once,
    listing,
    matching,
    one_of,
    option,
    refusing,
    required,
)
from infra.model.gpu.machines import (
    BUILT_IN,
    MACHINES,
    UNSUPPORTED,
    Catalogue,
    catalogue_of,
    ec2_types,
    flavors,
)
from infra.model.gpu.models import GPUS, Gpu

FAMILIES = tuple(dict.fromkeys(gpu.family for gpu in GPUS.values()))


def _as_text(value: Any) -> Any:
    """YAML reads 8.0 as a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"{value}.0" if isinstance(value, int) else str(value)


Compute = Annotated[
    str,
    BeforeValidator(_as_text, json_schema_input_type=str | float),
    matching(r"[1-9][0-9]?\.[0-9]", "a compute capability", "write it as NVIDIA does, for example 8.0"),
]
"""A CUDA compute capability."""


_ONLY_TRUE = refusing(lambda value: not value, "false sets no requirement", "leave it out, or set true")


class GpuNeed(Model):
    """Minimum requirements for a workload's GPU; the workload runs on any pool that meets them."""

    memory_gib: Count | None = option(
        "Minimum memory in GiB of one GPU, one slice or one MPS client; NVML's total, so that a card sold "
        "with 80 GB may have 79."
    )
    compute: Compute | None = option("Minimum CUDA compute capability, for example 8.0.")
    nvlink: Annotated[bool, _ONLY_TRUE] | None = option(
        "Whole GPUs with NVLink to others of the same node.", strict=True
    )
    family: Annotated[str, one_of("family", FAMILIES)] | None = option(
        "Architecture, as in nvidia.com/gpu.family, for example ampere.",
        strict=True,
        json_schema_extra={"enum": [*FAMILIES, None]},
    )

    @model_validator(mode="after")
    def _check_not_empty(self) -> GpuNeed:
        if not self.model_fields_set:
            fact = "sets no requirement for the GPU"
            raise InputError("", fact, f"leave it out, or give one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def description(self) -> str:
        parts = [f"{self.memory_gib} GiB or more"] if self.memory_gib else []
        parts += [f"compute capability {self.compute} or later"] if self.compute else []
        parts += ["NVLink"] if self.nvlink else []
        return ", ".join([*parts, *([f"family {self.family}"] if self.family else [])])


def _gpu_name(name: str, info: ValidationInfo) -> str:
    catalogue = catalogue_of(info)
    gpu = catalogue.gpu(name)
    if gpu is None:
        raise InputError("", f"unknown GPU {name!r}", listing(catalogue.gpu_names, name, "[a-z]*[0-9]*"))
    return gpu.name


def _machine_name(name: str) -> str:
    if name in UNSUPPORTED:
        raise InputError("", f"{name} has {UNSUPPORTED[name]}", "name another machine")
    if name not in MACHINES:
        raise InputError("", f"unknown machine {name!r}", listing(MACHINES, name, "[a-z]*"))
    return name


def _flavor_name(name: str, info: ValidationInfo) -> str:
    """On OpenStack the error for an unknown name lists flavors only."""
    context = info.context or {}
    declared = context.get("flavors") or {}
    if name in declared or name in catalogue_of(info).declared_machines:
        return name
    if context.get("cluster") == "openstack" and name not in MACHINES:
        remedy_names = listing((flavor.name for flavor in flavors(declared)), name, "[a-z]*")
        remedy = f"declare it under cluster.flavors, or use another; {remedy_names}"
        raise InputError("", f"unknown flavor {name!r}", remedy)
    return _machine_name(name)


GpuName = Annotated[
    str,
    Field(strict=True, json_schema_extra={"anyOf": [{"enum": list(BUILT_IN.gpu_names)}, {"type": "string"}]}),
    AfterValidator(_gpu_name),
]
FlavorName = Annotated[
    str,
    Field(strict=True, json_schema_extra={"anyOf": [{"enum": list(MACHINES)}, {"type": "string"}]}),
    AfterValidator(_flavor_name),
]
"""A machine of the catalogue, or one that the environment declares."""


_MIB_PER_GIB = 1024


class GpuChoice(Model):
    """GPUs by model, or every model of the catalogue with the given attributes.

    On AWS attributes select only models that EC2 sells with amd64 and that any node image supports: a pool
    has one image, and is not checked against GPUs that it never has.
    """

    named: Annotated[tuple[GpuName, ...], each_once("name each model once")] | None = option(
        "Accepted GPU models, by their names in the catalogue.", alias="models", min_length=1
    )
    memory_gib: Count | None = option(
        "Minimum memory of each GPU, in GiB as NVML counts it (a T4 has 15); instead of models."
    )
    nvlink: Flag | None = option(
        "Whether its GPUs are linked by NVLink, as SXM modules are; instead of models."
    )
    compute: Compute | None = option("Minimum compute capability, as 8.0; instead of models.")
    count: Counts = required(
        "GPUs per node; several for an elastic pool on AWS, or on an existing cluster, for example [1, 4]: "
        "each node has one of these numbers."
    )

    _catalogue: Catalogue = PrivateAttr(default_factory=lambda: BUILT_IN)
    _is_on_aws: bool = PrivateAttr(default=False)
    """Whether the pool is on AWS; source: the validation context, ``{"cluster": kind}``."""

    @model_validator(mode="after")
    def _check_choice(self, info: ValidationInfo) -> GpuChoice:
        self._catalogue = catalogue_of(info)
        self._is_on_aws = (info.context or {}).get("cluster") == "aws"
        if self.named is not None and self.by_attribute:
            raise InputError("models", f"{self._request_text()} is given too", "choose by one of the two")
        if self.named is None and not self.by_attribute:
            remedy = "name GPU models, or set requirements: {memory_gib, nvlink, compute}"
            raise InputError("models", "missing", remedy)
        if not self.models:
            best = max(self._catalogue.gpus.values(), key=lambda gpu: (sum(self._meets(gpu)), gpu.memory_mib))
            raise InputError(
                "", f"no known GPU has {self._request_text()}", f"{_describe(best)} comes nearest"
            )
        return self

    @property
    def by_attribute(self) -> bool:
        """Whether the GPUs are chosen by attributes, not by model."""
        return not (self.memory_gib is None and self.nvlink is None and self.compute is None)

    @property
    def models(self) -> tuple[str, ...]:
        """The accepted models: the named ones, else the matching ones in the catalogue's order."""
        if self.named is not None:
            return self.named
        matched = tuple(gpu.name for gpu in self._catalogue.gpus.values() if all(self._meets(gpu)))
        machines = (
            ec2_types(matched, self.counts, self._catalogue.machines.values()) if self._is_on_aws else ()
        )
        sold = {machine.gpu for machine in machines if machine.arch == "amd64"} - FIRST_IMAGES.keys()
        return tuple(name for name in matched if name in sold) or matched

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that a node may have, ascending."""
        return self.count if isinstance(self.count, tuple) else (self.count,)

    def _meets(self, gpu: Gpu) -> tuple[bool, ...]:
        results = []
        if self.memory_gib is not None:
            results.append(gpu.memory_mib >= self.memory_gib * _MIB_PER_GIB)
        if self.nvlink is not None:
            results.append(gpu.nvlink == self.nvlink)
        if self.compute is not None:
            major, minor = map(int, self.compute.split("."))
            results.append(gpu.compute >= (major, minor))
        return tuple(results)

    def _request_text(self) -> str:
        parts = [f"memory_gib {self.memory_gib}"] if self.memory_gib is not None else []
        parts += [f"nvlink {str(self.nvlink).lower()}"] if self.nvlink is not None else []
        parts += [f"compute {self.compute}"] if self.compute is not None else []
        return " and ".join(parts)


def _describe(gpu: Gpu) -> str:
    link = "NVLink" if gpu.nvlink else "no NVLink"
    return f"{gpu.name} ({gpu.memory_mib // _MIB_PER_GIB} GiB, {link}, {gpu.compute[0]}.{gpu.compute[1]})"

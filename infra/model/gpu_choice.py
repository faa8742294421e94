"""Choice of GPUs by model or by attributes, instead of by machine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from infra.model import catalogue
from infra.model.base import Count, Counts, Model, each_once
from infra.model.catalogue import BUILT_IN, Catalogue
from infra.model.choices import GpuName
from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.images import FIRST_AL2023
from infra.model.machines import ec2
from infra.model.need import Compute

_MIB_PER_GIB = 1024


class GpuChoice(Model):
    """GPUs by model, or every model of the catalogue with the given attributes.

    On AWS attributes select only models that EC2 sells with amd64 and that any node image supports: a pool
    has one image, and is not checked against GPUs that it never has.
    """

    named: Annotated[tuple[GpuName, ...], each_once("name each model once")] | None = Field(
        default=None,
        alias="models",
        min_length=1,
        description="Accepted GPU models, by their names in the catalogue.",
    )
    memory_gib: Count | None = Field(
        default=None,
        description="Minimum memory of each GPU, in GiB as NVML counts it (a T4 has 15); instead of models.",
    )
    nvlink: bool | None = Field(
        default=None,
        strict=True,
        description="Whether its GPUs are linked by NVLink, as SXM modules are; instead of models.",
    )
    compute: Compute | None = Field(
        default=None, description="Minimum compute capability, as 8.0; instead of models."
    )
    count: Counts = Field(
        description="GPUs per node; several for an elastic pool on AWS, for example [1, 4]: "
        "each node has one of these numbers."
    )

    _known: Catalogue = PrivateAttr(default_factory=lambda: BUILT_IN)
    _bought: bool = PrivateAttr(default=False)
    """Whether the pool is on AWS; source: the validation context, ``{"cluster": kind}``."""

    @model_validator(mode="after")
    def _says_which(self, info: ValidationInfo) -> GpuChoice:
        self._known = catalogue.of(info)
        self._bought = (info.context or {}).get("cluster") == "aws"
        if self.named is not None and self.by_attribute:
            raise InputError("models", f"{self._asked()} is given too", "choose by one of the two")
        if self.named is None and not self.by_attribute:
            raise InputError(
                "models",
                "missing",
                "name GPU models, or set requirements: {memory_gib, nvlink, compute}",
            )
        if not self.models:
            best = max(self._known.gpus.values(), key=lambda gpu: (sum(self._met(gpu)), gpu.memory_mib))
            raise InputError("", f"no known GPU has {self._asked()}", f"{_described(best)} comes nearest")
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
        met = tuple(gpu.name for gpu in self._known.gpus.values() if all(self._met(gpu)))
        bought = ec2(met, self.counts, self._known.machines.values()) if self._bought else ()
        sold = {one.gpu for one in bought if one.arch == "amd64"} - FIRST_AL2023.keys()
        return tuple(name for name in met if name in sold) or met

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of GPUs that a node may have, ascending."""
        return self.count if isinstance(self.count, tuple) else (self.count,)

    def _met(self, gpu: Gpu) -> tuple[bool, ...]:
        found = []
        if self.memory_gib is not None:
            found.append(gpu.memory_mib >= self.memory_gib * _MIB_PER_GIB)
        if self.nvlink is not None:
            found.append(gpu.nvlink == self.nvlink)
        if self.compute is not None:
            major, minor = map(int, self.compute.split("."))
            found.append(gpu.compute >= (major, minor))
        return tuple(found)

    def _asked(self) -> str:
        words = [f"memory_gib {self.memory_gib}"] if self.memory_gib is not None else []
        words += [f"nvlink {str(self.nvlink).lower()}"] if self.nvlink is not None else []
        words += [f"compute {self.compute}"] if self.compute is not None else []
        return " and ".join(words)


def _described(gpu: Gpu) -> str:
    link = "NVLink" if gpu.nvlink else "no NVLink"
    return f"{gpu.name} ({gpu.memory_mib // _MIB_PER_GIB} GiB, {link}, {gpu.compute[0]}.{gpu.compute[1]})"

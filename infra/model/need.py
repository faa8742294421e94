"""A workload's GPU requirements, given instead of a pool."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra.model import gpu as catalogue
from infra.model.base import Count, Model, listing, matching
from infra.model.errors import InputError

FAMILIES = tuple(dict.fromkeys(gpu.family for gpu in catalogue.GPUS.values()))


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


def _wanted(value: bool) -> bool:
    if not value:
        raise InputError("", "false sets no requirement", "leave it out, or set true")
    return value


def _family(value: str) -> str:
    if value not in FAMILIES:
        raise InputError("", f"unknown family {value!r}", listing(FAMILIES, value))
    return value


class GpuNeed(Model):
    """Minimum requirements for a workload's GPU; the workload runs on any pool that meets them."""

    memory_gib: Count | None = Field(
        default=None,
        description="Minimum memory in GiB of one GPU, one slice or one MPS client; NVML's total, so "
        "that a card sold with 80 GB may have 79.",
    )
    compute: Compute | None = Field(
        default=None, description="Minimum CUDA compute capability, for example 8.0."
    )
    nvlink: Annotated[bool, AfterValidator(_wanted)] | None = Field(
        default=None, strict=True, description="Whole GPUs with NVLink to others of the same node."
    )
    family: Annotated[str, AfterValidator(_family)] | None = Field(
        default=None,
        strict=True,
        description="Architecture, as in nvidia.com/gpu.family, for example ampere.",
        json_schema_extra={"enum": [*FAMILIES, None]},
    )

    @model_validator(mode="after")
    def _needs_something(self) -> GpuNeed:
        if not self.model_fields_set:
            raise InputError(
                "", "sets no requirement for the GPU", f"give one of {', '.join(type(self).model_fields)}"
            )
        return self

    @property
    def words(self) -> str:
        found = [f"{self.memory_gib} GiB or more"] if self.memory_gib else []
        found += [f"compute capability {self.compute} or later"] if self.compute else []
        found += ["NVLink"] if self.nvlink else []
        return ", ".join([*found, *([f"family {self.family}"] if self.family else [])])

"""Workloads: what runs on the pools; one schema for rehearsal, status and planner."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from infra.model.base import Count, LabelValue, Model, Name, PoolName, WorkloadName
from infra.model.errors import InputError

_CPU = re.compile(r"[0-9]+m|[0-9]+(\.[0-9]{1,3})?")
_MEMORY = re.compile(r"[0-9]+(Ki|Mi|Gi|Ti)")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _cpu(value: str) -> str:
    if not _CPU.fullmatch(value) or cpu_millis(value) == 0:
        raise InputError("", f"{value!r} is no amount of CPU", "write cores, for example 2, 0.5 or 500m")
    return value


def _memory(value: str) -> str:
    if not _MEMORY.fullmatch(value) or memory_bytes(value) == 0:
        raise InputError(
            "", f"{value!r} is no amount of memory", "write it with Ki, Mi, Gi or Ti, for example 8Gi"
        )
    return value


def _pinned_image(value: str) -> str:
    tag = value.rpartition("/")[2].partition(":")[2]
    if "@sha256:" not in value and (not tag or tag == "latest" or tag.startswith("latest-")):
        raise InputError("", f"image {value!r} is not pinned", "name a version tag or a digest")
    return value


PinnedImage = Annotated[str, AfterValidator(_pinned_image), Field(strict=True)]


def cpu_millis(value: str) -> int:
    """CPU in thousandths of a core."""
    return int(value[:-1]) if value.endswith("m") else round(float(value) * 1000)


def memory_bytes(value: str) -> int:
    """Memory in bytes, from a number with a binary unit."""
    return int(value[:-2]) * _UNITS[value[-2:]]


class _Workload(Model):
    name: WorkloadName = Field(description="Name of the object; unique in its namespace.")
    namespace: Name = Field(
        default="default", description="Made, with Pod Security level restricted, unless it is default."
    )
    pool: PoolName | None = Field(default=None, description="Pool to run on; its GPUs are asked for.")
    gpu_product: LabelValue | None = Field(
        default=None, description="Run wherever nvidia.com/gpu.product has this value; instead of pool."
    )
    slice: str | None = Field(
        default=None, strict=True, description="MIG profile, where the pool has several."
    )
    count: Count | None = Field(default=None, description="GPUs, shares or slices per pod; 1 if left out.")
    cpu: Annotated[
        str, BeforeValidator(_number_as_text, json_schema_input_type=str | float), AfterValidator(_cpu)
    ] = Field(default="1", description="CPU request per pod, in cores.")
    memory: Annotated[str, AfterValidator(_memory)] = Field(
        default="1Gi", strict=True, description="Memory request and limit per pod."
    )
    image: PinnedImage = Field(description="Image with tag or digest.")
    command: tuple[
        Annotated[str, BeforeValidator(_number_as_text, json_schema_input_type=str | float)], ...
    ] = Field(default=(), description="Command; the image's own if left out.")

    @property
    def amount(self) -> int:
        """GPUs, shares or slices per pod, where the workload asks for any."""
        return self.count or 1

    @property
    def pods(self) -> int:
        """Pods at a time."""
        return 1


class PodWorkload(_Workload):
    """One bare Pod: nothing starts it again."""

    kind: Literal["pod"]


class DeploymentWorkload(_Workload):
    """Pods that are started again wherever there is room."""

    kind: Literal["deployment"]
    replicas: Count = Field(default=1, description="Number of pods.")

    @property
    def pods(self) -> int:
        """Pods at a time."""
        return self.replicas


class JobWorkload(_Workload):
    """Pods that end."""

    kind: Literal["job"]
    parallelism: Count = Field(default=1, description="Number of pods, all at the same time.")

    @property
    def pods(self) -> int:
        """Pods at a time."""
        return self.parallelism


Workload = Annotated[PodWorkload | DeploymentWorkload | JobWorkload, Field(discriminator="kind")]

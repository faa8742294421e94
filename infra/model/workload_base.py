"""What workloads of every kind declare."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra.model.amounts import Cpu, HugePages, Memory, memory_bytes
from infra.model.base import (
    Count,
    LabelValue,
    Model,
    Name,
    ObjectName,
    PoolName,
    Strict,
    Text,
    WorkloadName,
    matching,
)
from infra.model.errors import InputError
from infra.model.need import GpuNeed
from infra.model.registries import PinnedImage

_PAST_THE_SCHEDULER = "NVIDIA_VISIBLE_DEVICES"


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    if words and not words[0].strip():
        raise InputError("[0]", "names no program", "name one, or leave command out")
    return words


def _variable(name: str) -> str:
    if name == _PAST_THE_SCHEDULER:
        raise InputError(
            "",
            "it bypasses the scheduler",
            "leave it out, and request what the pool offers",
        )
    return name


Word = Annotated[Text, BeforeValidator(_number_as_text, json_schema_input_type=str | float)]
Variable = Annotated[
    Strict,
    matching("[A-Za-z_][A-Za-z0-9_]*", "a variable name", "use letters, digits and _"),
    AfterValidator(_variable),
]


class BaseWorkload(Model):
    """What every kind has: where its pods run, what each requests, and what runs in it."""

    name: WorkloadName = Field(description="Name of the object; unique in its namespace.")
    namespace: Name = Field(
        default="default", description="Created with Pod Security level restricted, unless it is default."
    )
    pool: PoolName | None = Field(default=None, description="Pool to run on; its GPUs are requested.")
    gpu_product: Annotated[LabelValue, Field(min_length=1)] | None = Field(
        default=None, description="Run wherever nvidia.com/gpu.product has this value; instead of pool."
    )
    gpu: GpuNeed | None = Field(default=None, description="Instead of pool or gpu_product.")
    slice: str | None = Field(
        default=None,
        strict=True,
        description="MIG profile, if the pool has several, or whole GPUs in addition.",
    )
    count: Count | None = Field(default=None, description="GPUs, shares or slices per pod; 1 if left out.")
    cpu: Annotated[Cpu, BeforeValidator(_number_as_text, json_schema_input_type=str | float)] = Field(
        default="1", description="CPU request per pod, in cores."
    )
    memory: Memory = Field(default="1Gi", description="Memory request and limit per pod.")
    runtime_class: ObjectName | None = Field(
        default=None, description="RuntimeClass of its pods; that of the environment if left out."
    )
    shm: Memory | None = Field(
        default=None,
        description="Size of /dev/shm, 64Mi if left out; what is stored there counts as the pod's memory.",
    )
    hugepages: HugePages | None = Field(
        default=None,
        description="Huge pages of 2Mi per pod, in addition to memory, mounted at /dev/hugepages; the pool's "
        "hugepages set how much a node has.",
    )
    efa: Count | None = Field(
        default=None,
        description="Elastic Fabric Adapters per pod (vpc.amazonaws.com/efa); the pool needs aws.efa.",
    )
    priority: Name | None = Field(default=None, description="One of the environment's priorities.")
    queue: Name | None = Field(
        default=None,
        description="Team; its pods wait for room in that team's queue. An update waits for them only with "
        "blue_green or wait_minutes. A preempted pod of kind pod does not return.",
    )
    image: PinnedImage = Field(description="Image with tag or digest.")
    command: Annotated[tuple[Word, ...], AfterValidator(_program)] = Field(
        default=(), description="Command; the image's own if left out."
    )
    env: dict[Variable, Word] = Field(default_factory=dict, description="Environment variables, no secrets.")

    @model_validator(mode="after")
    def _shm_is_memory(self) -> Self:
        if self.shm and memory_bytes(self.shm) > memory_bytes(self.memory):
            fact = f"{self.shm} counts as memory of the pod, which has {self.memory}"
            raise InputError("shm", fact, f"use {self.memory} or less, or give the pod more memory")
        return self

    @property
    def pinned(self) -> bool:
        """Whether it selects pools or GPUs, and so requests a GPU if the selected pools have any."""
        return bool(self.pool or self.gpu_product or self.gpu)

    @property
    def amount(self) -> int:
        """GPUs, shares or slices per pod, if the workload requests any."""
        return self.count or 1

    @property
    def pods(self) -> int:
        """Number of pods at a time, at most."""
        return 1

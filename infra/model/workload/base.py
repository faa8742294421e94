"""What workloads of every kind declare, and notebooks: editor, home volume, culling.

RStudio is refused: its image (rocker/rstudio) starts its init system as root, which Pod Security restricted
forbids (rocker-org/rocker-versioned2, issues 888 and 882: "not an image intended for such use").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra import versions
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    Count,
    CpuRequest,
    HugePages,
    LabelValue,
    Memory,
    Model,
    Name,
    ObjectName,
    PoolName,
    Strict,
    Text,
    WorkloadName,
    matching,
    number_as_text,
    option,
    refusing,
    required,
)
from infra.model.base.quantities import memory_bytes
from infra.model.base.registries import PinnedImage
from infra.model.gpu.choice import GpuNeed
from infra.model.workload.pod_fragment import PodFragment

MIN_CPU, MIN_MEMORY = "500m", "1Gi"
"""What Kubeflow's form of a new notebook requests (kubeflow, spawner_ui_config.yaml: 0.5 and 1.0Gi)."""
_LONGEST_IDLE = 7 * 1440
"""Minutes; the bound of a week is ours."""


@dataclass(frozen=True)
class Editor:
    """Facts of an editor's image: its port, the user's home, the variable that has the password.

    Both run as user 1000: jupyter/docker-stacks, images/docker-stacks-foundation/Dockerfile (NB_UID);
    coder/code-server, ci/release-image/Dockerfile.
    """

    image: str
    port: int
    home: str
    password: str


EDITORS: Mapping[str, Editor] = {
    "jupyterlab": Editor(versions.JUPYTERLAB_IMAGE, 8888, "/home/jovyan", "JUPYTER_TOKEN"),
    "vscode": Editor(versions.CODE_SERVER_IMAGE, 8080, "/home/coder", "PASSWORD"),
}
SETTINGS = "NOTEBOOK_ARGS"
"""Variable with further arguments of JupyterLab (docker-stacks, start-notebook.py)."""
IDLE_SECONDS = "CODE_SERVER_IDLE_TIMEOUT_SECONDS"
"""Variable of code-server 4.106 and newer (its FAQ)."""
RESERVED_VARIABLES = (SETTINGS, IDLE_SECONDS, "HASHED_PASSWORD", *(one.password for one in EDITORS.values()))
"""Variables that decide on access and idle time."""


def _editor(value: Any) -> Any:
    if value == "rstudio":
        fact = "its image starts as root, which Pod Security restricted forbids"
        raise InputError("", fact, "use jupyterlab, with an image of your own that has RStudio inside")
    return value


class Home(Model):
    """A volume for the user's home; it stays when the notebook stops, is changed, or is removed."""

    size: Memory = required("Size of the volume; first enlarge the PersistentVolumeClaim of an old one.")
    storage_class: ObjectName | None = option("Its storage class; the cluster's default if left out.")


class Cull(Model):
    """The editor ends when it is idle; the notebook is then scaled to 0, and its GPU is free."""

    idle_minutes: Annotated[Count, Field(ge=2, le=_LONGEST_IDLE)] = required(
        "Minutes without use. Use is a page of the editor that is open and visible and, in JupyterLab, a "
        "kernel that computes; a program in a terminal is not."
    )


class Notebook(Model):
    """The keys that only notebooks have."""

    editor: Annotated[Literal["jupyterlab", "vscode"], BeforeValidator(_editor)] = required(
        "What runs in it; its image is pinned."
    )
    user: WorkloadName = required(
        "Who uses it, a label of its pod; a user has one notebook in a namespace. Another user gets another "
        "home."
    )
    secret: ObjectName | None = option(
        "Secret in its namespace with the key password, which you create: the token of JupyterLab, the "
        "password of VS Code. If left out, the editor generates one."
    )
    home: Home | None = option("Without it, files are lost whenever the pod is replaced.")
    cull: Cull | None = option("If left out, the notebook keeps its GPU while idle.")

    @model_validator(mode="before")
    @classmethod
    def _set_default_image(cls, data: Any) -> Any:
        if isinstance(data, dict) and "image" not in data and data.get("editor") in EDITORS:
            return {**data, "image": EDITORS[data["editor"]].image}
        return data

    @model_validator(mode="after")
    def _check_cull(self) -> Notebook:
        if self.cull and not self.home:
            fact = "given without home: a stopped notebook would lose its files"
            raise InputError("cull", fact, "add home: {size: 10Gi}, or leave cull out")
        return self

    @property
    def editor_facts(self) -> Editor:
        return EDITORS[self.editor]


def _check_program(command: tuple[str, ...]) -> tuple[str, ...]:
    if command and not command[0].strip():
        raise InputError("[0]", "names no program", "name one, or leave command out")
    return command


Word = Annotated[Text, BeforeValidator(number_as_text, json_schema_input_type=str | float)]
Variable = Annotated[
    Strict,
    matching("[A-Za-z_][A-Za-z0-9_]*", "a variable name", "use letters, digits and _"),
    refusing(
        lambda name: name == "NVIDIA_VISIBLE_DEVICES",
        "it bypasses the scheduler",
        "leave it out, and request what the pool offers",
    ),
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
    cpu: CpuRequest = Field(default="1", description="CPU request per pod, in cores.")
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
        description="Elastic Fabric Adapters per pod (vpc.amazonaws.com/efa); on AWS the pool needs aws.efa.",
    )
    rdma: Count | None = Field(
        default=None,
        description="InfiniBand or RoCE adapters per pod, of the pool's rdma.resource: with mode shared, 1 "
        "is all of a node. The pod may lock memory (IPC_LOCK), and so runs as root in a namespace with "
        "pod_security privileged.",
    )
    priority: Name | None = Field(default=None, description="One of the environment's priorities.")
    queue: Name | None = Field(
        default=None,
        description="Team; its pods wait for room in that team's queue. An update waits for them only with "
        "blue_green or wait_minutes. A preempted pod of kind pod does not return.",
    )
    image: PinnedImage = Field(description="Image with tag or digest.")
    command: Annotated[tuple[Word, ...], AfterValidator(_check_program)] = Field(
        default=(), description="Command; the image's own if left out."
    )
    env: dict[Variable, Word] = Field(default_factory=dict, description="Environment variables, no secrets.")

    pod: PodFragment | None = option(
        "Fragment of its pods' spec for all that is no key here: volumes, probes, init containers, security "
        "context, service account. Merged with what gpuform sets, which stays; its own container has the "
        "workload's name. Requests of further containers count only for the scheduler."
    )

    @model_validator(mode="after")
    def _check_shm(self) -> Self:
        if self.shm and memory_bytes(self.shm) > memory_bytes(self.memory):
            fact = f"{self.shm} counts as memory of the pod, which has {self.memory}"
            raise InputError("shm", fact, f"use {self.memory} or less, or give the pod more memory")
        return self

    @property
    def selects_pools(self) -> bool:
        """Whether it selects pools or GPUs, and so requests a GPU if the selected pools have any."""
        return bool(self.pool or self.gpu_product or self.gpu)

    @property
    def device_count(self) -> int:
        """GPUs, shares or slices per pod, if the workload requests any."""
        return self.count or 1

    @property
    def pods(self) -> int:
        """Number of pods at a time, at most."""
        return 1

"""Settings of NVIDIA's operator, or of its device plugin alone, for every node."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from infra.model.base import NUMBER, DrainSeconds, Model, NodeCount, ObjectName, Strict, matching
from infra.model.errors import InputError
from infra.model.host_values import DriverVersion, ToolkitVersion, Vulnerabilities
from infra.model.labels import CRITICAL_ADDONS, NVIDIA_GPU
from infra.model.node_keys import TaintKey
from infra.model.registries import ChartRepository, ImageName, Registry
from infra.model.relayout import Nodes
from infra.model.toolkit_env import ToolkitEnv

Mode = Literal["operator", "device_plugin", "existing"]
KernelModules = Literal["auto", "open", "proprietary"]

ChartVersion = Annotated[
    Strict,
    matching(rf"v?{NUMBER}\.{NUMBER}\.{NUMBER}", "a chart version", "write the whole version, as v26.7.0"),
]


def _not_for_add_ons(key: str) -> str:
    if key == CRITICAL_ADDONS:
        fact = "CoreDNS and the cluster's other own pods tolerate it, and would run on nodes with GPUs"
        raise InputError("", fact, "use nvidia.com/gpu, or a key of your own")
    return key


class Drain(Model):
    """Drain each node first; only pods with GPUs are ended if left out."""

    timeout_seconds: DrainSeconds = Field(default=300, description="Seconds after which a drain is given up.")
    force: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="Whether pods without a controller are deleted too (kubectl drain --force).",
    )
    delete_empty_dir: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="Whether pods with data in an emptyDir are evicted too, and lose it."
    )


class Upgrade(Model):
    """How the operator upgrades its driver on the nodes; it ends the pods with GPUs on each node."""

    auto: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="Whether nodes are upgraded automatically; else each node waits until its driver pod "
        "is deleted.",
    )
    max_parallel: NodeCount = Field(default=1, description="Nodes that are upgraded at the same time.")
    max_unavailable: Nodes = Field(
        default="25%",
        description="Nodes that may be unavailable meanwhile, a number or a share of all such as 25%.",
    )
    drain: Drain | None = Field(default=None)

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> Upgrade:
        for key in ("max_parallel", "max_unavailable", "drain"):
            if not self.auto and getattr(self, key) != Upgrade.model_fields[key].default:
                raise InputError(
                    key, "with auto: false the operator upgrades no node by itself", "leave it out"
                )
        return self


class GpuOperatorSpec(Model):
    """NVIDIA's GPU operator, settings for every node.

    Not all of them have an effect everywhere: docs/howto/operator.md says who owns driver and toolkit.
    """

    mode: Mode = Field(
        default="operator",
        description="operator: NVIDIA's GPU operator; device_plugin: its device plugin alone, on nodes that "
        "include driver and toolkit; existing: none of ours, because the cluster has an operator already.",
    )
    nfd: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="Whether the chart installs node feature discovery; false if the cluster has it already.",
    )
    version: ChartVersion | None = Field(
        default=None, description="Version of the chart; the one this release is tested with if left out."
    )
    mig_strategy: Literal["none", "single", "mixed"] = Field(
        default="mixed",
        description="How slices are offered, unless a pool sets it: mixed as nvidia.com/mig-3g.20gb, "
        "single as nvidia.com/gpu; none with mode device_plugin or existing, which partition no GPU.",
    )
    gpu_taint: Annotated[TaintKey, AfterValidator(_not_for_add_ons)] = Field(
        default=NVIDIA_GPU, description="Key of the taint on every node with GPUs."
    )
    driver: Literal["operator", "host"] = Field(
        default="operator", description="Who installs NVIDIA's driver."
    )
    driver_version: DriverVersion | None = Field(
        default=None,
        description="Version of the operator's driver, in quotes; the newest that supports all GPUs if left "
        "out.",
    )
    driver_repository: Registry | None = Field(
        default=None,
        description="Registry and path with images of the operator's driver; NVIDIA's own if left out.",
    )
    driver_image: ImageName | None = Field(
        default=None,
        description="Name of the driver's image there; the operator appends the tag, which is driver_version "
        "and the node's system (580.95.05-fedora40).",
    )
    kernel_modules: KernelModules = Field(
        default="auto",
        description="Kernel modules of the operator's driver; auto uses on each node what NVIDIA "
        "recommends for its GPU.",
    )
    toolkit: Literal["operator", "host"] = Field(
        default="operator", description="Who installs NVIDIA's container toolkit."
    )
    toolkit_version: ToolkitVersion | None = Field(
        default=None, description="Version of the operator's container toolkit; the chart's if left out."
    )
    toolkit_env: ToolkitEnv = Field(default_factory=ToolkitEnv)
    upgrade: Upgrade = Field(default_factory=Upgrade)
    cdi: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="Whether containers get their GPUs as CDI devices; else by mounts, or, if "
        "the nodes have a toolkit of their own, by a variable that any container may set.",
    )
    runtime_class: ObjectName | None = Field(
        default=None,
        description="RuntimeClass of declared pods with GPUs, if NVIDIA's runtime is not the nodes' default "
        "and does not use CDI.",
    )
    acknowledge: Vulnerabilities = Field(
        default=(), description="Accepted vulnerabilities of an older operator or toolkit."
    )
    repository: ChartRepository | None = Field(
        default=None, description="Helm repository with the chart; NVIDIA's own if left out."
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_cut_without_the_operator(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("mode") in ("device_plugin", "existing"):
            return {"mig_strategy": "none", **data}
        return data

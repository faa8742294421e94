"""Settings of NVIDIA's operator, or of its device plugin alone, for every node."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from infra.model.base import Count, LabelKey, Model, Name, NodeCount
from infra.model.errors import InputError
from infra.model.host_values import Acknowledged, DriverVersion, ToolkitVersion
from infra.model.labels import NVIDIA_GPU
from infra.model.registries import IMAGE, REGISTRY
from infra.model.relayout import Nodes
from infra.model.toolkit_env import ToolkitEnv

Mode = Literal["operator", "device_plugin", "existing"]
KernelModules = Literal["auto", "open", "proprietary"]

_CHART = re.compile(r"v?\d+\.\d+\.\d+")


def _chart_version(value: str) -> str:
    if not _CHART.fullmatch(value):
        raise InputError("", f"{value!r} is not a chart version", "write the whole version, as v26.7.0")
    return value


def _driver_repository(value: str) -> str:
    if not REGISTRY.fullmatch(value):
        fix = "write its host and a path, as registry.example.org/gpu, without a scheme"
        raise InputError("", f"{value!r} is not a registry of images", fix)
    return value


def _driver_image(value: str) -> str:
    if not IMAGE.fullmatch(value):
        fix = "write it without registry, tag and digest, as driver"
        raise InputError("", f"{value!r} is not a name of an image", fix)
    return value


class Drain(Model):
    """Drain each node first; only pods with GPUs are ended if left out."""

    timeout_seconds: Count = Field(default=300, description="Seconds after which a drain is given up.")
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
    version: Annotated[str, Field(strict=True), AfterValidator(_chart_version)] | None = Field(
        default=None, description="Version of the chart; the one this release is tested with if left out."
    )
    mig_strategy: Literal["none", "single", "mixed"] = Field(
        default="mixed",
        description="How slices are offered, unless a pool sets it: mixed as nvidia.com/mig-3g.20gb, "
        "single as nvidia.com/gpu; none with mode device_plugin or existing, which partition no GPU.",
    )
    gpu_taint: LabelKey = Field(default=NVIDIA_GPU, description="Key of the taint on every node with GPUs.")
    driver: Literal["operator", "host"] = Field(
        default="operator", description="Who installs NVIDIA's driver."
    )
    driver_version: DriverVersion | None = Field(
        default=None,
        description="Version of the operator's driver, in quotes; the newest that supports all GPUs if left "
        "out.",
    )
    driver_repository: Annotated[str, Field(strict=True), AfterValidator(_driver_repository)] | None = Field(
        default=None,
        description="Registry and path with images of the operator's driver; NVIDIA's own if left out.",
    )
    driver_image: Annotated[str, Field(strict=True), AfterValidator(_driver_image)] | None = Field(
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
    runtime_class: Name | None = Field(
        default=None,
        description="RuntimeClass of declared pods with GPUs, if NVIDIA's runtime is not the nodes' default "
        "and does not use CDI.",
    )
    acknowledge: tuple[Acknowledged, ...] = Field(
        default=(), description="Accepted vulnerabilities of an older operator or toolkit."
    )
    repository: str | None = Field(
        default=None,
        strict=True,
        pattern=r"^(https?|oci)://\S+$",
        description="Helm repository with the chart; NVIDIA's own if left out.",
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_cut_without_the_operator(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("mode") in ("device_plugin", "existing"):
            return {"mig_strategy": "none", **data}
        return data

"""Settings of NVIDIA's operator, or of its device plugin alone, and what it or others own on the nodes.

Variables and values: nvidia-container-toolkit, cmd/nvidia-ctk-installer/container/runtime/runtime.go; what
the operator does with them: gpu-operator, object_controls.go (transformRuntimeConfigAndSocketMounts).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import (
    NUMBER,
    DrainSeconds,
    Flag,
    LabelValue,
    Model,
    NodeCount,
    ObjectName,
    Strict,
    matching,
    option,
)
from infra.model.base.labels import NVIDIA_GPU
from infra.model.base.registries import ChartRepository, ImageName, Registry
from infra.model.hosts.cluster import DriverVersion, ToolkitVersion, Vulnerabilities
from infra.model.pool.keys import TaintKey
from infra.model.pool.relayout import Nodes

_PATH = r"(?:/(?!\.\.?(?:/|$))[\w.+-]+)+"
_SOURCE = re.compile(rf"(?:command|file(?:={_PATH})?)", re.ASCII)
_DERIVED = ("decides which containers get GPUs, and follows from gpu_operator.cdi", "leave it out")

DROP_IN_VARIABLES = ("RUNTIME_CONFIG_SOURCE", "RUNTIME_DROP_IN_CONFIG")
"""Variables that a toolkit before 1.18, and an operator before 25.10, does not read [their tags]."""


def _sources(value: str) -> str:
    sources = value.split(",")
    if not all(_SOURCE.fullmatch(source) for source in sources) or len(set(sources)) < len(sources):
        remedy = "write file, file=/PATH or command, or two of them separated by a comma"
        raise InputError("", f"{value!r} names no sources", remedy)
    return value


NodePath = Annotated[
    Strict, matching(_PATH, "the path of a file on a node", "write it as /etc/containerd/config.toml")
]


class ToolkitEnv(Model):
    """Variables of the operator's container toolkit, for nodes with another containerd or other paths."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = dict.fromkeys(
        (
            "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS",
            "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
            "CDI_ENABLED",
            "NVIDIA_CONTAINER_RUNTIME_MODE",
            "NVIDIA_RUNTIME_SET_AS_DEFAULT",
            "RUNTIME_ENABLE_CDI",
        ),
        _DERIVED,
    )

    CONTAINERD_CONFIG: NodePath | None = option(
        "containerd's own file; /etc/containerd/config.toml if left out."
    )
    CONTAINERD_SOCKET: NodePath | None = option(
        "containerd's socket; /run/containerd/containerd.sock if left out."
    )
    RUNTIME_CONFIG_SOURCE: Annotated[Strict, AfterValidator(_sources)] = option(
        "Where the toolkit reads the present configuration, and with it the version of its drop-in: file, "
        "containerd's own file; file=/PATH, another; command, `containerd config dump`.",
        "file",
    )
    RUNTIME_DROP_IN_CONFIG: NodePath | None = option(
        "The drop-in; /etc/containerd/conf.d/99-nvidia.toml if left out."
    )
    RUNTIME_EXECUTABLE_PATH: NodePath | None = option(
        "The program that source command runs; containerd if left out."
    )
    RUNTIME_RESTART_MODE: Literal["signal", "systemd", "none"] | None = option(
        "How containerd takes the new configuration; signal if left out."
    )

    @model_validator(mode="after")
    def _check_files(self) -> ToolkitEnv:
        config = self.CONTAINERD_CONFIG or "/etc/containerd/config.toml"
        socket = self.CONTAINERD_SOCKET or "/run/containerd/containerd.sock"
        if socket in (config, self.RUNTIME_DROP_IN_CONFIG):
            raise InputError("CONTAINERD_SOCKET", f"{socket} is also a configuration", "name two files")
        if config == self.RUNTIME_DROP_IN_CONFIG:
            fact = "is containerd's own file, which the drop-in would replace"
            raise InputError("RUNTIME_DROP_IN_CONFIG", fact, "name a file of its own")
        if self.RUNTIME_DROP_IN_CONFIG and not self.RUNTIME_DROP_IN_CONFIG.endswith(".toml"):
            # nvidia-container-toolkit, pkg/config/engine/containerd/config_drop_in.go
            fact = "containerd imports only *.toml of the drop-in's folder"
            raise InputError("RUNTIME_DROP_IN_CONFIG", fact, "end its name with .toml")
        if self.RUNTIME_EXECUTABLE_PATH and "command" not in self.RUNTIME_CONFIG_SOURCE.split(","):
            fact = f"source {self.RUNTIME_CONFIG_SOURCE} runs no program"
            remedy = "use RUNTIME_CONFIG_SOURCE: command, or leave it out"
            raise InputError("RUNTIME_EXECUTABLE_PATH", fact, remedy)
        return self


Mode = Literal["operator", "device_plugin", "existing"]
KernelModules = Literal["auto", "open", "proprietary"]

ChartVersion = Annotated[
    Strict,
    matching(rf"v?{NUMBER}\.{NUMBER}\.{NUMBER}", "a chart version", "write the whole version, as v26.7.1"),
]


class Drain(Model):
    """Drain a node, with all its pods, if those with GPUs cannot be ended; its upgrade fails without it."""

    timeout_seconds: DrainSeconds = option("Seconds after which a drain is given up.", 300)
    force: Flag | None = option("Whether pods without a controller are deleted; upgrade.force if left out.")
    delete_empty_dir: Flag | None = option(
        "Whether pods with an emptyDir are evicted, and lose its data; upgrade.delete_empty_dir if left out."
    )


class Upgrade(Model):
    """How the operator upgrades its driver on the nodes; it ends the pods with GPUs on each node."""

    auto: Flag = option(
        "Whether nodes are upgraded automatically; else each node waits until its driver pod is deleted.",
        True,
    )
    max_parallel: NodeCount = option("Nodes that are upgraded at the same time.", 1)
    max_unavailable: Nodes = option(
        "Nodes that may be unavailable meanwhile, a number or a share of all such as 25%.", "25%"
    )
    force: Flag | None = option(
        "Whether to end pods with GPUs that have no controller; they do not return. If left out: true if a "
        "workload of kind pod has a GPU."
    )
    delete_empty_dir: Flag | None = option(
        "Whether to end pods with GPUs that have an emptyDir; they lose its data. If left out: true if a "
        "workload with a GPU has shm, huge pages or a model."
    )
    drain: Drain | None = Field(default=None)

    @model_validator(mode="after")
    def _check_unused(self) -> Upgrade:
        for key in ("max_parallel", "max_unavailable", "force", "delete_empty_dir", "drain"):
            if not self.auto and getattr(self, key) != Upgrade.model_fields[key].default:
                fact = "with auto: false the operator upgrades no node by itself"
                raise InputError(key, fact, "leave it out")
        return self


class GpuTaint(Model):
    """The taint that keeps pods without GPUs off the nodes with GPUs; its effect is NoSchedule."""

    key: TaintKey = NVIDIA_GPU
    value: LabelValue = option("Its value; GKE, AKS and NVIDIA's recipes use present.", "true")


class GpuOperatorSpec(Model):
    """NVIDIA's GPU operator, settings for every node.

    Not all of them have an effect everywhere: docs/howto/operator.md says who owns driver and toolkit.
    """

    mode: Mode = option(
        "operator: NVIDIA's GPU operator; device_plugin: its device plugin alone, on nodes that include "
        "driver and toolkit; existing: none of ours, because the cluster has an operator already.",
        "operator",
    )
    nfd: Flag = option(
        "Whether the chart installs node feature discovery; false if the cluster has it already.", True
    )
    version: ChartVersion | None = option(
        "Version of the chart; the one this release is tested with if left out."
    )
    mig_strategy: Literal["none", "single", "mixed"] = option(
        "How slices are offered, unless a pool sets it: mixed as nvidia.com/mig-3g.20gb, single as "
        "nvidia.com/gpu; none with mode device_plugin or existing, which partition no GPU.",
        "mixed",
    )
    gpu_taint: Annotated[
        Literal["none"] | GpuTaint,
        BeforeValidator(
            lambda value: {"key": value} if isinstance(value, str) and value != "none" else value,
            json_schema_input_type=TaintKey | GpuTaint,
        ),
    ] = option(
        "Taint on every node with GPUs: its key, or key and value; none on nodes that exist and shall have "
        "none (existing cluster, own hosts).",
        GpuTaint,
    )
    driver: Literal["operator", "host"] = option("Who installs NVIDIA's driver.", "operator")
    driver_version: DriverVersion | None = option(
        "Version of the operator's driver, in quotes; the newest that supports all GPUs if left out."
    )
    driver_repository: Registry | None = option(
        "Registry and path with images of the operator's driver; NVIDIA's own if left out."
    )
    driver_image: ImageName | None = option(
        "Name of the driver's image there; the operator appends the tag, which is driver_version and the "
        "node's system (580.178.04-fedora40)."
    )
    kernel_modules: KernelModules = option(
        "Kernel modules of the operator's driver; auto uses on each node what NVIDIA recommends for its GPU.",
        "auto",
    )
    toolkit: Literal["operator", "host"] = option("Who installs NVIDIA's container toolkit.", "operator")
    toolkit_version: ToolkitVersion | None = option(
        "Version of the operator's container toolkit; the chart's if left out."
    )
    toolkit_env: ToolkitEnv = Field(default_factory=ToolkitEnv)
    upgrade: Upgrade = Field(default_factory=Upgrade)
    cdi: Flag = option(
        "Whether containers get their GPUs as CDI devices; else by mounts, or, if the nodes have a toolkit "
        "of their own, by a variable that any container may set.",
        True,
    )
    runtime_class: ObjectName | None = option(
        "RuntimeClass of declared pods with GPUs, if NVIDIA's runtime is not the nodes' default and does "
        "not use CDI."
    )
    acknowledge: Vulnerabilities = option("Accepted vulnerabilities of an older operator or toolkit.", ())
    repository: ChartRepository | None = option("Helm repository with the chart; NVIDIA's own if left out.")

    @model_validator(mode="before")
    @classmethod
    def _set_default_mig_strategy(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("mode") in ("device_plugin", "existing"):
            return {"mig_strategy": "none", **data}
        return data

    @property
    def taint(self) -> GpuTaint | None:
        """The taint of nodes with GPUs; None if they have none."""
        return self.gpu_taint if isinstance(self.gpu_taint, GpuTaint) else None


Owner = Literal["image", "ansible", "host", "operator"]
PluginOwner = Literal["image", "operator", "chart", "cluster"]
MigOwner = Literal["image", "operator", "none"]
DeviceList = Literal["volume-mounts", "envvar"]


@dataclass(frozen=True)
class Ownership:
    """One row; ``nodes`` describes the nodes, for people."""

    nodes: str
    driver: Owner
    toolkit: Owner
    device_plugin: PluginOwner = "operator"
    mig: MigOwner = "operator"
    system_nodes: bool = False
    """Whether the cluster has nodes without GPUs, kept for pods that need no GPU."""

    @property
    def device_list(self) -> DeviceList:
        """How a GPU gets into a container without CDI.

        A toolkit that we install or configure reads NVIDIA_VISIBLE_DEVICES in privileged containers only, or
        every pod could take GPUs; so the device plugin has to pass them by mounts. Any other toolkit may read
        only the variable.
        """
        return "envvar" if self.toolkit == "host" else "volume-mounts"


# Sources of the owners: AWS's pages on the accelerated AL2023 images (driver and toolkit inside) and on
# Bottlerocket's NVIDIA variants (all three, MIG at boot); NVIDIA's operator documentation, pre-installed
# drivers and toolkits. Not in the table, because it holds for every row: operands tolerate every taint of GPU
# nodes, their namespace has Pod Security level privileged, and NRI stays off, as nothing enables it.
OWNERS: Mapping[str, Ownership] = {
    "al2023-nvidia": Ownership("AL2023 NVIDIA AMI", "image", "image", system_nodes=True),
    "bottlerocket-nvidia": Ownership("Bottlerocket NVIDIA", "image", "image", "image", "image", True),
    "ansible": Ownership("own hosts, prepared by Ansible", "ansible", "ansible"),
    "operator": Ownership("existing cluster, bare nodes (Ubuntu)", "operator", "operator"),
    "host-driver": Ownership("existing cluster, driver on the nodes", "host", "operator"),
    "host-toolkit": Ownership("existing cluster, toolkit on the nodes", "operator", "host"),
    "host": Ownership("existing cluster, driver and toolkit on the nodes", "host", "host"),
    "magnum": Ownership("Magnum node group, bare nodes", "operator", "operator", system_nodes=True),
    "magnum-host-driver": Ownership("Magnum, driver in the image", "host", "operator", system_nodes=True),
    "magnum-host-toolkit": Ownership("Magnum, toolkit in the image", "operator", "host", system_nodes=True),
    "magnum-host": Ownership("Magnum, driver and toolkit in the image", "host", "host", system_nodes=True),
    "embedded": Ownership("embedded, simulated nodes", "operator", "operator"),
}
_EXISTING: Mapping[tuple[str, str], str] = {
    ("operator", "operator"): "operator",
    ("host", "operator"): "host-driver",
    ("operator", "host"): "host-toolkit",
    ("host", "host"): "host",
}
_MAGNUM = {key: f"magnum-{row}" if row != "operator" else "magnum" for key, row in _EXISTING.items()}


def ownership_of(cluster: str, images: Collection[str], spec: GpuOperatorSpec) -> Ownership:
    """The row of an environment; ``images`` are the keys of the node images of its pools with GPUs (AWS).

    Without an operator of ours nothing here installs driver and toolkit, or cuts GPUs: the nodes own what
    the operator would own, and with mode existing the cluster's operator owns the device plugin.
    """
    is_not_operator = spec.mode != "operator"
    row = OWNERS[_row_key(cluster, images, spec, is_not_operator)]
    plugin: PluginOwner = "cluster" if spec.mode == "existing" else "chart"
    return replace(row, device_plugin=plugin, mig="none") if is_not_operator else row


def _row_key(cluster: str, images: Collection[str], spec: GpuOperatorSpec, is_not_operator: bool) -> str:
    if cluster == "aws":
        bottlerocket = any(image.startswith("bottlerocket-nvidia") for image in images)
        return "bottlerocket-nvidia" if bottlerocket else "al2023-nvidia"
    if cluster == "hosts":
        return "ansible"
    if cluster == "openstack":
        return "magnum-host" if is_not_operator else _MAGNUM[spec.driver, spec.toolkit]
    if is_not_operator:
        return "host"
    return "embedded" if cluster == "embedded" else _EXISTING[spec.driver, spec.toolkit]

"""Who owns driver, container toolkit, device plugin and MIG on the nodes, as one table.

Sources: AWS's pages on the accelerated AL2023 images (driver and toolkit inside) and on Bottlerocket's NVIDIA
variants (all three, MIG at boot); NVIDIA's operator documentation, pre-installed drivers and toolkits.
Not in the table, because it holds for every row: operands tolerate every taint of GPU nodes, their namespace
has Pod Security level privileged, and NRI stays off, because nothing here enables it in containerd.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from infra.model.operator import GpuOperatorSpec

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


ROWS: Mapping[str, Ownership] = {
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


def of(cluster: str, images: Collection[str], spec: GpuOperatorSpec) -> Ownership:
    """The row of an environment; ``images`` are the keys of the node images of its pools with GPUs (AWS).

    Without an operator of ours nothing here installs driver and toolkit, or cuts GPUs: the nodes own what
    the operator would own, and with mode existing the cluster's operator owns the device plugin.
    """
    alone = spec.mode != "operator"
    row = ROWS[_key(cluster, images, spec, alone)]
    plugin: PluginOwner = "cluster" if spec.mode == "existing" else "chart"
    return replace(row, device_plugin=plugin, mig="none") if alone else row


def _key(cluster: str, images: Collection[str], spec: GpuOperatorSpec, alone: bool) -> str:
    if cluster == "aws":
        bottlerocket = any(image.startswith("bottlerocket-nvidia") for image in images)
        return "bottlerocket-nvidia" if bottlerocket else "al2023-nvidia"
    if cluster == "hosts":
        return "ansible"
    if cluster == "openstack":
        return "magnum-host" if alone else _MAGNUM[spec.driver, spec.toolkit]
    if alone:
        return "host"
    return "embedded" if cluster == "embedded" else _EXISTING[spec.driver, spec.toolkit]

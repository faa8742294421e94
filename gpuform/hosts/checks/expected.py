"""What each host should be, read from an inventory in the form of ``ansible-inventory --list``.

The names of its variables are repeated here on purpose: these checks import neither the program that writes
the inventory nor the roles that act on it, or they would confirm both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra import facts

INVENTORY = "GPUFORM_HOSTS_INVENTORY"
BACKEND = "GPUFORM_HOSTS_BACKEND"
RESULTS = "GPUFORM_HOSTS_RESULTS"
LIMIT = "GPUFORM_HOSTS_LIMIT"
STACK = "GPUFORM_HOSTS_STACK"


@dataclass(frozen=True)
class Expected:
    """One host as declared; ``gpu_count`` is 0 for a host without GPUs.

    ``mig`` is None if its slices are unknown, else {GPU index or "all": {profile: number}}; a GPU without
    slices has an empty entry. ``cuts_at_boot``: slices are created by the host itself, not by the operator.
    """

    host: str
    pool: str
    gpu_product: str
    gpu_count: int
    driver_source: str
    driver_version: str
    driver_modules: str
    fabricmanager: bool
    toolkit_version: str
    runtime: str
    mode: str
    distribution: str
    cuda_version: str
    mig: Mapping[str, Mapping[str, int]] | None
    cuts_at_boot: bool
    kubeconfig: str
    context: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    rdma: Mapping[str, Any] | None = None
    """Selectors of its RDMA adapters, ``link_type`` and ``interfaces``; None without any."""
    connection: Mapping[str, Any] = field(default_factory=dict)
    stack: str = ""

    @property
    def apply(self) -> str:
        return f"`gpuform hosts apply{f' {self.stack}' if self.stack else ''}`"

    @property
    def own_containerd(self) -> facts.Distribution | None:
        """The row of a distribution with a containerd of its own."""
        return facts.DISTRIBUTIONS.get(self.distribution)

    def slices(self, index: int) -> dict[str, int] | None:
        """Slices planned for that GPU: {} for none, None if unknown."""
        if self.mig is None:
            return None
        return dict(self.mig.get(str(index), self.mig.get("all", {})))


def read_inventory(path: Path, limit: str = "", stack: str = "") -> dict[str, Expected]:
    """The hosts of that file by name; ``limit`` names some of them, comma separated."""
    # A text that Ansible must not template is an object with this key alone.
    inventory = json.loads(path.read_text(), object_hook=lambda item: item.get("__ansible_unsafe", item))
    hosts = {
        name: parse_host(name, variables, stack)
        for name, variables in sorted(inventory["_meta"]["hostvars"].items())
    }
    names = [name for name in limit.split(",") if name]
    return {name: hosts[name] for name in names} if names else hosts


def parse_host(name: str, variables: Mapping[str, Any], stack: str = "") -> Expected:
    gpu = variables.get("validate_inventory_gpu") or {}
    pool = str(variables.get("gpuform_pool") or "")
    path = str(variables.get("gpuform_kubeconfig") or "")
    kubeconfig = str(Path(path).expanduser()) if path else ""
    return Expected(
        host=name,
        pool=pool,
        gpu_product=str(variables.get("nvidia_driver_product") or gpu.get("product") or ""),
        gpu_count=int(variables.get("nvidia_driver_count") or gpu.get("count") or 0),
        driver_source=str(variables.get("nvidia_driver_source") or ""),
        driver_version=str(variables.get("nvidia_driver_version") or ""),
        driver_modules=str(variables.get("nvidia_driver_modules") or ""),
        fabricmanager=bool(variables.get("nvidia_driver_fabricmanager")),
        toolkit_version=str(variables.get("nvidia_container_toolkit_version") or ""),
        runtime=str(variables.get("nvidia_container_toolkit_runtime") or "containerd"),
        mode=str(variables.get("nvidia_container_toolkit_mode") or "runtime"),
        distribution=str(variables.get("gpuform_distribution") or "kubeadm"),
        cuda_version=str(variables.get("cuda_toolkit_version") or ""),
        mig=_mig(variables, bool(kubeconfig)),
        cuts_at_boot=bool(variables.get("nvidia_mig_layout")),
        kubeconfig=kubeconfig,
        context=str(variables.get("gpuform_context") or ""),
        labels=({"gpuform.io/pool": pool} if pool else {}) | (variables.get("gpuform_labels") or {}),
        taints=tuple(variables.get("gpuform_taints") or ()),
        rdma=variables.get("gpuform_rdma"),
        connection={key: value for key, value in variables.items() if key.startswith("ansible_")},
        stack=stack,
    )


def _mig(variables: Mapping[str, Any], joined: bool) -> dict[str, dict[str, int]] | None:
    """Slices of mig-parted's config, or of the operator's; on other hosts MIG is off."""
    if "gpuform_mig" in variables:
        return dict(variables["gpuform_mig"])
    layout = variables.get("nvidia_mig_layout")
    if not layout:
        return None if joined else {"all": {}}
    planned: dict[str, dict[str, int]] = {}
    for entry in variables["nvidia_mig_config"]["mig-configs"][layout]:
        slices = dict(entry.get("mig-devices") or {}) if entry["mig-enabled"] else {}
        devices = entry["devices"]
        for device in ["all"] if devices == "all" else devices:
            planned[str(device)] = slices
    return planned

"""The nodes of instances, as their kubelet would register them.

A node gets the labels, the taints and the number of pods from its instance's user data, and nothing that
Karpenter or the operator add later. AL2023's NodeConfig and Bottlerocket's settings (TOML) are read. Its cpu
and memory are what the kubelet leaves of the machine.
"""

from __future__ import annotations

import base64
import email
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from infra import versions
from infra.model import labels
from infra.model.machines import Machine
from infra.model.node_room import allocatable
from infra.plan.nodes import fabric, gpus, sizes

_NODE_CONFIG = "application/node.eks.aws"
_HUGE_PAGES = re.compile(r"^sysctl -w vm\.nr_hugepages=(\d+)$", re.MULTILINE)

Manifest = dict[str, Any]


@dataclass
class Kubelet:
    """Settings of the kubelet and the kernel from user data."""

    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    max_pods: int | None = None
    huge_pages: int = 0
    """Huge pages of 2 MiB."""
    reserves_for: int | None = None
    """Pods that count for the reserved memory; AL2023's nodeadm counts those of the network interfaces."""


def kubelet(user_data: str) -> Kubelet:
    """Read user data, base64 of MIME parts or of TOML; later parts override earlier ones."""
    text = base64.b64decode(user_data).decode("utf-8", "replace")
    found = Kubelet()
    if text.lstrip().startswith("["):
        _bottlerocket(tomllib.loads(text), found)
        return found
    for part in email.message_from_string(text).walk():
        if pages := _HUGE_PAGES.search(str(part.get_payload())):
            found.huge_pages = int(pages[1])
        if part.get_content_type() == _NODE_CONFIG:
            config = yaml.safe_load(str(part.get_payload())) or {}
            _node_config((config.get("spec") or {}).get("kubelet") or {}, found)
    return found


def _node_config(given: Mapping[str, Any], found: Kubelet) -> None:
    config = given.get("config") or {}
    found.max_pods = config.get("maxPods", found.max_pods)
    found.taints += config.get("registerWithTaints") or []
    for flag in given.get("flags") or ():
        name, _, value = str(flag).partition("=")
        if name == "--node-labels":
            found.labels |= dict(pair.split("=", 1) for pair in value.strip('"').split(",") if pair)


def _bottlerocket(settings: Mapping[str, Any], found: Kubelet) -> None:
    sysctl = settings.get("settings", {}).get("kernel", {}).get("sysctl", {})
    found.huge_pages = int(sysctl.get("vm.nr_hugepages", found.huge_pages))
    given = settings.get("settings", {}).get("kubernetes", {})
    found.labels |= given.get("node-labels", {})
    found.max_pods = found.reserves_for = given.get("max-pods", found.max_pods)
    for key, values in given.get("node-taints", {}).items():
        for one in values if isinstance(values, list) else [values]:
            value, _, effect = str(one).rpartition(":")
            taint = {"key": key, "effect": effect}
            found.taints.append({**taint, "value": value} if value else taint)


def node(
    machine: Machine, name: str, id: str, zone: str, region: str, told: Kubelet, adapters: int = 0
) -> Manifest:
    """The Node as its kubelet registers it, with the hardware for the simulator in annotations.

    ``adapters``: Elastic Fabric Adapters that the instance was launched with.
    """
    room = allocatable(machine, told.max_pods or machine.pods, told.reserves_for or machine.pods)
    aside = told.huge_pages * 2
    annotations = {
        labels.KWOK_NODE: "fake",
        **sizes(replace(room, memory=room.memory - aside)),
        **fabric(aside, adapters),
        **hardware(machine),
    }
    own = {
        labels.HOSTNAME: name,
        labels.OS: "linux",
        labels.ARCH: machine.arch,
        labels.INSTANCE_TYPE: machine.name,
        "topology.kubernetes.io/region": region,
        labels.ZONE: zone,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**told.labels, **own}, "annotations": annotations},
        "spec": {"providerID": f"aws:///{zone}/{id}", "taints": told.taints},
    }


def hardware(machine: Machine) -> dict[str, str]:
    """Annotations that tell the simulator which GPUs are in a node, and that its image has a driver."""
    return {**gpus(machine), labels.SIM_HOST_DRIVER: versions.GPU_DRIVER} if machine.model else {}

"""Pods and Deployments of NVIDIA's own operator, told by what it and its charts write into them.

Operands start in the order of their init containers, which wait for files on the host [NVIDIA/gpu-operator
25.3.4 and 26.7.0, assets/*/*daemonset.yaml]: ``toolkit-validation`` for one that the validator writes, in the
validator itself for nvidia-smi in a container.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.simulator import keys

Json = Mapping[str, Any]
_BY_APP = {
    "nvidia-driver-daemonset": "driver",
    "nvidia-container-toolkit-daemonset": "toolkit",
    "nvidia-device-plugin-daemonset": "device-plugin",
    "nvidia-device-plugin-mps-control-daemon": "mps-control-daemon",
    "gpu-feature-discovery": "gfd",
    "nvidia-dcgm-exporter": "dcgm-exporter",
    "nvidia-mig-manager": "mig-manager",
    "nvidia-operator-validator": "validator",
}
_WAITS_FOR = {"driver-validation": "driver", "plugin-validation": "device-plugin"}
_TOOLKIT = "toolkit-validation"
_CONFIGURED_AT = ("/available-configs", "/mig-parted-config", "/etc/dcgm-exporter")
OPERATOR, MASTER = "real-operator", "nfd-master"


def operand(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The operand that a pod stands for; empty for another pod."""
    if labels.get("app.kubernetes.io/name") == "node-feature-discovery":
        return f"nfd-{labels.get('role', '')}"
    return _BY_APP.get(labels.get("app", ""), "") if keys.START in annotations else ""


def program(labels: Mapping[str, str]) -> str:
    """``OPERATOR`` or ``MASTER`` for the Deployment of one; else empty."""
    if labels.get("app.kubernetes.io/component") == "gpu-operator":
        return OPERATOR
    return MASTER if operand(labels, {}) == MASTER else ""


def waits_for(init: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Operands that must run on the node before a pod with these init containers starts there."""
    names = [name for name, _ in init]
    found = [_WAITS_FOR[name] for name in names if name in _WAITS_FOR]
    if _TOOLKIT in names:
        found.append("toolkit" if "cuda-validation" in names else "validator")
    return tuple(found)


def config_map(spec: Json) -> str:
    """Name of the ConfigMap with the operand's configuration; the others have scripts."""
    mounts = [mount for container in spec["containers"] for mount in container.get("volumeMounts") or ()]
    names = {mount["name"] for mount in mounts if mount["mountPath"].startswith(_CONFIGURED_AT)}
    volumes = [volume for volume in spec.get("volumes") or () if volume["name"] in names]
    return next((volume["configMap"]["name"] for volume in volumes if "configMap" in volume), "")

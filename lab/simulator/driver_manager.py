"""The driver's init container: stops every user of the old driver before another one is loaded.

Operands are paused by their labels, as the MIG manager does it, and resumed when the new driver is about to
start; they then wait for it as on a new node. Pods that request GPUs stay: NVIDIA's upgrade controller, which
evicts them, is not simulated, and without it the real container would fail to unload the module.
"""

from __future__ import annotations

from lab.simulator import keys
from lab.simulator.actions import Action, Delete, NodeMeta
from lab.simulator.objects import Pod
from lab.simulator.world import World

PAUSED = "paused-for-driver-upgrade"
CLIENTS = {
    "container-toolkit": "toolkit",
    "dcgm": "dcgm",
    "dcgm-exporter": "dcgm-exporter",
    "device-plugin": "device-plugin",
    "gpu-feature-discovery": "gfd",
    "mig-manager": "mig-manager",
    "operator-validator": "validator",
}
"""Operand by suffix of its label ``nvidia.com/gpu.deploy.``; the MPS daemon follows the device plugin's."""


def clear(world: World, pod: Pod, version: str) -> list[Action] | None:
    """Actions before this driver may start ([]: wait for operands to end); None if it may start now."""
    loaded = world.node.labels.get(keys.DRIVER_LABEL)
    if pod.crash or loaded in (None, version):
        return None
    operands = {*CLIENTS.values(), "mps-control-daemon"}
    if not any(other.operand in operands and other.start == "granted" for other in world.pods):
        return None
    paused = _labels(world, "true", PAUSED)
    return [NodeMeta("driver-manager", paused)] if paused else []


def restore(world: World) -> list[Action]:
    """Resume the operands; delete the CUDA validator's pods, which validated the old driver."""
    back = _labels(world, PAUSED, "true")
    old: list[Action] = [Delete(pod) for pod in world.of("cuda-validator") if not pod.deleting]
    return [*old, NodeMeta("driver-manager", back)] if back else []


def _labels(world: World, now: str, then: str) -> dict[str, str | None]:
    names = (f"{keys.DEPLOY}{client}" for client in CLIENTS)
    return {name: then for name in names if world.node.labels.get(name) == now}

"""The driver's init container: before another driver is loaded, everything that uses the old one has to go.

The operands are sent away by their labels, as the MIG manager does it, and called back when the new driver is
about to start; they wait for it then as on a new node. Pods that request GPUs stay: NVIDIA's upgrade
controller, which evicts them, is not played, and without it the real one would fail to unload the module.
"""

from __future__ import annotations

from gpuform.simulator import keys
from gpuform.simulator.actions import Action, Delete, NodeMeta
from gpuform.simulator.objects import Pod
from gpuform.simulator.world import World

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
"""Label of ``nvidia.com/gpu.deploy.`` to the operand; the MPS daemon goes by the device plugin's."""


def clear(world: World, pod: Pod, version: str) -> list[Action] | None:
    """What still has to be done before this driver may start; None when nothing has."""
    loaded = world.node.labels.get(keys.DRIVER_LABEL)
    if pod.crash or loaded in (None, version):
        return None
    operands = {*CLIENTS.values(), "mps-control-daemon"}
    if not any(other.operand in operands and other.start == "granted" for other in world.pods):
        return None
    paused = _labels(world, "true", PAUSED)
    return [NodeMeta("driver-manager", paused)] if paused else []


def restore(world: World) -> list[Action]:
    """Call the operands back; what the old driver was validated with is of no worth."""
    back = _labels(world, PAUSED, "true")
    old: list[Action] = [Delete(pod) for pod in world.of("cuda-validator") if not pod.deleting]
    return [*old, NodeMeta("driver-manager", back)] if back else []


def _labels(world: World, now: str, then: str) -> dict[str, str | None]:
    names = (f"{keys.DEPLOY}{client}" for client in CLIENTS)
    return {name: then for name in names if world.node.labels.get(name) == now}

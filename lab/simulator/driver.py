"""The driver: which version a node has, and whether it supports the node's GPU.

Not simulated: its init container, which stops the operands while another driver is loaded, and NVIDIA's
upgrade controller, which evicts pods that request GPUs.
"""

from __future__ import annotations

from lab.simulator import keys
from lab.simulator.objects import Pod
from lab.simulator.world import World

_BRANCHES = (595, 590, 580, 575, 570, 565, 560, 555, 550, 545, 535, 530, 525, 0)
_VERSIONS = "13.2 13.1 13.0 12.9 12.8 12.7 12.6 12.5 12.4 12.3 12.2 12.1 12.0 11.8"
CUDA = tuple(zip(_BRANCHES, _VERSIONS.split(), strict=True))
"""Lowest driver branch of each CUDA version, newest first (CUDA release notes, table of driver versions)."""


def version(world: World) -> str | None:
    """Version of the loaded driver: the driver pod's, else the host's; None without a driver."""
    pod = world.running("driver")
    if pod:
        return driver_version(pod)
    return world.node.annotations.get(keys.HOST_DRIVER)


def cuda_version(driver: str) -> str:
    """CUDA version of the driver's branch, for example ``12.4``."""
    branch = int(driver.split(".")[0])
    return next(name for lowest, name in CUDA if branch >= lowest)


def exit_message(world: World, pod: Pod) -> str | None:
    gpu, wanted = world.gpu, driver_version(pod)
    if gpu is None:
        return f"no GPU with PCI id {world.node.annotations.get(keys.GPU_ID)} is known to this driver"
    last = gpu.last_branch
    if last is not None and int(wanted.split(".")[0]) > last:
        return f"driver {wanted} does not support {gpu.product}: R{last} is the last branch that does"
    return None


def driver_version(pod: Pod) -> str:
    """Version of the driver that this pod would load."""
    return pod.template.containers[0][1].rpartition(":")[2].partition("-")[0]

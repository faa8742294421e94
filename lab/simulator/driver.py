"""The driver: which version a node has, and whether it supports the node's GPU.

Not simulated: its init container, which stops the operands while another driver is loaded, and NVIDIA's
upgrade controller, which evicts pods that request GPUs.
"""

from __future__ import annotations

from lab.simulator import keys
from lab.simulator.objects import Pod
from lab.simulator.world import World

CUDA = (
    (595, "13.2"),
    (590, "13.1"),
    (580, "13.0"),
    (575, "12.9"),
    (570, "12.8"),
    (565, "12.7"),
    (560, "12.6"),
    (555, "12.5"),
    (550, "12.4"),
    (545, "12.3"),
    (535, "12.2"),
    (530, "12.1"),
    (525, "12.0"),
    (0, "11.8"),
)
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
    if gpu.last_branch is not None and int(wanted.split(".")[0]) > gpu.last_branch:
        return (
            f"driver {wanted} does not support {gpu.product}: R{gpu.last_branch} is the last branch that does"
        )
    return None


def driver_version(pod: Pod) -> str:
    """Version of the driver that this pod would load."""
    return pod.template.containers[0][1].rpartition(":")[2].partition("-")[0]

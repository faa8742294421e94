"""A change of MIG mode on GPUs that cannot be reset: the node reboots, or the layout fails.

mig-parted sets the mode of each GPU and, if a mode is pending then, resets all GPUs ("error resetting all
GPUs") [NVIDIA/mig-parted v0.15.0, cmd/nvidia-mig-parted/apply/mode.go]. If that fails, the MIG manager with
``WITH_REBOOT`` reboots the node [pkg/mig/reconfigure/reconfigure.go]. Message of a refused reset:
NVIDIA/gpu-operator#1606.
"""

from __future__ import annotations

from collections.abc import Collection

from lab.simulator import keys, power
from lab.simulator.actions import Action
from lab.simulator.objects import Pod
from lab.simulator.world import Layout, World, stored_layout

REBOOTING = "rebooting"
NOT_TAKEN = "MIG mode change did not take effect after rebooting"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""What Go's strconv.ParseBool, with which the MIG manager reads its environment, takes for true."""


def stuck(world: World, switched: Collection[int]) -> Collection[int]:
    """GPUs among those whose mode is to change that need a reset, on a node that refuses it."""
    needed = world.gpu is not None and world.gpu.compute < power.HOPPER
    return switched if needed and world.node.annotations.get(keys.GPU_RESET) == "no" else ()


def with_reboot(pod: Pod) -> bool:
    """Whether this MIG manager may reboot its node."""
    return pod.template.value("WITH_REBOOT") in _TRUE


def refused(stuck: Collection[int]) -> str:
    """Why the layout fails without a reboot, in the words of mig-parted."""
    said = f"Resetting GPU 00000000:00:{min(stuck) + 4:02X}.0 is not supported."
    return f"error setting MIG mode: error resetting all GPUs: {said}"


def reboot(world: World, switched: Collection[int]) -> list[Action]:
    """The state is set before the node goes; with it, a second MIG manager does not reboot again.

    On Ampere the mode is pending until the boot. A later GPU is in use, so it has not taken the mode.
    """
    keeps = world.gpu is not None and world.gpu.compute < power.HOPPER
    pending = ",".join(str(index) for index in sorted(switched) if keeps)
    notes = {keys.MIG_PENDING: pending, keys.MIG_LAYOUT: stored_layout(cleared(world, switched))}
    return power.reboot(world, "mig-manager", {keys.MIG_STATE: REBOOTING}, dict(notes))


def cleared(world: World, switched: Collection[int]) -> Layout:
    """The MIG state without the instances of these GPUs, which are removed before their mode is set."""
    return {index: () if index in switched else placed for index, placed in world.layout.items()}

"""The devices of a node: each whole GPU and each MIG instance, with its memory."""

from __future__ import annotations

from dataclasses import dataclass

from lab.simulator import device_plugin
from lab.simulator.hardware import Gpu
from lab.simulator.world import World


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU or a MIG instance; ``gpu`` is the GPU's index, memory is in MiB."""

    gpu: int
    memory_mib: int


def original(device: str) -> str:
    """Id of the device behind a replica; any other id is returned unchanged."""
    return device.partition("::")[0]


def parts(world: World) -> dict[str, Part]:
    """Every device that this node could offer under some MIG strategy, by its id."""
    gpu, found = world.gpu, {}
    if gpu is None:
        return {}
    layout = world.layout
    for index in range(world.gpus):
        found[device_plugin.gpu_uuid(world, index)] = Part(index, gpu.memory_mib)
        for profile, start in layout.get(index, ()):
            found[device_plugin.mig_uuid(world, index, profile, start)] = Part(index, _memory(gpu, profile))
    return found


def _memory(gpu: Gpu, profile: str) -> int:
    """MiB of an instance; if the table lacks it, the GPU's memory by share of memory slices."""
    assert gpu.mig is not None
    shape = gpu.mig.profiles[profile]
    return shape.memory_mib or gpu.memory_mib * shape.memory_slices // gpu.mig.slices

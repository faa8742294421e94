"""GPU memory: a model of which pod runs out of it, without a real GPU.

A pod's annotation ``simulator.gpuform.io/gpu-memory`` is the memory in MiB that its process asks for on each
allocated GPU. It may change while the pod runs: the process grows or shrinks. ``all`` is a leak: the process
takes all free memory, and never frees any. Pods without the annotation, or with another value, take part in
none of this; the metrics show an assumed amount for them (``lab.simulator.dcgm.load``).

- With time-slicing a GPU's memory is one pool. A process that asks for more than is free gets CUDA's
  out-of-memory error: its container fails, its memory is freed, and it restarts once there is room.
- A MIG device has a pool of its own, also when several pods share it by time-slicing.
- Under MPS each client is limited to its part of the GPU.

The MPS control daemon sets two limits for the clients of a GPU: an equal part of the memory, and an equal
part of the threads. There is no field for either in its configuration.

Not modelled: memory of the driver and of CUDA's contexts, fragmentation, several processes in one pod,
swapped unified memory, and how much slower a full GPU is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lab.simulator import device_plugin, driver, keys
from lab.simulator.actions import Action, Annotate, Crash, Recover
from lab.simulator.device_plugin import original_id, partitions
from lab.simulator.hardware import Gpu
from lab.simulator.objects import Pod
from lab.simulator.world import Config, World

DAEMON = "mps-control-daemon"
ALL = "all"
OUT_OF_MEMORY = "CUDA out of memory"

Pools = dict[str, int]
"""MiB by pool: a GPU, a MIG device, or under MPS a client's part."""


def act(world: World) -> list[Action]:
    """Allocate memory to each process: first to those that hold some already, then by age.

    Nothing changes while the plugin is down: its configuration gives the size of a client's part.
    """
    processes = [p for p in world.consumers if p.devices and p.phase == "Running" and _uses_memory(p)]
    config = world.config("device-plugin")
    if not processes or config is None:
        return []
    sizes = _pool_sizes(world, config)
    used = {pool: 0 for pool in sizes}
    for pod in processes:
        for pool in _pools_of(pod, sizes):
            used[pool] += _held_mib(pod)
    order = sorted(processes, key=lambda pod: (not _held_mib(pod), pod.created, pod.namespace, pod.name))
    return [action for pod in order for action in _resize(pod, sizes, used)]


def _resize(pod: Pod, sizes: Mapping[str, int], used: Pools) -> list[Action]:
    """Grow or shrink one process; updates ``used``."""
    pools, held = _pools_of(pod, sizes), _held_mib(pod)
    if not pools or pod.deleting or (pod.crash and not pod.crash.startswith(OUT_OF_MEMORY)):
        return []
    free = min(sizes[pool] - used[pool] for pool in pools)
    wants = held + free if pod.memory == ALL else int(pod.memory)
    fits = wants <= held + free and (wants > 0 or pod.memory != ALL)
    granted = wants if fits else 0
    for pool in pools:
        used[pool] += granted - held
    if not fits:
        return _fail(pod, min(pools, key=lambda pool: sizes[pool] - used[pool]), sizes, used)
    actions: list[Action] = [Recover(pod)] if pod.crash else []
    if granted != held:
        annotations = {keys.MEMORY_HELD: str(granted)}
        actions.append(Annotate(pod, annotations, f"holds {granted} MiB of GPU memory (a model)"))
    return actions


def _fail(pod: Pod, pool: str, sizes: Mapping[str, int], used: Mapping[str, int]) -> list[Action]:
    if pod.crash:
        return []  # already in back-off
    request = "memory" if pod.memory == ALL else f"{pod.memory} MiB"
    message = (
        f"{OUT_OF_MEMORY}. Tried to allocate {request}. {pool.partition('::')[0]} has a capacity of "
        f"{sizes[pool]} MiB, of which {sizes[pool] - used[pool]} MiB are free (a model: {keys.MEMORY})"
    )
    container = pod.requests[0][0]
    actions: list[Action] = [Crash(pod, container, message)]
    return [*actions, Annotate(pod, {keys.MEMORY_HELD: ""}, "loses its GPU memory")] if pod.held else actions


def _uses_memory(pod: Pod) -> bool:
    return pod.memory == ALL or pod.memory.isdecimal()


def _pool_sizes(world: World, config: Config) -> Pools:
    sizes = {device: part.memory_mib for device, part in partitions(world).items()}
    gpu, count = world.gpu, replicas(config)
    if gpu is not None and count > 1:
        gpus = [device for device in sizes if device.startswith("GPU-")]
        sizes |= {f"{device}::{n}": part_mib(gpu, config) for device in gpus for n in range(count)}
    return sizes


def _pools_of(pod: Pod, sizes: Mapping[str, int]) -> list[str]:
    """The pod's memory pools: a client's part, or the device behind its replicas."""
    devices = (device if device in sizes else original_id(device) for device in pod.devices.split(","))
    return [pool for pool in dict.fromkeys(devices) if pool in sizes]


def _held_mib(pod: Pod) -> int:
    return int(pod.held) if pod.held and not pod.crash else 0


def replicas(config: Config) -> int:
    """MPS clients that share a GPU; 1 without MPS."""
    if config.strategy != "mps":
        return 1
    counts = (item["replicas"] for item in device_plugin.shared_resources(config) if item["name"] == keys.GPU)
    return int(next(counts, 1))


def most_clients(gpu: Gpu) -> int:
    """Maximum clients of one MPS server. NVIDIA's daemon means Volta but checks for 7.5: a V100 gets 16."""
    return 48 if gpu.compute >= (7, 5) else 16


def part_mib(gpu: Gpu, config: Config) -> int:
    return gpu.memory_mib // replicas(config)


def exit_message(world: World, pod: Pod, config: Config) -> str | None:
    """Why the daemon exits; None when it runs. Without MPS in its configuration it runs and does nothing."""
    if pod.start != "granted" and driver.version(world) is None:
        return device_plugin.NO_DRIVER
    count, gpu = replicas(config), world.gpu
    if gpu is None or count <= most_clients(gpu):
        return None
    return (
        "error starting plugins: error getting daemons: invalid MPS configuration: "
        f"invalid device maximum allowed replicas exceeded: {count} > {most_clients(gpu)}"
    )


def write_limits(world: World) -> list[Action]:
    pod, config, gpu = world.running(DAEMON), world.config(DAEMON), world.gpu
    if pod is None or config is None or gpu is None or replicas(config) == 1:
        return []
    share = {
        "default_device_pinned_mem_limit": f"{part_mib(gpu, config)}M",
        "default_active_thread_percentage": str(100 // replicas(config)),
    }
    text = json.dumps(share, sort_keys=True)
    return [] if pod.limits == text else [Annotate(pod, {keys.MPS_LIMITS: text}, f"limits clients to {text}")]

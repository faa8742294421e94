"""GPU memory: a model of who runs out of it, for pods that say what their process takes. No GPU is behind it.

A pod's annotation ``simulator.gpuform.io/gpu-memory`` says what its process wants of each GPU that it was
given, in MiB, and may be changed while it runs: the process grows or shrinks. ``all`` leaks: it takes what is
free, and never gives any back. Pods without the annotation, or with another word in it, take nothing.

- On a GPU shared by time the memory is one pool. Whoever asks for more than is left gets CUDA's out-of-memory
  error: its container fails, what it had is free, and it is started again once there is room.
- A MIG device is a pool of its own, also when several pods share it by time.
- Under MPS each client has its part of the GPU and no more.

Left out: memory that the driver and CUDA's contexts take, fragments, several processes in one pod, unified
memory that is swapped, and how much slower a full GPU is.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuform.simulator import keys, mps
from gpuform.simulator.actions import Action, Annotate, Crash, Recover
from gpuform.simulator.objects import Pod
from gpuform.simulator.parts import original, parts
from gpuform.simulator.world import Config, World

ALL = "all"
OUT = "CUDA out of memory"

Pools = dict[str, int]
"""MiB by pool: a GPU, a MIG device, or under MPS a client's part."""


def act(world: World) -> list[Action]:
    """What each process gets now: who has memory comes first, then the oldest.

    While the plugin is away nothing changes: its configuration says how large a client's part is.
    """
    processes = [pod for pod in world.consumers if pod.devices and pod.phase == "Running" and _asks(pod)]
    config = world.config("device-plugin")
    if not processes or config is None:
        return []
    sizes = _sizes(world, config)
    used = {pool: 0 for pool in sizes}
    for pod in processes:
        for pool in _pools(pod, sizes):
            used[pool] += _held(pod)
    order = sorted(processes, key=lambda p: (not _held(p), p.created, p.namespace, p.name))
    return [action for pod in order for action in _grow(pod, sizes, used)]


def _grow(pod: Pod, sizes: Mapping[str, int], used: Pools) -> list[Action]:
    """One process asks for what it wants; ``used`` becomes what is so afterwards."""
    pools, has = _pools(pod, sizes), _held(pod)
    if not pools or pod.deleting or (pod.crash and not pod.crash.startswith(OUT)):
        return []
    free = min(sizes[pool] - used[pool] for pool in pools)
    wants = has + free if pod.memory == ALL else int(pod.memory)
    fits = wants <= has + free and (wants > 0 or pod.memory != ALL)
    gets = wants if fits else 0
    for pool in pools:
        used[pool] += gets - has
    if not fits:
        return _fail(pod, min(pools, key=lambda pool: sizes[pool] - used[pool]), sizes, used)
    found: list[Action] = [Recover(pod)] if pod.crash else []
    if gets != has:
        note = {keys.MEMORY_HELD: str(gets)}
        found.append(Annotate(pod, note, f"holds {gets} MiB of GPU memory (a model)"))
    return found


def _fail(pod: Pod, pool: str, sizes: Mapping[str, int], used: Mapping[str, int]) -> list[Action]:
    if pod.crash:
        return []  # it is in its back-off already
    asks = "memory" if pod.memory == ALL else f"{pod.memory} MiB"
    message = (
        f"{OUT}. Tried to allocate {asks}. {pool.partition('::')[0]} has a capacity of {sizes[pool]} MiB, "
        f"of which {sizes[pool] - used[pool]} MiB are free (a model: {keys.MEMORY})"
    )
    container = pod.requests[0][0]
    found: list[Action] = [Crash(pod, container, message)]
    return [*found, Annotate(pod, {keys.MEMORY_HELD: ""}, "loses its GPU memory")] if pod.held else found


def _asks(pod: Pod) -> bool:
    return pod.memory == ALL or pod.memory.isdecimal()


def _sizes(world: World, config: Config) -> Pools:
    found = {device: part.memory_mib for device, part in parts(world).items()}
    gpu, count = world.gpu, mps.replicas(config)
    if gpu is not None and count > 1:
        whole = [device for device in found if device.startswith("GPU-")]
        found |= {f"{device}::{n}": mps.part_mib(gpu, config) for device in whole for n in range(count)}
    return found


def _pools(pod: Pod, sizes: Mapping[str, int]) -> list[str]:
    """Where this pod's memory comes from: a client's part, or the device that its replicas stand for."""
    devices = (device if device in sizes else original(device) for device in pod.devices.split(","))
    return [pool for pool in dict.fromkeys(devices) if pool in sizes]


def _held(pod: Pod) -> int:
    return int(pod.held) if pod.held and not pod.crash else 0

"""The MPS control daemon: its limits, and what it refuses.

It sets two limits for the clients of a GPU: an equal part of the memory, and an equal part of the threads.
There is no field for either in its configuration.
"""

from __future__ import annotations

import json

from lab.simulator import device_plugin, driver, keys
from lab.simulator.actions import Action, Annotate
from lab.simulator.hardware import Gpu
from lab.simulator.objects import Pod
from lab.simulator.world import Config, World

DAEMON = "mps-control-daemon"


def replicas(config: Config) -> int:
    """MPS clients that share a GPU; 1 without MPS."""
    if config.strategy != "mps":
        return 1
    found = (entry["replicas"] for entry in device_plugin.shared(config) if entry["name"] == keys.GPU)
    return int(next(found, 1))


def most_clients(gpu: Gpu) -> int:
    """Maximum clients of one MPS server. NVIDIA's daemon means Volta but checks for 7.5: a V100 gets 16."""
    return 48 if gpu.compute >= (7, 5) else 16


def part_mib(gpu: Gpu, config: Config) -> int:
    return gpu.memory_mib // replicas(config)


def problem(world: World, pod: Pod, config: Config) -> str | None:
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


def act(world: World) -> list[Action]:
    pod, config, gpu = world.running(DAEMON), world.config(DAEMON), world.gpu
    if pod is None or config is None or gpu is None or replicas(config) == 1:
        return []
    share = {
        "default_device_pinned_mem_limit": f"{part_mib(gpu, config)}M",
        "default_active_thread_percentage": str(100 // replicas(config)),
    }
    noted = json.dumps(share, sort_keys=True)
    return (
        [] if pod.limits == noted else [Annotate(pod, {keys.MPS_LIMITS: noted}, f"limits clients to {noted}")]
    )

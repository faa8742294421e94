"""The device plugin: which devices a node offers, by resource name.

The MIG strategy comes from the environment first and from the configuration second, as NVIDIA's plugin reads
it: an operator with ``mig.strategy`` set overrides ``flags.migStrategy`` of every configuration.

A device once reported as unhealthy stays so until the plugin restarts or reads another configuration:
NVIDIA's plugin never recovers it (server.go of 0.19: "there is no way to recover from the Unhealthy state").
On a real node the cause is an XID; here it is a node annotation: ``faults`` with XIDs, or ``unhealthy``,
which just lists devices. An unhealthy GPU makes its MIG instances and replicas unhealthy.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from lab.simulator import driver, faults, keys
from lab.simulator.actions import Action, Annotate
from lab.simulator.objects import Pod
from lab.simulator.world import BrokenConfig, Config, World

Devices = dict[str, list[str]]
DRA_GATE = "NVMLDeviceHealthCheck=true"
EFA_PLUGIN = "efa-device-plugin"
RDMA_PLUGIN = "rdma-shared-dp"
NO_DRIVER = "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND: no driver on this node"
_NAMESPACE = uuid.UUID("5b0f3a52-2f1e-4b7c-9a53-0c1d6c1f7f10")


@dataclass(frozen=True, slots=True)
class Partition:
    """A GPU or a MIG instance; ``gpu`` is the GPU's index, memory is in MiB."""

    gpu: int
    memory_mib: int


class PluginError(ValueError):
    """The plugin exits with this message."""


def strategy(config: Config, pod: Pod) -> str:
    return pod.template.value("MIG_STRATEGY") or (config.data.get("flags") or {}).get("migStrategy") or "none"


def shared_resources(config: Config) -> list[dict[str, Any]]:
    """Replicated resources of the active sharing strategy, in the form of NVIDIA's types."""
    return list(sharing_block(config).get("resources") or ())


def sharing_block(config: Config) -> dict[str, Any]:
    """The active sharing strategy's block: MPS if configured, else time-slicing."""
    sharing = config.data.get("sharing") or {}
    return sharing.get("mps") or sharing.get("timeSlicing") or {}


def devices(world: World, config: Config, pod: Pod) -> Devices:
    """Device ids by resource name, replicas included. Raises PluginError where the plugin would exit."""
    mode = strategy(config, pod)
    if config.strategy == "mps" and mode == "mixed":
        raise PluginError("unable to validate flags: using --mig-strategy=mixed is not supported with MPS")
    devices_by_name = _unshared(world, mode)
    if config.strategy == "mps" and mode == "single" and world.layout:
        raise PluginError(
            "error getting plugins: unable to create plugins: failed to create plugin: "
            "sharing using MPS is not supported for MIG devices"
        )
    for entry in shared_resources(config):
        originals = devices_by_name.pop(entry["name"], None)
        if originals:
            name = entry.get("rename") or entry["name"]
            devices_by_name[name] = [f"{id_}::{n}" for id_ in originals for n in range(entry["replicas"])]
    return devices_by_name


def _unshared(world: World, mode: str) -> Devices:
    layout = world.layout
    mig_gpus = set() if mode == "none" else set(layout)
    whole_gpus = [gpu_uuid(world, index) for index in range(world.gpus) if index not in mig_gpus]
    devices_by_name: Devices = {keys.GPU: whole_gpus} if whole_gpus else {}
    instances = [(index, *placed) for index in sorted(mig_gpus) for placed in layout[index]]
    if mode == "single" and mig_gpus:
        _assert_uniform(world, bool(whole_gpus))
    for index, profile, start in instances:
        name = keys.GPU if mode == "single" else f"{keys.VENDOR}mig-{profile.replace('+', '.')}"
        devices_by_name.setdefault(name, []).append(mig_uuid(world, index, profile, start))
    return devices_by_name


def _assert_uniform(world: World, any_whole: bool) -> None:
    """Strategy ``single`` needs MIG on all GPUs, an instance on each, and one profile for all."""
    layout = world.layout
    empty = next((index for index in sorted(layout) if not layout[index]), None)
    if empty is not None:
        raise PluginError(
            "invalid MIG configuration: at least one device with migEnabled=true was not configured "
            f"correctly: device {empty} has no MIG devices configured"
        )
    if len({name for placed in layout.values() for name, _ in placed}) > 1:
        raise PluginError("invalid MIG configuration: more than one MIG device type present on node")
    if any_whole:
        raise PluginError("all devices on the node must be configured with the same migEnabled value")


def gpu_uuid(world: World, index: int) -> str:
    """Id of a GPU; stays the same for the lifetime of the node."""
    return gpu_id(world.node.uid, index)


def gpu_id(node: str, index: int) -> str:
    """Id of a GPU; ``node`` is the node's uid."""
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}"


def mig_uuid(world: World, index: int, profile: str, start: int) -> str:
    return mig_id(world.node.uid, index, profile, start)


def mig_id(node: str, index: int, profile: str, start: int) -> str:
    return f"MIG-{uuid.uuid5(_NAMESPACE, f'{node}/{index}/{profile}/{start}')}"


def original_id(device: str) -> str:
    """Id of the device behind a replica; any other id is returned unchanged."""
    return device.partition("::")[0]


def partitions(world: World) -> dict[str, Partition]:
    """Every device that this node could offer under some MIG strategy, by its id.

    Where the table lacks an instance's memory it is the GPU's, by share of memory slices.
    """
    gpu, layout = world.gpu, world.layout
    partitions_by_id: dict[str, Partition] = {}
    for index in range(world.gpus if gpu else 0):
        assert gpu is not None
        partitions_by_id[gpu_uuid(world, index)] = Partition(index, gpu.memory_mib)
        for profile, start in layout.get(index, ()):
            assert gpu.mig is not None
            shape = gpu.mig.profiles[profile]
            size = shape.memory_mib or gpu.memory_mib * shape.memory_slices // gpu.mig.slices
            partitions_by_id[mig_uuid(world, index, profile, start)] = Partition(index, size)
    return partitions_by_id


def exit_message(world: World, pod: Pod, config: Config) -> str | None:
    """Why the plugin's main container exits; None if it runs.

    A started plugin keeps the driver that it loaded: it goes on when the driver's pod is replaced.
    """
    if pod.start != "granted" and driver.version(world) is None:
        return NO_DRIVER
    try:
        devices(world, config, pod)
    except PluginError as error:
        return f"error starting plugins: {error}"
    return None


def offered_devices(world: World) -> Devices:
    """Devices registered with the kubelet now; empty unless the plugin (and under MPS its daemon) runs."""
    pod, config = world.running("device-plugin"), world.config("device-plugin")
    if pod is None or config is None or world.gpu is None:
        return {}
    if config.strategy == "mps" and not world.running("mps-control-daemon"):
        return {}
    try:
        return devices(world, config, pod)
    except PluginError:
        return {}


def efa_adapters(world: World) -> Devices:
    """Elastic Fabric Adapters, which AWS's device plugin offers while it runs: those of the launch."""
    attached = int(world.node.annotations.get(keys.EFA_ATTACHED, "0"))
    if not attached or world.running(EFA_PLUGIN) is None:
        return {}
    return {keys.EFA: [f"efa-{index}" for index in range(attached)]}


def rdma_adapters(world: World) -> Devices:
    """What the RDMA device plugin offers: any number of shares of the same adapters."""
    offered = json.loads(world.node.annotations.get(keys.RDMA_OFFERED, "{}"))
    if not offered or (offered["plugin"] and world.running(RDMA_PLUGIN) is None):
        return {}
    return {offered["resource"]: [f"rdma-{index}" for index in range(offered["count"])]}


def select_config(label: str, default: str, names: list[str]) -> str | BrokenConfig:
    """The ConfigMap key that the config manager selects for the node; "" is an empty configuration."""
    if not names:
        return BrokenConfig("no configuration files available", manager=True)
    name = label or default
    if name and name not in names:
        return BrokenConfig(f"specified config {name} does not exist", manager=True)
    return name


def act(world: World) -> list[Action]:
    """Annotate the running plugin's pod with newly unhealthy devices; this never removes a device."""
    pod = world.running("device-plugin") or health_checker(world)
    if pod is None or not _has_marks(world):
        return []
    unhealthy = _unhealthy_ids(world, pod)
    if unhealthy <= _split(pod.unhealthy):
        return []
    text = ",".join(sorted(unhealthy | _split(pod.unhealthy)))
    return [Annotate(pod, {keys.UNHEALTHY: text}, f"marks as unhealthy {text}")]


def health_checker(world: World) -> Pod | None:
    """The DRA driver's running pod if its alpha gate ``DRA_GATE`` enables health checks, else None."""
    pod = world.running(keys.DRA_OPERAND)
    return pod if pod and DRA_GATE in pod.template.value("FEATURE_GATES") else None


def tainted_devices(world: World) -> frozenset[str]:
    """Ids of the devices that the DRA driver taints; it forgets them when it restarts."""
    pod = health_checker(world)
    return _split(pod.unhealthy) if pod else frozenset()


def healthy_devices(world: World, offered: Devices) -> Devices:
    pod = world.running("device-plugin")
    unhealthy = _split(pod.unhealthy) if pod else frozenset()
    if not unhealthy and not _has_marks(world):
        return offered
    unhealthy = unhealthy | _unhealthy_ids(world, pod)
    return {name: [id_ for id_ in ids if original_id(id_) not in unhealthy] for name, ids in offered.items()}


def _has_marks(world: World) -> bool:
    return keys.UNHEALTHY in world.node.annotations or keys.FAULTS in world.node.annotations


def _unhealthy_ids(world: World, pod: Pod | None) -> frozenset[str]:
    """Ids of the devices that are unhealthy now for this plugin; unknown names are ignored."""
    marked = set(filter(None, world.node.annotations.get(keys.UNHEALTHY, "").replace(" ", "").split(",")))
    partitions_by_id = partitions(world)
    gpus = {part.gpu for id_, part in partitions_by_id.items() if id_.startswith("GPU-") and id_ in marked}
    gpus |= {int(name) for name in marked if name.isdecimal()} | faults.unhealthy_gpus(world.node, pod)
    return frozenset(id_ for id_, part in partitions_by_id.items() if id_ in marked or part.gpu in gpus)


def _split(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))

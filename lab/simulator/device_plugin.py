"""The device plugin: which devices a node offers, by resource name.

The MIG strategy comes from the environment first and from the configuration second, as NVIDIA's plugin reads
it: an operator with ``mig.strategy`` set overrides ``flags.migStrategy`` of every configuration.

A device once reported as unhealthy stays so until the plugin restarts or reads another configuration:
NVIDIA's plugin never recovers it (server.go of 0.19: "there is no way to recover from the Unhealthy state").
On a real node the cause is an XID; here it is a node annotation: ``faults`` with XIDs, or ``unhealthy``,
which just lists devices. An unhealthy GPU makes its MIG instances and replicas unhealthy.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from lab.simulator import driver, faults, keys
from lab.simulator.actions import Action, Annotate
from lab.simulator.objects import Pod
from lab.simulator.world import Broken, Config, World

Devices = dict[str, list[str]]
DRA_GATE = "NVMLDeviceHealthCheck=true"
EFA_PLUGIN = "efa-device-plugin"
NO_DRIVER = "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND: no driver on this node"
_NAMESPACE = uuid.UUID("5b0f3a52-2f1e-4b7c-9a53-0c1d6c1f7f10")


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU or a MIG instance; ``gpu`` is the GPU's index, memory is in MiB."""

    gpu: int
    memory_mib: int


class PluginError(ValueError):
    """The plugin exits with this message."""


def strategy(config: Config, pod: Pod) -> str:
    return pod.template.value("MIG_STRATEGY") or (config.data.get("flags") or {}).get("migStrategy") or "none"


def shared(config: Config) -> list[dict[str, Any]]:
    """Replicated resources of the active sharing strategy, in the form of NVIDIA's types."""
    return list(block(config).get("resources") or ())


def block(config: Config) -> dict[str, Any]:
    """The active sharing strategy's block: MPS if configured, else time-slicing."""
    sharing = config.data.get("sharing") or {}
    return sharing.get("mps") or sharing.get("timeSlicing") or {}


def devices(world: World, config: Config, pod: Pod) -> Devices:
    """Device ids by resource name, replicas included. Raises PluginError where the plugin would exit."""
    mode = strategy(config, pod)
    if config.strategy == "mps" and mode == "mixed":
        raise PluginError("unable to validate flags: using --mig-strategy=mixed is not supported with MPS")
    found = _whole_and_mig(world, mode)
    if config.strategy == "mps" and mode == "single" and world.layout:
        raise PluginError(
            "error getting plugins: unable to create plugins: failed to create plugin: "
            "sharing using MPS is not supported for MIG devices"
        )
    for entry in shared(config):
        originals = found.pop(entry["name"], None)
        if originals:
            name = entry.get("rename") or entry["name"]
            found[name] = [f"{device}::{n}" for device in originals for n in range(entry["replicas"])]
    return found


def _whole_and_mig(world: World, mode: str) -> Devices:
    layout = world.layout
    cut = set() if mode == "none" else set(layout)
    whole = [gpu_uuid(world, index) for index in range(world.gpus) if index not in cut]
    found: Devices = {keys.GPU: whole} if whole else {}
    instances = [(index, *placed) for index in sorted(cut) for placed in layout[index]]
    if mode == "single" and cut:
        _assert_uniform(world, bool(whole))
    for index, profile, start in instances:
        name = keys.GPU if mode == "single" else f"{keys.VENDOR}mig-{profile.replace('+', '.')}"
        found.setdefault(name, []).append(mig_uuid(world, index, profile, start))
    return found


def _assert_uniform(world: World, whole: bool) -> None:
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
    if whole:
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


def original(device: str) -> str:
    """Id of the device behind a replica; any other id is returned unchanged."""
    return device.partition("::")[0]


def parts(world: World) -> dict[str, Part]:
    """Every device that this node could offer under some MIG strategy, by its id.

    Where the table lacks an instance's memory it is the GPU's, by share of memory slices.
    """
    gpu, layout = world.gpu, world.layout
    found: dict[str, Part] = {}
    for index in range(world.gpus if gpu else 0):
        assert gpu is not None
        found[gpu_uuid(world, index)] = Part(index, gpu.memory_mib)
        for profile, start in layout.get(index, ()):
            assert gpu.mig is not None
            shape = gpu.mig.profiles[profile]
            size = shape.memory_mib or gpu.memory_mib * shape.memory_slices // gpu.mig.slices
            found[mig_uuid(world, index, profile, start)] = Part(index, size)
    return found


def problem(world: World, pod: Pod, config: Config) -> str | None:
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


def offered(world: World) -> Devices:
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


def adapters(world: World) -> Devices:
    """Elastic Fabric Adapters, which AWS's device plugin offers while it runs: those of the launch."""
    attached = int(world.node.annotations.get(keys.EFA_ATTACHED, "0"))
    if not attached or world.running(EFA_PLUGIN) is None:
        return {}
    return {keys.EFA: [f"efa-{index}" for index in range(attached)]}


def select(label: str, default: str, names: list[str]) -> str | Broken:
    """The ConfigMap key that the config manager selects for the node; "" is an empty configuration."""
    if not names:
        return Broken("no configuration files available", manager=True)
    wanted = label or default
    if wanted and wanted not in names:
        return Broken(f"specified config {wanted} does not exist", manager=True)
    return wanted


def act(world: World) -> list[Action]:
    """Annotate the running plugin's pod with newly unhealthy devices; this never removes a device."""
    pod = world.running("device-plugin") or watching(world)
    if pod is None or not _marked(world):
        return []
    now = _sick(world, pod)
    if now <= _noted(pod.unhealthy):
        return []
    noted = ",".join(sorted(now | _noted(pod.unhealthy)))
    return [Annotate(pod, {keys.UNHEALTHY: noted}, f"marks as unhealthy {noted}")]


def watching(world: World) -> Pod | None:
    """The DRA driver's running pod if its alpha gate ``DRA_GATE`` enables health checks, else None."""
    pod = world.running(keys.DRA_OPERAND)
    return pod if pod and DRA_GATE in pod.template.value("FEATURE_GATES") else None


def tainted(world: World) -> frozenset[str]:
    """Ids of the devices that the DRA driver taints; it forgets them when it restarts."""
    pod = watching(world)
    return _noted(pod.unhealthy) if pod else frozenset()


def healthy(world: World, offered: Devices) -> Devices:
    pod = world.running("device-plugin")
    noted = _noted(pod.unhealthy) if pod else frozenset()
    if not noted and not _marked(world):
        return offered
    sick = noted | _sick(world, pod)
    return {name: [id_ for id_ in ids if original(id_) not in sick] for name, ids in offered.items()}


def _marked(world: World) -> bool:
    return keys.UNHEALTHY in world.node.annotations or keys.FAULTS in world.node.annotations


def _sick(world: World, pod: Pod | None) -> frozenset[str]:
    """Ids of the devices that are unhealthy now for this plugin; unknown names are ignored."""
    named = set(filter(None, world.node.annotations.get(keys.UNHEALTHY, "").replace(" ", "").split(",")))
    found = parts(world)
    gpus = {part.gpu for id_, part in found.items() if id_.startswith("GPU-") and id_ in named}
    gpus |= {int(name) for name in named if name.isdecimal()} | faults.sick(world.node, pod)
    return frozenset(id_ for id_, part in found.items() if id_ in named or part.gpu in gpus)


def _noted(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))

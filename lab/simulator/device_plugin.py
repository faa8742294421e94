"""The device plugin: which devices a node offers, by resource name.

The MIG strategy comes from the environment first and from the configuration second, as NVIDIA's plugin reads
it: an operator with ``mig.strategy`` set overrides ``flags.migStrategy`` of every configuration.
"""

from __future__ import annotations

import uuid
from typing import Any

from lab.simulator import driver, keys
from lab.simulator.objects import Pod
from lab.simulator.world import Broken, Config, World

Devices = dict[str, list[str]]
NO_DRIVER = "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND: no driver on this node"
_NAMESPACE = uuid.UUID("5b0f3a52-2f1e-4b7c-9a53-0c1d6c1f7f10")


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


def select(label: str, default: str, names: list[str]) -> str | Broken:
    """The ConfigMap key that the config manager selects for the node; "" is an empty configuration."""
    if not names:
        return Broken("no configuration files available", manager=True)
    wanted = label or default
    if wanted and wanted not in names:
        return Broken(f"specified config {wanted} does not exist", manager=True)
    return wanted

"""Which configuration each operand pod of a node has read, or would read now."""

from __future__ import annotations

import json

from lab.simulator import device_plugin, dra, keys
from lab.simulator.dcgm import operand as dcgm
from lab.simulator.nvidia_config import DEVICE_PLUGIN, MIG_PARTED, NvidiaConfig
from lab.simulator.objects import Node, Pod
from lab.simulator.operands import CONFIGURED
from lab.simulator.world import Broken, Config

ConfigMaps = dict[tuple[str, str], dict[str, str]]
EMPTY = "version: v1\n"
MIG_FILE = "config.yaml"


async def resolve(
    node: Node, pods: list[Pod], maps: ConfigMaps, helper: NvidiaConfig
) -> dict[str, Config | Broken]:
    """Configurations by pod uid, for the pods that read one. Raises HelperError."""
    found: dict[str, Config | Broken] = {}
    for pod in pods:
        if pod.operand in CONFIGURED:
            found[pod.uid] = await _plugin(node, pod, maps, helper)
        elif pod.operand == "mig-manager":
            found[pod.uid] = await _mig(pod, maps, helper)
        elif pod.operand == dra.OPERAND:
            found[pod.uid] = dra.discovered(node, pod)
        elif pod.operand == dcgm.OPERAND and (broken := dcgm.wrong(pod, maps)):
            found[pod.uid] = broken
    return found


async def _plugin(node: Node, pod: Pod, maps: ConfigMaps, helper: NvidiaConfig) -> Config | Broken:
    label = node.labels.get(keys.PLUGIN_CONFIG, "")
    mounted = (pod.namespace, pod.template.config_map) in maps
    if pod.loaded:
        # The pod reads again only when the label changes: an edited or deleted ConfigMap goes unnoticed.
        kept = json.loads(pod.loaded)
        if kept["label"] == label or not mounted:
            return Config(kept["label"], kept["strategy"], kept["config"])
    if not pod.template.config_map:
        return await helper.read(DEVICE_PLUGIN, EMPTY, "")
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        return _unmounted(pod)
    key = device_plugin.select(label, pod.template.value("DEFAULT_CONFIG"), sorted(data))
    if isinstance(key, Broken):
        return key
    return await helper.read(DEVICE_PLUGIN, data[key] if key else EMPTY, label)


async def _mig(pod: Pod, maps: ConfigMaps, helper: NvidiaConfig) -> Config | Broken:
    if not pod.template.config_map:
        return Config("")  # the MIG manager generates one from the hardware
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        return _unmounted(pod)
    if MIG_FILE not in data:
        return Broken(f"open /mig-parted-config/{MIG_FILE}: no such file or directory")
    return await helper.read(MIG_PARTED, data[MIG_FILE], "")


def _unmounted(pod: Pod) -> Broken:
    name = pod.template.config_map
    return Broken(f'MountVolume.SetUp failed for volume "{name}" : configmap "{name}" not found', mount=True)

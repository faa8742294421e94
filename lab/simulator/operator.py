"""The GPU operator: labels that decide which operands run on a node."""

from __future__ import annotations

from lab.simulator import gfd, keys
from lab.simulator.actions import Action
from lab.simulator.nfd import difference
from lab.simulator.world import World

COMPONENTS = (
    "container-toolkit",
    "dcgm",
    "dcgm-exporter",
    "device-plugin",
    "driver",
    "gpu-feature-discovery",
    "node-status-exporter",
    "operator-validator",
)
PLUGIN_CHART = "nvidia-device-plugin-"
"""Name prefix of the other DaemonSets in the device plugin's own chart."""
DEFAULT_LAYOUT = "all-disabled"
MIG_DEFAULT = "MIG_MANAGER_DEFAULT_CONFIG"
"""Environment variable of the operator: MIG layout of MIG-capable nodes without the label."""


def act(world: World) -> list[Action]:
    """The operator's labels; values set by others (``paused-for-mig-change``, ``false``) are kept."""
    labels = world.node.labels
    ours = {key for key in labels if key.startswith(keys.DEPLOY)} - {keys.DEPLOY_OPERANDS} | {keys.PRESENT}
    if not world.cluster.operator_installed:
        own = {key for key in ours if labels.get(key) != "false"}  # the operator never sets "false"
        # Without an operator the device plugin's chart may install GFD, with the chart's name prefix.
        alone = any(pod.owner[1].startswith(PLUGIN_CHART) for pod in world.of("gfd"))
        found = set() if alone else gfd.owned(labels)
        return difference("gpu-operator", world, {}, own | found | {keys.MIG_STATE})
    if not world.cluster.operator_running:
        return []
    if labels.get(keys.PCI_PRESENT) != "true":
        return difference("gpu-operator", world, {}, ours)
    desired = {keys.PRESENT: "true"}
    if labels.get(keys.DEPLOY_OPERANDS) != "false":
        wanted = {f"{keys.DEPLOY}{component}": "true" for component in COMPONENTS}
        if labels.get(f"{keys.DEPLOY}device-plugin") == "false":
            # The real validator would wait for ever; our Helm release waits for its DaemonSets.
            del wanted[f"{keys.DEPLOY}operator-validator"]
        if labels.get(keys.MIG_CAPABLE) == "true":
            wanted[f"{keys.DEPLOY}mig-manager"] = "true"
            if world.cluster.mig_default == DEFAULT_LAYOUT:
                wanted[keys.MIG_CONFIG] = DEFAULT_LAYOUT
        desired |= {key: labels.get(key) or value for key, value in wanted.items()}
    return difference("gpu-operator", world, desired, ours)

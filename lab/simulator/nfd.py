"""Node feature discovery: the worker sees the PCI bus, the master writes the label."""

from __future__ import annotations

from lab.simulator import keys
from lab.simulator.actions import Action, NodeMeta
from lab.simulator.world import World

OS_RELEASE = {
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
}


def act(world: World) -> list[Action]:
    """The node's feature labels; removed when NFD is uninstalled, kept while its pods are down."""
    desired = dict(OS_RELEASE)
    if keys.GPU_ID in world.node.annotations:
        desired[keys.PCI_PRESENT] = "true"
    if not world.cluster.nfd_installed:
        if not OS_RELEASE.keys() & world.node.labels.keys():
            return []  # NFD never ran here: the labels are the node's own
        desired = {}
    elif not (world.cluster.nfd_running and world.running("nfd-worker")):
        return []
    return difference("nfd", world, desired, {*OS_RELEASE, keys.PCI_PRESENT})


def difference(by: str, world: World, desired: dict[str, str], owned: set[str]) -> list[Action]:
    """Changes from the node's labels to ``desired``; owned labels that are not desired are removed."""
    labels = world.node.labels
    changes: dict[str, str | None] = {k: v for k, v in desired.items() if labels.get(k) != v}
    changes.update(dict.fromkeys(sorted((owned & labels.keys()) - desired.keys())))
    return [NodeMeta(by, changes)] if changes else []

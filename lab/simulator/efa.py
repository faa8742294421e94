"""AWS's EFA device plugin: a node's Elastic Fabric Adapters, as ``vpc.amazonaws.com/efa``.

A node has as many as it was launched with, and offers them while the plugin runs.
"""

from __future__ import annotations

from lab.simulator import keys
from lab.simulator.world import World

OPERAND = "efa-device-plugin"


def offered(world: World) -> dict[str, list[str]]:
    """Devices registered with the kubelet now, by resource; empty without adapters or plugin."""
    attached = int(world.node.annotations.get(keys.EFA_ATTACHED, "0"))
    if not attached or world.running(OPERAND) is None:
        return {}
    return {keys.EFA: [f"efa-{index}" for index in range(attached)]}

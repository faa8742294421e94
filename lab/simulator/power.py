"""A node that reboots: away for some seconds, then back with its GPUs as a boot leaves them.

The annotation ``keys.DOWN_UNTIL`` says until when it is away; everything else follows from it, so that the
simulator can be killed at any point. Sources: the kubelet (its Event ``Rebooted``); NVIDIA's MIG user guide
(a boot removes all instances; MIG mode stays on Ampere, and is off on later GPUs).
"""

from __future__ import annotations

import time

from lab.simulator import keys
from lab.simulator.actions import Action, Event, Later, NodeMeta, PowerOff, PowerOn
from lab.simulator.world import Layout, World, stored_layout

SECONDS = 5.0
"""How long a node is away by default; a machine with eight GPUs takes minutes."""
HOPPER = (9, 0)
"""Compute capability from which MIG mode needs no reset, and is off after a boot."""


def reboot(
    world: World, by: str, labels: dict[str, str | None], annotations: dict[str, str | None]
) -> list[Action]:
    """Set labels and annotations, and turn the node off."""
    away = float(world.node.annotations.get(keys.REBOOT_SECONDS, SECONDS))
    boots = int(world.node.annotations.get(keys.BOOTS, "0")) + 1
    down = {keys.DOWN_UNTIL: f"{time.time() + away:.3f}", keys.BOOTS: str(boots)}
    return [NodeMeta(by, labels, {**annotations, **down}), PowerOff()]


def down(world: World) -> bool:
    """Whether the node is away: nothing runs there."""
    return keys.DOWN_UNTIL in world.node.annotations


def act(world: World) -> list[Action]:
    """Turn a node on when its time is over."""
    if time.time() < float(world.node.annotations[keys.DOWN_UNTIL]):
        return [Later()]
    said = f"Node {world.node.name} has been rebooted, boot id: {world.node.annotations.get(keys.BOOTS, '')}"
    annotations: dict[str, str | None] = {
        keys.DOWN_UNTIL: None,
        keys.MIG_PENDING: None,
        keys.MIG_LAYOUT: stored_layout(booted(world)),
        keys.MIG_DONE: None,  # a MIG manager that starts reads the label again
    }
    return [PowerOn(), NodeMeta("boot", {}, annotations), Event(None, "Rebooted", said, "kubelet")]


def booted(world: World) -> Layout:
    """The GPUs' MIG state after a boot: the mode that was on or pending, and no instance."""
    if world.gpu is None or world.gpu.compute >= HOPPER:
        return {}
    pending = world.node.annotations.get(keys.MIG_PENDING, "").split(",")
    return {index: () for index in set(world.layout) ^ {int(index) for index in pending if index}}

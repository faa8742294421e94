"""A node that reboots: away for some seconds, then back with its GPUs as a boot leaves them.

The annotation ``keys.DOWN_UNTIL`` says until when it is away; everything else follows from it, so that the
simulator can be killed at any point. Sources: the kubelet (its Event ``Rebooted``); NVIDIA's MIG user guide
(a boot removes all instances; MIG mode stays on Ampere, and is off on later GPUs).

``off`` and ``on`` change the node and all its pods, not only those that the simulator watches. Sources: the
node lifecycle controller (a node with a silent kubelet has Ready Unknown, its pods are not ready); the
kubelet (containers start again; a pod that had devices is rejected, because no plugin has registered when it
is admitted again). Not simulated: a pod that is deleted while its node is away waits for the kubelet; here it
goes at once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import httpx

from lab.simulator import keys, pod_status
from lab.simulator.actions import Action, Event, Later, NodeMeta, Power
from lab.simulator.api import STRATEGIC, Api
from lab.simulator.kubelet import NONE_HEALTHY, UNEXPECTED
from lab.simulator.objects import Node
from lab.simulator.world import Layout, World, render_layout

Json = dict[str, Any]
_SILENT = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
_UNSTARTED = {"phase": "Pending", "podIP": None, "podIPs": None, "containerStatuses": None}
"""kwok starts pods without an address."""
SECONDS = 5.0  # How long a node is away by default; a machine with eight GPUs takes minutes
HOPPER = (9, 0)  # Compute capability from which MIG mode needs no reset, and is off after a boot


def reboot(
    world: World, component: str, labels: dict[str, str | None], annotations: dict[str, str | None]
) -> list[Action]:
    """Set labels and annotations, and turn the node off."""
    seconds = float(world.node.annotations.get(keys.REBOOT_SECONDS, SECONDS))
    boots = int(world.node.annotations.get(keys.BOOTS, "0")) + 1
    down = {keys.DOWN_UNTIL: f"{time.time() + seconds:.3f}", keys.BOOTS: str(boots)}
    return [NodeMeta(component, labels, {**annotations, **down}), Power(on=False)]


def is_down(world: World) -> bool:
    """Whether the node is away: nothing runs there."""
    return keys.DOWN_UNTIL in world.node.annotations


def act(world: World) -> list[Action]:
    """Turn a node on when its time is over."""
    if time.time() < float(world.node.annotations[keys.DOWN_UNTIL]):
        return [Later()]
    boot = world.node.annotations.get(keys.BOOTS, "")
    message = f"Node {world.node.name} has been rebooted, boot id: {boot}"
    annotations: dict[str, str | None] = {
        keys.DOWN_UNTIL: None,
        keys.MIG_PENDING: None,
        keys.MIG_LAYOUT: render_layout(layout_after_boot(world)),
        keys.MIG_DONE: None,  # a MIG manager that starts reads the label again
    }
    return [Power(on=True), NodeMeta("boot", {}, annotations), Event(None, "Rebooted", message, "kubelet")]


def layout_after_boot(world: World) -> Layout:
    """The GPUs' MIG state after a boot: the mode that was on or pending, and no instance."""
    if world.gpu is None or world.gpu.compute >= HOPPER:
        return {}
    pending = world.node.annotations.get(keys.MIG_PENDING, "").split(",")
    return {index: () for index in set(world.layout) ^ {int(index) for index in pending if index}}


async def power_off(api: Api, node: Node) -> list[Json]:
    """The node's Ready is unknown, and its pods are not ready; returns those."""
    pods = [await _patch(api, pod, pod_status.conditions(False), {}) async for pod in _pods(api, node)]
    silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": pod_status.timestamp(), **_SILENT}
    await api.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"conditions": [silent]}}, STRATEGIC)
    return [pod for pod in pods if pod]


async def power_on(api: Api, node: Node) -> list[Json]:
    """Start the node's pods again; returns the changed ones."""
    pods = [await _patch(api, pod, *_status_after_boot(pod)) async for pod in _pods(api, node)]
    return [pod for pod in pods if pod]


def _status_after_boot(pod: Json) -> tuple[Json, Json]:
    """Status and annotations: operands wait for their turn, pods that had devices fail, others run."""
    annotations = pod["metadata"].get("annotations") or {}
    if keys.START in annotations:
        reset = {keys.START: "waits", keys.LOADED: None, keys.UNHEALTHY: None}
        return {**pod_status.conditions(False), **_UNSTARTED}, reset
    if devices := annotations.get(keys.DEVICES):
        message = f"Pod was rejected: {NONE_HEALTHY.format(devices)}"
        return {"phase": "Failed", "reason": UNEXPECTED, "message": message}, {}
    return (pod_status.conditions(True) if pod["status"].get("podIP") else {}), {}


async def _pods(api: Api, node: Node) -> AsyncIterator[Json]:
    """Pods of the node that have not ended."""
    async for items, _ in api.pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node.name}"}):
        for pod in items:
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                yield pod


async def _patch(api: Api, pod: Json, status: Json, annotations: Json) -> Json | None:
    """Patch a pod; None if there was nothing to do, or if it was deleted or replaced meanwhile."""
    meta, patched = pod["metadata"], None
    identity, path = {"uid": meta["uid"]}, f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    try:
        if annotations:
            await api.patch(path, {"metadata": {**identity, "annotations": annotations}})
        if status:
            patched = await api.patch(f"{path}/status", {"metadata": identity, "status": status}, STRATEGIC)
    except httpx.HTTPStatusError as error:
        if error.response.status_code not in (404, 409):
            raise
    return patched

"""A reboot as the API shows it: the node and its pods while the kubelet is silent, and afterwards.

All pods of the node are read, not only those that the simulator watches. Sources: the node lifecycle
controller (a node with a silent kubelet has Ready Unknown, its pods are not ready); the kubelet (containers
start again; a pod that had devices is rejected, because no plugin has registered when it is admitted again).
Not simulated: a pod that is deleted while its node is away waits for the kubelet; here it goes at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx

from lab.simulator import keys
from lab.simulator.api import STRATEGIC, Api
from lab.simulator.kubelet import NONE_HEALTHY, UNEXPECTED
from lab.simulator.objects import Node

Json = dict[str, Any]
_SILENT = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
_UNSTARTED = {"phase": "Pending", "podIP": None, "podIPs": None, "containerStatuses": None}
"""kwok starts pods without an address."""


async def off(api: Api, node: Node) -> None:
    """The node's Ready is unknown, and its pods are not ready."""
    async for pod in _pods(api, node):
        await _patch(api, pod, _conditions("False"), {})
    silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": _now(), **_SILENT}
    await api.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"conditions": [silent]}}, STRATEGIC)


async def on(api: Api, node: Node) -> list[Json]:
    """Start the node's pods again; returns the changed ones."""
    found = [await _patch(api, pod, *_started(pod)) async for pod in _pods(api, node)]
    return [pod for pod in found if pod]


def _started(pod: Json) -> tuple[Json, Json]:
    """Status and annotations: operands wait for their turn, pods that had devices fail, others run."""
    notes = pod["metadata"].get("annotations") or {}
    if keys.START in notes:
        again = {keys.START: "waits", keys.LOADED: None, keys.UNHEALTHY: None}
        return {**_conditions("False"), **_UNSTARTED}, again
    if held := notes.get(keys.DEVICES):
        why = f"Pod was rejected: {NONE_HEALTHY.format(held)}"
        return {"phase": "Failed", "reason": UNEXPECTED, "message": why}, {}
    return (_conditions("True") if pod["status"].get("podIP") else {}), {}


async def _pods(api: Api, node: Node) -> AsyncIterator[Json]:
    """Pods of the node that have not ended."""
    async for items, _ in api.pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node.name}"}):
        for pod in items:
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                yield pod


async def _patch(api: Api, pod: Json, status: Json, annotations: Json) -> Json | None:
    """Patch a pod; None if there was nothing to do, or if it was deleted or replaced meanwhile."""
    meta, found = pod["metadata"], None
    own, path = {"uid": meta["uid"]}, f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
    try:
        if annotations:
            await api.patch(path, {"metadata": {**own, "annotations": annotations}})
        if status:
            found = await api.patch(f"{path}/status", {"metadata": own, "status": status}, STRATEGIC)
    except httpx.HTTPStatusError as error:
        if error.response.status_code not in (404, 409):
            raise
    return found


def _conditions(state: str) -> Json:
    kinds = ("Ready", "ContainersReady")
    return {"conditions": [{"type": kind, "status": state, "lastTransitionTime": _now()} for kind in kinds]}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

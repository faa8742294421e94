"""``gpuform:nodes:GpuOperatorRemoval``: removes what NVIDIA's GPU operator leaves on the nodes.

Keys and states: v26.7.0, controllers/state_manager.go, controllers/nodelabeling_controller.go and
k8s-operator-libs, pkg/upgrade/consts.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpuform.kubernetes.client import ApiError
from gpuform.provider.guards.guard import Guard
from gpuform.provider.handler import Call, CheckResult, Properties
from gpuform.provider.nodes.cluster import Cluster, Manifest, labels, managed_labels
from gpuform.provider.nodes.inputs import check_inputs
from gpuform.provider.nodes.layout import DISABLED
from infra.model.base.labels import DRIVER_UPGRADE_STATE, GPU_PRESENT, MIG_CONFIG, MIG_CONFIG_STATE
from infra.plan.sharing import NAMESPACE

INPUTS = ("kubeconfig", "context")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WRITERS = {"labelSelector": "app in (gpu-operator,nvidia-driver-daemonset,nvidia-mig-manager)"}
"""Pods that write these labels; those of the driver do while k8s-driver-manager pauses the operands."""
STOP_TIMEOUT_S = 120
"""Longest wait for their end; a pod on a node that does not answer never ends."""
_DEPLOY = "nvidia.com/gpu.deploy."
_OPERANDS = f"{_DEPLOY}operands"
_PAUSED = "paused-for-"
_UPGRADE = "nvidia.com/gpu-driver-upgrade"
_CORDONED_BEFORE = f"{_UPGRADE}.node-initial-state.unschedulable"
_NOT_CORDONED = ("", "upgrade-required", "upgrade-done")
_POLL_S = 0.5


class GpuOperatorRemoval(Guard):
    """Created before the operator's release and deleted after it; a create and an update change nothing.

    Deleting it removes the operator's labels and annotations from all nodes, and uncordons nodes that the
    operator has cordoned for a driver upgrade. The labels of discovery are removed by NFD's own hook.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": "labels of NVIDIA's GPU operator"}

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs(news, INPUTS, iter(()))

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        cluster, uncordoned = self._clusters(old_inputs), list[str]()
        deadline = time.monotonic() + (call.timeout or STOP_TIMEOUT_S)
        while (await cluster.client.get(PODS, WRITERS))["items"] and time.monotonic() < deadline:
            await call.sleep(_POLL_S)
        for node in await cluster.nodes(""):
            name, body = node["metadata"]["name"], _removal(node)
            if body and await _is_patched(cluster, name, body) and "spec" in body:
                uncordoned.append(f"{name} ({labels(node)[DRIVER_UPGRADE_STATE]})")
        if uncordoned:
            await call.info(
                f"uncordoned, as the operator that upgraded the driver is gone: {', '.join(uncordoned)}"
            )


async def _is_patched(cluster: Cluster, name: str, body: Manifest) -> bool:
    """Whether the node still exists."""
    try:
        await cluster.patch(name, body)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


def _removal(node: Manifest) -> dict[str, Any]:
    """The patch of a node; empty if there is nothing to remove.

    A value that only users set stays, as ``false`` of ``gpu.deploy.device-plugin``, and so does a label that
    is applied, as those of the pools: the operator does not use server-side apply.
    """
    live, annotations = labels(node), node["metadata"].get("annotations") or {}
    own = {key for key, value in live.items() if _is_own(key, value)} - managed_labels(node).keys()
    ended = {key for key in annotations if key.startswith(_UPGRADE)}
    body: dict[str, Any] = {}
    if own or ended:
        body["metadata"] = {"labels": dict.fromkeys(own), "annotations": dict.fromkeys(ended)}
    is_upgraded = live.get(DRIVER_UPGRADE_STATE, "") not in _NOT_CORDONED
    if is_upgraded and node["spec"].get("unschedulable") and _CORDONED_BEFORE not in annotations:
        body["spec"] = {"unschedulable": None}
    return body


def _is_own(key: str, value: str) -> bool:
    if key.startswith(_DEPLOY) and key != _OPERANDS:
        return value in ("", "true") or _PAUSED in value
    # The operator's default of a layout, which it sets again when a layout's label is removed.
    default = key == MIG_CONFIG and value == DISABLED
    return default or key in (GPU_PRESENT, MIG_CONFIG_STATE, DRIVER_UPGRADE_STATE)

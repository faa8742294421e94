"""``gpuform:nodes:GpuOperatorRemoval``: removes what NVIDIA's GPU operator leaves on the nodes.

Keys and states: v26.7.0, controllers/state_manager.go, controllers/nodelabeling_controller.go and
k8s-operator-libs, pkg/upgrade/consts.go.
"""

from __future__ import annotations

from typing import Any

from gpuform.provider.guards.removal import Removal, change, wait_while
from gpuform.provider.handler import Call, Properties
from gpuform.provider.nodes.cluster import Manifest, labels, managed_labels
from gpuform.provider.nodes.layout import DISABLED
from infra.model.base.labels import DRIVER_UPGRADE_STATE, GPU_PRESENT, MIG_CONFIG, MIG_CONFIG_STATE
from infra.plan.sharing import NAMESPACE

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WRITERS = {"labelSelector": "app in (gpu-operator,nvidia-driver-daemonset,nvidia-mig-manager)"}
"""Pods that write these labels; those of the driver do while k8s-driver-manager pauses the operands."""
_DEPLOY = "nvidia.com/gpu.deploy."
_OPERANDS = f"{_DEPLOY}operands"
_PAUSED = "paused-for-"
_UPGRADE = "nvidia.com/gpu-driver-upgrade"
_CORDONED_BEFORE = f"{_UPGRADE}.node-initial-state.unschedulable"
_NOT_CORDONED = ("", "upgrade-required", "upgrade-done")


class GpuOperatorRemoval(Removal):
    """Created before the operator's release and deleted after it.

    Deleting it removes the operator's labels and annotations from all nodes, and uncordons nodes that the
    operator has cordoned for a driver upgrade. The labels of discovery are removed by NFD's own hook.
    """

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": "labels of NVIDIA's GPU operator"}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        cluster, uncordoned = self._clusters(old_inputs), list[str]()

        async def writers() -> list[Manifest]:
            return list((await cluster.client.get(PODS, WRITERS))["items"])

        await wait_while(call, writers)  # a pod on a node that does not answer never ends
        for node in await cluster.nodes(""):
            name, body = node["metadata"]["name"], _removal(node)
            path = f"/api/v1/nodes/{name}"
            if body and await change(cluster.client, "PATCH", path, body) and "spec" in body:
                uncordoned.append(f"{name} ({labels(node)[DRIVER_UPGRADE_STATE]})")
        if uncordoned:
            await call.info(
                f"uncordoned, as the operator that upgraded the driver is gone: {', '.join(uncordoned)}"
            )


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

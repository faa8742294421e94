"""``gpuform:workloads:ScalingRemoval``: number of pods of a Deployment after its autoscaler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Client
from gpuform.provider.guards.guard import Guard
from gpuform.provider.handler import Call, CheckResult, Properties
from gpuform.provider.nodes.cluster import MERGE, Cluster
from gpuform.provider.nodes.inputs import check_inputs
from infra.model.base import labels

INPUTS = ("kubeconfig", "context", "namespace", "name")
TIMEOUT_S = 120
"""Longest wait for the end of the autoscaler, which the garbage collector deletes after its ScaledObject."""
_POLL_S = 0.5


class ScalingRemoval(Guard):
    """Created before a ScaledObject and deleted after it; both, and the Deployment, have one name.

    An update that removes ``scale`` applies the declared number of pods first and deletes the ScaledObject
    last. In between, KEDA's HorizontalPodAutoscaler sets its own number again (every 15 s: kube-controller-
    manager, --horizontal-pod-autoscaler-sync-period), and KEDA does not restore it [kedacore/keda,
    scaledobject_finalizer.go]. So the deletion of this resource sets the number in the Deployment's
    annotation once the autoscaler is gone. Without the annotation the Deployment is deleted next.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    def outputs(self, inputs: Properties) -> Properties:
        return {"deployment": f"{inputs.get('namespace')}/{inputs.get('name')}"}

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs(news, INPUTS, iter(()))

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Raises OperationError if the autoscaler stays."""
        client = self._clusters(old_inputs).client
        namespace, name = old_inputs["namespace"], old_inputs["name"]
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        deployment = await client.find(path) or {}
        declared = (deployment.get("metadata", {}).get("annotations") or {}).get(labels.FULL)
        if declared:
            await _wait_until_unscaled(call, client, namespace, name)
            body = {"spec": {"replicas": int(declared)}}
            await client.request("PATCH", f"{path}/scale", body=body, content_type=MERGE)


async def _wait_until_unscaled(call: Call, client: Client, namespace: str, name: str) -> None:
    deadline = time.monotonic() + (call.timeout or TIMEOUT_S)
    while autoscaler := await _autoscaler(client, namespace, name):
        if time.monotonic() > deadline:
            fact = f"HorizontalPodAutoscaler {namespace}/{autoscaler} of ScaledObject {name} is still there"
            remedy = f"see `kubectl describe hpa -n {namespace} {autoscaler}`, and run the same command again"
            raise OperationError(f"{fact}; {remedy}")
        await call.sleep(_POLL_S)


async def _autoscaler(client: Client, namespace: str, name: str) -> str | None:
    """Name of the autoscaler that KEDA made for the ScaledObject."""
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    for item in (await client.get(path)).get("items") or ():
        owners: list[dict[str, Any]] = item["metadata"].get("ownerReferences") or []
        if any((owner["kind"], owner["name"]) == ("ScaledObject", name) for owner in owners):
            return str(item["metadata"]["name"])
    return None

"""``gpuform:workloads:ScalingRemoval``: number of pods of a Deployment after its autoscaler."""

from __future__ import annotations

from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Client
from gpuform.provider.guards.removal import Removal, wait_while
from gpuform.provider.handler import Call, Properties
from gpuform.provider.nodes.cluster import MERGE
from infra.model.base import labels


class ScalingRemoval(Removal):
    """Created before a ScaledObject and deleted after it; both, and the Deployment, have one name.

    An update that removes ``scale`` applies the declared number of pods first and deletes the ScaledObject
    last. In between, KEDA's HorizontalPodAutoscaler sets its own number again (every 15 s: kube-controller-
    manager, --horizontal-pod-autoscaler-sync-period), and KEDA does not restore it [kedacore/keda,
    scaledobject_finalizer.go]. So the deletion of this resource sets the number in the Deployment's
    annotation once the autoscaler is gone. Without the annotation the Deployment is deleted next.
    """

    INPUTS = (*Removal.INPUTS, "namespace", "name")

    def outputs(self, inputs: Properties) -> Properties:
        return {"deployment": f"{inputs.get('namespace')}/{inputs.get('name')}"}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Raises OperationError if the autoscaler stays."""
        client = self._clusters(old_inputs).client
        namespace, name = old_inputs["namespace"], old_inputs["name"]
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        deployment = await client.find(path) or {}
        declared = (deployment.get("metadata", {}).get("annotations") or {}).get(labels.FULL)
        if declared:
            if autoscaler := await wait_while(call, lambda: _autoscaler(client, namespace, name)):
                fact = (
                    f"HorizontalPodAutoscaler {namespace}/{autoscaler} of ScaledObject {name} is still there"
                )
                command = f"kubectl describe hpa -n {namespace} {autoscaler}"
                raise OperationError(f"{fact}; see `{command}`, and run the same command again")
            body = {"spec": {"replicas": int(declared)}}
            await client.request("PATCH", f"{path}/scale", body=body, content_type=MERGE)


async def _autoscaler(client: Client, namespace: str, name: str) -> str | None:
    """Name of the autoscaler that KEDA made for the ScaledObject."""
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    for item in (await client.get(path)).get("items") or ():
        owners: list[dict[str, Any]] = item["metadata"].get("ownerReferences") or []
        if any((owner["kind"], owner["name"]) == ("ScaledObject", name) for owner in owners):
            return str(item["metadata"]["name"])
    return None

"""``gpuform:queues:KueueRemoval``: prepares Kueue's release for its removal by Helm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Client
from gpuform.provider.guards.removal import Removal, change, wait_while
from gpuform.provider.handler import Call, CheckResult, Properties
from infra.model.base.guard_names import KUEUE_API, KUEUE_RELEASE
from infra.model.base.namespaces import KUEUE

MANAGER = f"{KUEUE_RELEASE}-controller-manager"
MANAGER_PODS = {"labelSelector": "app.kubernetes.io/name=kueue,control-plane=controller-manager"}
_DEPLOYMENT = f"/apis/apps/v1/namespaces/{KUEUE}/deployments/{MANAGER}"
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = (
    f"{_REGISTRATION}/mutatingwebhookconfigurations/{KUEUE_RELEASE}-mutating-webhook-configuration",
    f"{_REGISTRATION}/validatingwebhookconfigurations/{KUEUE_RELEASE}-validating-webhook-configuration",
)
_CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLES = (
    f"{_CLUSTER_ROLES}/{KUEUE_RELEASE}-batch-admin-role",
    f"{_CLUSTER_ROLES}/{KUEUE_RELEASE}-batch-user-role",
)
"""The chart's aggregated ClusterRoles; all names are those of Kueue's chart."""
IN_USE = "kueue.x-k8s.io/resource-in-use"
"""Finalizer of Kueue's objects (apis/kueue/v1beta2/constants.go)."""
MANAGED = "kueue.x-k8s.io/managed"
"""Label and finalizer of pods that were queued themselves (pkg/controller/jobs/pod/constants)."""
FINALIZED_KINDS = ("workloads", "clusterqueues", "resourceflavors", "topologies", "admissionchecks")
"""Kinds with the finalizer."""


class KueueRemoval(Removal):
    """Created after everything of Kueue and deleted before it.

    Deleting it stops Kueue's controller, which would end a job when its Workload disappears, and deletes its
    webhooks. Then it takes the finalizers off, as nothing else would after the release, and the rule off the
    aggregated ClusterRoles: clusterrole-aggregation-controller applies a role again if its parts are deleted
    at the same time, and Helm would wait for its end in vain.
    What runs goes on; what waits stays suspended.
    """

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": f"Kueue in {KUEUE}"}

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        """Refuse to go on with a Kueue that an interrupted removal has stopped: Helm would see no change."""
        inputs = await super().check(call, olds, news)
        try:
            deployment = await self._clusters(news).client.find(_DEPLOYMENT)
        except OperationError:  # a cluster that does not exist yet, or does not answer
            return inputs
        if deployment is None or deployment["spec"].get("replicas", 1):
            return inputs
        fact = f"queues: Deployment {KUEUE}/{MANAGER} has no replicas, as after an interrupted removal"
        remedy = "remove `queues:` in one update, and declare it again in the next"
        return CheckResult(inputs.inputs, [("", f"{fact}; {remedy}")])

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Raises OperationError if the controller does not stop."""
        client = self._clusters(old_inputs).client
        await change(client, "PATCH", _DEPLOYMENT, {"spec": {"replicas": 0}})
        if await wait_while(call, lambda: _list(client, f"/api/v1/namespaces/{KUEUE}/pods", MANAGER_PODS)):
            remedy = f"see `kubectl describe pods -n {KUEUE}`, and run the same command again"
            raise OperationError(f"Deployment {KUEUE}/{MANAGER}: its pods do not end; {remedy}")
        for path in WEBHOOKS:  # nothing answers them, and they would refuse the changes below
            await change(client, "DELETE", path)
        for plural in FINALIZED_KINDS:
            await _remove_finalizer(client, f"/apis/{KUEUE_API}", plural, IN_USE)
        await _remove_finalizer(client, "/api/v1", "pods", MANAGED, {"labelSelector": f"{MANAGED}=true"})
        for path in ROLES:
            await change(client, "PATCH", path, {"aggregationRule": None})


async def _list(client: Client, path: str, params: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Empty if the kind does not exist (any more)."""
    try:
        return list((await client.get(path, params)).get("items") or ())
    except ApiError as error:
        if error.code != 404:
            raise
        return []


async def _remove_finalizer(
    client: Client, api: str, plural: str, finalizer: str, params: Mapping[str, str] | None = None
) -> None:
    """Take the finalizer off, and the label off pods that run: the next Kueue would delete these."""
    for item in await _list(client, f"{api}/{plural}", params):
        metadata = item["metadata"]
        finalizers = metadata.get("finalizers") or ()
        body: dict[str, Any] = {
            "finalizers": [name for name in finalizers if name != finalizer],
            "uid": metadata["uid"],
        }
        if finalizer == MANAGED and not item["spec"].get("schedulingGates"):
            body["labels"] = {MANAGED: None}
        if finalizer in finalizers:
            scope = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
            await change(client, "PATCH", f"{api}{scope}/{plural}/{metadata['name']}", {"metadata": body})

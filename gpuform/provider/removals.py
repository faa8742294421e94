"""Resources that act when they are deleted: they prepare a removal, or clean up after one.

Keys and states of NVIDIA's GPU operator: v26.7.0, controllers/state_manager.go, nodelabeling_controller.go
beside it, and k8s-operator-libs, pkg/upgrade/consts.go. Names of Kueue: its chart.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Client, Unreachable
from gpuform.provider.guards.guard import Guard
from gpuform.provider.handler import Call, Change, CheckResult, DiffResult, Properties
from gpuform.provider.nodes.cluster import MERGE, Cluster, Manifest, labels, managed_labels
from gpuform.provider.nodes.inputs import check_inputs
from gpuform.provider.nodes.layout import DISABLED
from gpuform.provider.properties import reveal
from infra.model.base.guard_names import KUEUE_API, KUEUE_RELEASE
from infra.model.base.labels import (
    DEVICE_PLUGIN_CONFIG,
    DRIVER_UPGRADE_STATE,
    FULL,
    GPU_PRESENT,
    MIG_CONFIG,
    MIG_CONFIG_STATE,
    POOL,
)
from infra.model.base.namespaces import GPU_OPERATOR, KUEUE

POLL_S = 0.5
TIMEOUT_S = 120
"""Longest wait for the end of pods, or of what the garbage collector deletes."""
_WRITERS = {"labelSelector": "app in (gpu-operator,nvidia-driver-daemonset,nvidia-mig-manager)"}
"""Pods that write the operator's labels; the driver's while k8s-driver-manager pauses the operands."""
_DEPLOY = "nvidia.com/gpu.deploy."
_OPERANDS = f"{_DEPLOY}operands"
_PAUSED = "paused-for-"
_UPGRADE = "nvidia.com/gpu-driver-upgrade"
_CORDONED_BEFORE = f"{_UPGRADE}.node-initial-state.unschedulable"
_NOT_CORDONED = ("", "upgrade-required", "upgrade-done")
_MANAGER = f"{KUEUE_RELEASE}-controller-manager"
_MANAGER_PODS = {"labelSelector": "app.kubernetes.io/name=kueue,control-plane=controller-manager"}
_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
_WEBHOOKS = (
    f"{_REGISTRATION}/mutatingwebhookconfigurations/{KUEUE_RELEASE}-mutating-webhook-configuration",
    f"{_REGISTRATION}/validatingwebhookconfigurations/{KUEUE_RELEASE}-validating-webhook-configuration",
)
_ROLES = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{KUEUE_RELEASE}-batch-"
_AGGREGATED_ROLES = (f"{_ROLES}admin-role", f"{_ROLES}user-role")
_IN_USE = "kueue.x-k8s.io/resource-in-use"
"""Finalizer of Kueue's objects (apis/kueue/v1beta2/constants.go)."""
_FINALIZED_KINDS = ("workloads", "clusterqueues", "resourceflavors", "topologies", "admissionchecks")
_MANAGED = "kueue.x-k8s.io/managed"
"""Label and finalizer of pods that were queued themselves (pkg/controller/jobs/pod/constants)."""
_Found = TypeVar("_Found")


class Removal(Guard):
    """A create and an update change nothing."""

    INPUTS: ClassVar[tuple[str, ...]] = ("kubeconfig", "context")

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs(news, self.INPUTS, iter(()))


async def _wait_while(call: Call, find: Callable[[], Awaitable[_Found]]) -> _Found:
    """What ``find`` has found at the end of the wait: something false, unless the time was over."""
    deadline = time.monotonic() + (call.timeout or TIMEOUT_S)
    while (found := await find()) and time.monotonic() < deadline:
        await call.sleep(POLL_S)
    return found


async def _change(client: Client, method: str, path: str, body: Mapping[str, Any] | None = None) -> bool:
    """Whether it was changed: an object that is missing, or another one by now, is fine."""
    try:
        await client.request(method, path, body=body, content_type=MERGE)
    except ApiError as error:
        if error.code not in (404, 409):
            raise
        return False
    return True


async def _list(client: Client, path: str, params: Mapping[str, str] | None = None) -> list[Manifest]:
    """Empty if the kind does not exist (any more)."""
    try:
        return list((await client.get(path, params)).get("items") or ())
    except ApiError as error:
        if error.code != 404:
            raise
        return []


class PoolRemoval(Removal):
    """``gpuform:nodes:PoolRemoval``: prepares nodes of removed pools for the update of the device plugin.

    Created before the plugin's release. An update comes before the release, too, and the engine deletes or
    releases the nodes of removed pools at its end. In between, the release has neither their configuration of
    the device plugin nor, maybe, their driver, and their operands would restart again and again. So these
    nodes get the default configuration here. Nodes that the operator's chart for simulated nodes serves run
    no operands from here on, because that chart has the DaemonSets, for which Helm waits. ``pools``: names of
    the pools with GPUs. A pool that comes back before its simulated nodes were deleted gets its operands
    again.
    """

    INPUTS = (*Removal.INPUTS, "pools")

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        try:
            changes = await self._changes(old_inputs, news)
        except Unreachable as error:
            await call.warn(f"{error}; the nodes of removed pools were not checked")
            return DiffResult()
        return DiffResult(changes={"pools": Change.UPDATE}) if changes else DiffResult()

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        if not call.preview:
            client = self._clusters(news).client
            for name, wanted in (await self._changes(old_inputs, news)).items():
                await _change(client, "PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": wanted}})
        return self.outputs(news)

    async def _changes(self, olds: Properties, news: Properties) -> dict[str, dict[str, str | None]]:
        """Labels by node; the state of a run before there were ``pools`` has nothing to compare with."""
        if "pools" not in olds:
            return {}
        before, after = ({*map(str, reveal(inputs.get("pools")) or ())} for inputs in (olds, news))
        simulated = reveal(news.get("simulated"))
        key, off = (_OPERANDS, "false") if simulated else (DEVICE_PLUGIN_CONFIG, None)
        found: dict[str, dict[str, str | None]] = {}
        for node in await self._nodes(news, before - after):
            if labels(node).get(key) != off:
                found[node["metadata"]["name"]] = {key: off}
        for node in await self._nodes(news, after - before if simulated else ()):
            if labels(node).get(_OPERANDS) == "false":
                found[node["metadata"]["name"]] = {_OPERANDS: None}
        return found

    async def _nodes(self, inputs: Properties, pools: Collection[str]) -> Sequence[Manifest]:
        selector = f"{POOL} in ({','.join(sorted(pools))})"
        return await self._clusters(inputs).nodes(selector) if pools else ()

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": "configuration of the device plugin on nodes of removed pools"}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """The release goes, and nothing is left to prepare."""


class GpuOperatorRemoval(PoolRemoval):
    """``gpuform:nodes:GpuOperatorRemoval``: removes what NVIDIA's GPU operator leaves on the nodes.

    Created before the operator's release and deleted after it. Deleting it removes the operator's labels and
    annotations from all nodes, and uncordons nodes that the operator has cordoned for a driver upgrade. The
    labels of discovery are removed by NFD's own hook.
    """

    INPUTS = (*PoolRemoval.INPUTS, "simulated")

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": "labels of NVIDIA's GPU operator"}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        cluster, uncordoned = self._clusters(old_inputs), list[str]()
        pods = f"/api/v1/namespaces/{GPU_OPERATOR}/pods"
        await _wait_while(call, lambda: _list(cluster.client, pods, _WRITERS))  # a pod may never end
        for node in await cluster.nodes(""):
            name, body = node["metadata"]["name"], _node_patch(node)
            changed = body and await _change(cluster.client, "PATCH", f"/api/v1/nodes/{name}", body)
            if changed and "spec" in body:
                uncordoned.append(f"{name} ({labels(node)[DRIVER_UPGRADE_STATE]})")
        if uncordoned:
            await call.info(
                f"uncordoned, as the operator that upgraded the driver is gone: {', '.join(uncordoned)}"
            )


def _node_patch(node: Manifest) -> Manifest:
    """The patch of a node; empty if there is nothing to remove.

    A value that only users set stays, as ``false`` of ``gpu.deploy.device-plugin``, and so does a label that
    is applied, as those of the pools: the operator does not use server-side apply.
    """
    live, annotations = labels(node), node["metadata"].get("annotations") or {}
    own = {key for key, value in live.items() if _is_own(key, value)} - managed_labels(node).keys()
    ended = {key for key in annotations if key.startswith(_UPGRADE)}
    body: Manifest = {}
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


class KueueRemoval(Removal):
    """``gpuform:queues:KueueRemoval``: prepares Kueue's release for its removal by Helm.

    Created after everything of Kueue and deleted before it. Deleting it stops Kueue's controller, which would
    end a job when its Workload disappears, and deletes its webhooks. Then it takes the finalizers off, as
    nothing else would after the release, and the rule off the aggregated ClusterRoles:
    clusterrole-aggregation-controller applies a role again if its parts are deleted at the same time, and
    Helm would wait for its end in vain. What runs goes on; what waits stays suspended.
    """

    _DEPLOYMENT = f"/apis/apps/v1/namespaces/{KUEUE}/deployments/{_MANAGER}"

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": f"Kueue in {KUEUE}"}

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        """Refuse to go on with a Kueue that an interrupted removal has stopped: Helm would see no change."""
        inputs = await super().check(call, olds, news)
        try:
            deployment = await self._clusters(news).client.find(self._DEPLOYMENT)
        except OperationError:  # a cluster that does not exist yet, or does not answer
            return inputs
        if deployment is None or deployment["spec"].get("replicas", 1):
            return inputs
        fact = f"queues: Deployment {KUEUE}/{_MANAGER} has no replicas, as after an interrupted removal"
        remedy = "remove `queues:` in one update, and declare it again in the next"
        return CheckResult(inputs.inputs, [("", f"{fact}; {remedy}")])

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Raises OperationError if the controller does not stop."""
        client = self._clusters(old_inputs).client
        await _change(client, "PATCH", self._DEPLOYMENT, {"spec": {"replicas": 0}})
        if await _wait_while(call, lambda: _list(client, f"/api/v1/namespaces/{KUEUE}/pods", _MANAGER_PODS)):
            remedy = f"see `kubectl describe pods -n {KUEUE}`, and run the same command again"
            raise OperationError(f"Deployment {KUEUE}/{_MANAGER}: its pods do not end; {remedy}")
        for path in _WEBHOOKS:  # nothing answers them, and they would refuse the changes below
            await _change(client, "DELETE", path)
        for plural in _FINALIZED_KINDS:
            await _remove_finalizer(client, f"/apis/{KUEUE_API}", plural, _IN_USE)
        await _remove_finalizer(client, "/api/v1", "pods", _MANAGED, {"labelSelector": f"{_MANAGED}=true"})
        for path in _AGGREGATED_ROLES:
            await _change(client, "PATCH", path, {"aggregationRule": None})


async def _remove_finalizer(
    client: Client, api: str, plural: str, finalizer: str, params: Mapping[str, str] | None = None
) -> None:
    """Take the finalizer off, and the label off pods that run: the next Kueue would delete these."""
    for item in await _list(client, f"{api}/{plural}", params):
        metadata = item["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if finalizer not in finalizers:
            continue
        kept = [name for name in finalizers if name != finalizer]
        body: Manifest = {"finalizers": kept, "uid": metadata["uid"]}
        if finalizer == _MANAGED and not item["spec"].get("schedulingGates"):
            body["labels"] = {_MANAGED: None}
        scope = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
        await _change(client, "PATCH", f"{api}{scope}/{plural}/{metadata['name']}", {"metadata": body})


class ScalingRemoval(Removal):
    """``gpuform:workloads:ScalingRemoval``: number of pods of a Deployment after its autoscaler.

    Created before a ScaledObject and deleted after it; both, and the Deployment, have one name. An update
    that removes ``scale`` applies the declared number of pods first and deletes the ScaledObject last. In
    between, KEDA's HorizontalPodAutoscaler sets its own number again (every 15 s: kube-controller-manager,
    --horizontal-pod-autoscaler-sync-period), and KEDA does not restore it [kedacore/keda,
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
        declared = (deployment.get("metadata", {}).get("annotations") or {}).get(FULL)
        if not declared:
            return
        if autoscaler := await _wait_while(call, lambda: _autoscaler(client, namespace, name)):
            fact = f"HorizontalPodAutoscaler {namespace}/{autoscaler} of ScaledObject {name} is still there"
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

"""``gpuform:guards:LossGuard``: refuses changes that lose data or running pods, unless acknowledged."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.checkout.listing import abbreviate
from gpuform.kubernetes.client import Client
from gpuform.kubernetes.foreign import lost_with_namespace, queued_workloads, running_pods
from gpuform.provider.guards.guard import Guard, acknowledged_names
from gpuform.provider.guards.replacement import changes, show
from gpuform.provider.handler import Call, CheckResult, Properties
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.nodes.inputs import check_inputs
from gpuform.provider.properties import UNKNOWN, reveal
from infra.model.base.guard_names import GUARDED_GROUPS, RELEASES, REPORT, USED_CLUSTERS, VERDICTS
from infra.model.base.quantities import quantity

INPUTS = (
    *("environment", "fixed", "lost", "acknowledged"),
    *("kubeconfig", "context", "pools", "namespaces", "queues", "volumes"),
)
RECORD = "cluster"
"""The guard's own input in which its check records which cluster a kubeconfig led to."""
_KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
_DELETED = "is deleted"


@dataclass(frozen=True)
class Loss:
    """One loss; ``name`` acknowledges it."""

    kind: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.reason}"


class LossGuard(Guard):
    """Compares what the stack keeps with the last run's, in check, so that a preview fails as an update does.

    What pools, namespaces and queues hold is read from the cluster of the last run; a cluster that cannot be
    read counts as a loss.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": "pools and namespaces" if "namespaces" in inputs else "the cluster"}

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        """Refuse every loss that no name acknowledges; a new guard has nothing to compare."""
        inputs = check_inputs(news, INPUTS, iter(()))
        before, after = reveal(olds), reveal(inputs.inputs)
        if inputs.failures:
            return inputs
        in_cluster, namespaces, queues = "namespaces" in after, list[str](), list[str]()
        failures = list[str]()
        if in_cluster:
            recorded = await self._cluster_uid(before, news)
            inputs = CheckResult({**inputs.inputs, **recorded})
            replaced = bool(before.get(RECORD)) and before[RECORD] != recorded.get(RECORD)
            remaining = {} if replaced else after
            namespaces = sorted({*(before.get("namespaces") or ())} - {*(remaining.get("namespaces") or ())})
            queues = sorted({*(before.get("queues") or ())} - {*(remaining.get("queues") or ())})
        losses = (
            [loss async for loss in self._losses_in_cluster(olds, before, after, namespaces, queues)]
            if in_cluster
            else [*_cluster_losses(before, after)]
        )
        acknowledged = acknowledged_names(after)
        refused = [loss for loss in losses if loss.name not in acknowledged]
        for loss in losses:
            if loss not in refused or REPORT in acknowledged:
                await call.warn(f"{loss}; {VERDICTS[loss in refused]}")
        if in_cluster:
            used = news if replaced or not olds else olds
            if not changes(before, after):  # else the volumes are lost with the cluster
                failures += await _volume_conflicts(lambda: self._client(used), before, after)
            possible = _possible_names(before, after, [*namespaces, *queues])
            for name in sorted(set(after["acknowledged"]) - possible):
                await call.warn(f"acknowledge_loss: {name} acknowledges nothing (any more); remove it")
        if refused and REPORT not in acknowledged:
            failures.insert(0, f"{'; '.join(map(str, refused))}; {_remedy(call, refused)}")
        return CheckResult(inputs.inputs, [("", failure) for failure in failures])

    async def _losses_in_cluster(
        self,
        olds: Properties,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        namespaces: Sequence[str],
        queues: Sequence[str],
    ) -> AsyncIterator[Loss]:
        """Losses in the cluster; none if the cluster is lost itself, which its own guard judges."""
        if not before or changes(before, after):
            return
        pools = _changed_pools(before, after)
        if _cluster_kind(after) in GUARDED_GROUPS:
            pools = {name: reason for name, reason in pools.items() if reason == _DELETED}
        if not pools and not namespaces and not queues:
            return
        try:
            client = self._client(olds)
            pods = await running_pods(client, pools) if pools else {}
            objects = {
                name: await lost_with_namespace(client, name, str(before["environment"]), RELEASES)
                for name in namespaces
            }
            workloads = await queued_workloads(client, str(before["environment"])) if queues else {}
        except OperationError as error:
            unreadable = f"and what it holds is not known: the cluster cannot be read ({error})"
            for name, reason in pools.items():
                yield Loss("pool", name, f"{reason}, {unreadable}")
            for kind, names in (("namespace", namespaces), ("queue", queues)):
                for name in names:
                    yield Loss(kind, name, f"is deleted, {unreadable}")
            return
        for name, reason in pools.items():
            if pods[name]:
                yield Loss("pool", name, f"{reason}, with running pods: {abbreviate(pods[name])}")
        for name in namespaces:
            if objects[name]:
                examples = abbreviate(objects[name])
                yield Loss("namespace", name, f"is deleted, with what the stack did not create: {examples}")
        for name in queues:
            if workloads.get(name):
                reason = (
                    f"is deleted, with workloads that the stack did not create: {abbreviate(workloads[name])}"
                )
                yield Loss("queue", name, reason)

    async def _cluster_uid(self, before: Mapping[str, Any], news: Properties) -> dict[str, str]:
        """The UID of the namespace kube-system, of a cluster that the stack did not create.

        A kubeconfig may lead to another cluster, and the engine then deletes what it has created in the old
        one. While the cluster does not answer, it counts as the last run's.
        """
        if _cluster_kind(reveal(news)) not in USED_CLUSTERS:
            return {}
        recorded = {RECORD: str(before[RECORD])} if before.get(RECORD) else {}
        try:
            return {RECORD: str((await self._client(news).get(_KUBE_SYSTEM))["metadata"]["uid"])}
        except OperationError:
            return recorded

    def _client(self, inputs: Properties) -> Client:
        if reveal(inputs.get("kubeconfig")) in (None, "", UNKNOWN):
            raise OperationError("no kubeconfig of it is known")
        return self._clusters(inputs).client


def _cluster_kind(inputs: Mapping[str, Any]) -> str:
    return str(inputs["fixed"]["cluster.kind"])


def _cluster_losses(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Loss]:
    if changed := changes(before, after):
        facts = ", ".join(
            f"{path}: {show(old)} cannot become {show(new)}" for path, (old, new) in changed.items()
        )
        lost = ", ".join(("everything in its API server", "its volumes", *map(str, before.get("lost") or ())))
        yield Loss("cluster", str(before["environment"]), f"is replaced ({facts}), which loses: {lost}")


def _changed_pools(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Pools with nodes that are deleted or replaced, and why."""
    old_pools: Mapping[str, Any] = before.get("pools") or {}
    new_pools: Mapping[str, Any] = after.get("pools") or {}
    reasons = {}
    for name in sorted(old_pools):
        differences = changes({"fixed": old_pools[name]}, {"fixed": new_pools.get(name)})
        if name not in new_pools:
            reasons[name] = _DELETED
        elif differences:
            differences = {"nodes": differences["nodes"]} if "nodes" in differences else differences
            facts = ", ".join(f"{key} {show(old)} to {show(new)}" for key, (old, new) in differences.items())
            reasons[name] = f"gets other nodes ({facts})"
    return reasons


def _possible_names(before: Mapping[str, Any], after: Mapping[str, Any], removed: Sequence[str]) -> set[str]:
    """Names that acknowledge something in this change, whether or not it holds something now."""
    cluster = {str(before["environment"])} if changes(before, after) else set()
    return {*cluster, *_changed_pools(before, after), *removed}


def _remedy(call: Call, losses: Sequence[Loss]) -> str:
    stack = call.urn.split("::")[0].rpartition(":")[2]
    names = list(dict.fromkeys(loss.name for loss in losses))
    options = " ".join(f"--acknowledge {name}" for name in names)
    return (
        f"undo the change, or run 'gpuform up {stack} {options}', "
        f"or write acknowledge_loss: [{', '.join(names)}] for this change"
    )


async def _volume_conflicts(connect: Callable[[], Client], before: Any, after: Any) -> list[str]:
    """Changes of volumes since the last run that no claim follows.

    A claim grows by hand only and never shrinks (kubernetes.io/docs/concepts/storage/persistent-volumes); the
    template of a StatefulSet is for new claims (prometheus-operator.dev/docs/platform/storage). The last
    run's record counts offline and without an answer.
    """
    records, conflicts = before.get("volumes", None if before else {}), list[str]()
    for name, new in sorted((after.get("volumes") or {}).items()) if records is not None else ():
        old, note, (namespace, claim) = records.get(name), "", name.split("/")
        if old and old | {"at": new["at"]} == new:
            continue
        try:
            found = await connect().find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
            if found or not os.environ.get("GPUFORM_OFFLINE"):
                old = _read_claim(found) if found and not found["metadata"].get("deletionTimestamp") else None
        except OperationError as error:
            note = f" (as of the last update: the cluster cannot be read, {error})"
        if old and (kept := _kept(new, old)):
            how = f"delete pvc {claim} --wait=false` for a new and empty one"
            if quantity(new["size"]) > quantity(old["size"]):
                patch = json.dumps({"spec": {"resources": {"requests": {"storage": new["size"]}}}})
                how = f"patch pvc {claim} -p '{patch}'` if its class has allowVolumeExpansion, and wait"
            fact = f"{new['at']}: the volume of claim {claim} has {kept}, which no update changes{note}"
            conflicts.append(f"{fact}; write {kept}, or first run `kubectl -n {namespace} {how}")
    return conflicts


def _read_claim(claim: Any) -> dict[str, Any]:
    request = claim["spec"]["resources"]["requests"]["storage"]
    size = claim.get("status", {}).get("capacity", {}).get("storage", request)
    return {"request": request, "size": size, "storage_class": claim["spec"].get("storageClassName")}


def _kept(new: Any, old: Any) -> str:
    """What the volume keeps, although ``new`` has another value; empty if they agree."""
    size, request, storage_class = old["size"], old.get("request", old["size"]), old.get("storage_class")
    if not quantity(request) <= quantity(new["size"]) <= quantity(size):
        return str(size if quantity(new["size"]) > quantity(size) else request)
    return storage_class if storage_class and new.get("storage_class", storage_class) != storage_class else ""

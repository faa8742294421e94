"""``gpuform:guards:LossGuard``: refuses changes that lose data or running pods, unless acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.checkout.listing import some
from gpuform.kubernetes.client import Client
from gpuform.kubernetes.foreign import foreign, queued, running
from gpuform.provider.guards.guard import Guard, names
from gpuform.provider.guards.replacement import changes, said
from gpuform.provider.handler import Call, Checked, Properties
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.nodes.inputs import checked
from gpuform.provider.properties import UNKNOWN, reveal
from infra.model.base import ClusterModel
from infra.model.clusters import KINDS
from infra.model.losses import RELEASES, REPORT, VERDICTS

KNOWN = (
    *("environment", "fixed", "lost", "acknowledged"),
    *("kubeconfig", "context", "pools", "namespaces", "queues"),
)
RECORD = "cluster"
"""The guard's own input in which its check records which cluster a kubeconfig led to."""
_ANCHOR = "/api/v1/namespaces/kube-system"
_DELETED = "is deleted"


@dataclass(frozen=True)
class Loss:
    """One loss; ``name`` acknowledges it."""

    kind: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.why}"


class LossGuard(Guard):
    """Compares what the stack keeps with the last run's, in check, so that a preview fails as an update does.

    What pools, namespaces and queues hold is read from the cluster of the last run; a cluster that cannot be
    read counts as a loss.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    def outputs(self, inputs: Properties) -> Properties:
        return {"what": "pools and namespaces" if "namespaces" in inputs else "the cluster"}

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        """Refuse every loss that no name acknowledges; a new guard has nothing to compare."""
        inputs = checked(news, KNOWN, iter(()))
        before, after = reveal(olds), reveal(inputs.inputs)
        if inputs.failures:
            return inputs
        inside, gone, queues = "namespaces" in after, list[str](), list[str]()
        if inside:
            identity = await self._identity(before, news)
            inputs = Checked({**inputs.inputs, **identity})
            moved = bool(before.get(RECORD)) and before[RECORD] != identity.get(RECORD)
            stay = () if moved else after["namespaces"]
            gone = sorted(set(before.get("namespaces") or ()) - set(stay))
            queues = sorted(set(before.get("queues") or ()) - set(() if moved else after.get("queues") or ()))
        found = (
            [one async for one in self._inside(olds, before, after, gone, queues)]
            if inside
            else [*_cluster(before, after)]
        )
        accepted = names(after)
        missing = [one for one in found if one.name not in accepted]
        for one in found:
            if one not in missing or REPORT in accepted:
                await call.warn(f"{one}; {VERDICTS[one in missing]}")
        if inside:
            for name in sorted(set(after["acknowledged"]) - _at_risk(before, after, [*gone, *queues])):
                await call.warn(f"acknowledge_loss: {name} acknowledges nothing (any more); remove it")
        if not missing or REPORT in accepted:
            return inputs
        return Checked(inputs.inputs, [("", f"{'; '.join(map(str, missing))}; {_remedy(call, missing)}")])

    async def _inside(
        self,
        olds: Properties,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        spaces: Sequence[str],
        queues: Sequence[str],
    ) -> AsyncIterator[Loss]:
        """Losses in the cluster; none if the cluster is lost itself, which its own guard judges."""
        if not before or changes(before, after):
            return
        pools = _pools(before, after)
        if _cluster_type(after).guards_groups:
            pools = {name: why for name, why in pools.items() if why == _DELETED}
        if not pools and not spaces and not queues:
            return
        try:
            client = self._client(olds)
            pods = await running(client, pools) if pools else {}
            there = {
                name: await foreign(client, name, str(before["environment"]), RELEASES) for name in spaces
            }
            works = await queued(client, str(before["environment"])) if queues else {}
        except OperationError as problem:
            unread = f"and what it holds is not known: the cluster cannot be read ({problem})"
            for name, why in pools.items():
                yield Loss("pool", name, f"{why}, {unread}")
            for kind, names in (("namespace", spaces), ("queue", queues)):
                for name in names:
                    yield Loss(kind, name, f"is deleted, {unread}")
            return
        for name, why in pools.items():
            if pods[name]:
                yield Loss("pool", name, f"{why}, with running pods: {some(pods[name])}")
        for name in spaces:
            if there[name]:
                what = some(there[name])
                yield Loss("namespace", name, f"is deleted, with what the stack did not create: {what}")
        for name in queues:
            if works.get(name):
                what = some(works[name])
                yield Loss("queue", name, f"is deleted, with workloads that the stack did not create: {what}")

    async def _identity(self, before: Mapping[str, Any], news: Properties) -> dict[str, str]:
        """The UID of the namespace kube-system, of a cluster that the stack did not create.

        A kubeconfig may lead to another cluster, and the engine then deletes what it has created in the old
        one. While the cluster does not answer, it counts as the last run's.
        """
        if _cluster_type(reveal(news)).created:
            return {}
        known = {RECORD: str(before[RECORD])} if before.get(RECORD) else {}
        try:
            return {RECORD: str((await self._client(news).get(_ANCHOR))["metadata"]["uid"])}
        except OperationError:
            return known

    def _client(self, inputs: Properties) -> Client:
        if reveal(inputs.get("kubeconfig")) in (None, "", UNKNOWN):
            raise OperationError("no kubeconfig of it is known")
        return self._clusters(inputs).client


def _cluster_type(inputs: Mapping[str, Any]) -> type[ClusterModel]:
    return KINDS[inputs["fixed"]["cluster.kind"]]


def _cluster(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Loss]:
    if found := changes(before, after):
        facts = ", ".join(
            f"{path}: {said(was)} cannot become {said(is_)}" for path, (was, is_) in found.items()
        )
        goes = ", ".join(("everything in its API server", "its volumes", *map(str, before.get("lost") or ())))
        yield Loss("cluster", str(before["environment"]), f"is replaced ({facts}), which loses: {goes}")


def _pools(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Pools with nodes that are deleted or replaced, and why."""
    had: Mapping[str, Any] = before.get("pools") or {}
    has: Mapping[str, Any] = after.get("pools") or {}
    found = {}
    for name in sorted(had):
        differ = changes({"fixed": had[name]}, {"fixed": has.get(name)})
        if name not in has:
            found[name] = _DELETED
        elif differ:
            differ = {"nodes": differ["nodes"]} if "nodes" in differ else differ
            facts = ", ".join(f"{key} {said(was)} to {said(is_)}" for key, (was, is_) in differ.items())
            found[name] = f"gets other nodes ({facts})"
    return found


def _at_risk(before: Mapping[str, Any], after: Mapping[str, Any], gone: Sequence[str]) -> set[str]:
    """Names that acknowledge something in this change, whether or not it holds something now."""
    whole = {str(before["environment"])} if changes(before, after) else set()
    return {*whole, *_pools(before, after), *gone}


def _remedy(call: Call, missing: Sequence[Loss]) -> str:
    stack = call.urn.split("::")[0].rpartition(":")[2]
    words = list(dict.fromkeys(one.name for one in missing))
    options = " ".join(f"--acknowledge {name}" for name in words)
    return (
        f"undo the change, or run 'gpuform up {stack} {options}', "
        f"or write acknowledge_loss: [{', '.join(words)}] for this change"
    )

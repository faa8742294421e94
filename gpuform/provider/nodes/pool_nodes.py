"""``gpuform:nodes:PoolNodes``: a pool's labels and taints on nodes that a selector matches."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Call, CheckResult, DiffResult, InitFailed, Properties, ReadResult
from gpuform.provider.nodes import joining, shares, taints
from gpuform.provider.nodes.cluster import Cluster, Manifest, hand_over_labels, labels
from gpuform.provider.nodes.drain import has_claim
from gpuform.provider.nodes.inputs import check_inputs, pool_failures
from gpuform.provider.nodes.joining import node_names
from gpuform.provider.nodes.layout import Note, release_patch
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal

_COMPARED = ("selector", "labels", "taints", "startup", "joining")
_INPUTS = ("kubeconfig", "context", *_COMPARED, "sharing", "mayBeEmpty", "manager")
_ATTEMPTS = 5  # a node's status changes every few seconds; five collisions in a row do not happen by chance


class PoolNodes:
    """Sets labels by server-side apply, so that other managers keep theirs, and taints one by one.

    The API holds a node's taints as one list that the node controllers write as well. Startup taints are put
    only on nodes without proof, and another component removes them. The field manager is derived from the
    URN, unless ``manager`` is given: then another component sets the same labels and taints under that name
    on nodes that join later, and a new node that has them is not a change. A label or taint that another
    manager has set to another value is an error. The number of nodes in ``joining`` is waited for. Kubeconfig
    and context are not compared by the diff: the live nodes are.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs(news, _INPUTS, pool_failures(news))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        """Changed inputs, and ``nodes`` if a live node is new, lacks something, or has left the pool."""
        departed: list[Manifest] = []

        def matches(node: Manifest) -> bool:
            return node not in departed and not _is_incomplete(node, reveal(news))

        async def nodes() -> Sequence[Manifest]:
            cluster = self._clusters(news)
            live = await cluster.nodes(str(reveal(news["selector"])))
            for name in sorted(set(reveal(olds.get("nodes")) or []) - set(node_names(live))):
                if node := await cluster.node(name):  # it still has our labels and taints
                    departed.append(node)
            return [*live, *departed]

        def too_few(live: Sequence[Manifest]) -> bool:
            return joining.too_few([node for node in live if node not in departed], reveal(news))

        skip_new = bool(news.get("manager"))
        return await joining.diff(call, _COMPARED, old_inputs, olds, news, nodes, matches, skip_new, too_few)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", await self._preview(call, news)
        return call.name, {**news, "nodes": await self._apply(call, {}, (), news)}

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """``nodes`` are those that match and have all labels and taints. Import is an error."""
        if not inputs:
            raise OperationError(
                f"{id}: a PoolNodes cannot be imported; declare it; it adopts the existing nodes"
            )
        nodes = await self._clusters(inputs).nodes(str(reveal(inputs["selector"])))
        complete = node_names([node for node in nodes if not _is_incomplete(node, reveal(inputs))])
        return ReadResult(id, {**inputs, "nodes": complete}, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Update every matching node; nodes that no longer match lose our labels and taints."""
        if call.preview:
            return await self._preview(call, news)
        names = reveal(olds.get("nodes")) or []
        return {**news, "nodes": await self._apply(call, reveal(old_inputs), names, news)}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Remove our labels and taints, also from nodes that no longer match."""
        cluster, old = self._clusters(old_inputs), reveal(old_inputs)
        names = {*(reveal(olds.get("nodes")) or []), *node_names(await cluster.nodes(str(old["selector"])))}
        for name in sorted(names):
            await self._set_node(cluster, call, name, {}, old)

    async def _preview(self, call: Call, news: Properties) -> Properties:
        if has_unknown(news):
            return {**news, "nodes": UNKNOWN}
        try:
            nodes = await self._clusters(news).nodes(str(reveal(news["selector"])))
        except Unreachable as error:
            await call.warn(f"{error}; the nodes were not checked")
            return {**news, "nodes": UNKNOWN}
        incomplete = [str(node["metadata"]["name"]) for node in nodes if _is_incomplete(node, reveal(news))]
        if incomplete:
            await call.info(f"gets labels and taints: {', '.join(incomplete)}")
        if joining.too_few(nodes, reveal(news)):
            await call.info(
                f"waits for nodes: {len(nodes)} of {reveal(news)['joining']['nodes']} have joined"
            )
        for node, pods, claim_pods in await self._reshared(reveal(news)):
            if reason := shares.sharing_refusal(node, reveal(news), pods, claim_pods):
                await call.warn(reason)
            elif notice := shares.sharing_notice(node, reveal(news), pods):
                await call.warn(notice)
        return {**news, "nodes": node_names(nodes) or UNKNOWN}

    async def _apply(
        self, call: Call, old: Mapping[str, Any], old_names: Sequence[str], news: Properties
    ) -> list[str]:
        cluster, new = self._clusters(news), reveal(news)
        awaited = joining.Joining.from_inputs(new, call.timeout)
        names = node_names(await cluster.nodes(str(new["selector"])))
        if not names and not new.get("mayBeEmpty") and not awaited:
            raise OperationError(
                f"{call.name}: no node matches the selector {new['selector']!r}; label the pool's nodes, "
                "or correct its selector (`kubectl get nodes --show-labels` shows the labels)"
            )
        for node, pods, claim_pods in await self._reshared(new):
            if reason := shares.sharing_refusal(node, new, pods, claim_pods):
                raise OperationError(reason)
        for name in sorted(set(old_names) - set(names)):
            await self._set_node(cluster, call, name, {}, old)
        if awaited:
            return await self._apply_on_join(call, cluster, old, news, awaited)
        for index, name in enumerate(names, 1):
            await call.status(f"labels and taints: node {name} ({index} of {len(names)})")
            await self._set_node(cluster, call, name, new, old)
        return names

    async def _apply_on_join(
        self, call: Call, cluster: Cluster, old: Mapping[str, Any], news: Properties, awaited: joining.Joining
    ) -> list[str]:
        """Set up each node as it joins; if some never do, the state must still have the others."""
        new, complete = reveal(news), list[str]()

        async def set_up(name: str) -> None:
            await call.status(f"labels and taints: node {name}")
            await self._set_node(cluster, call, name, new, old)
            complete.append(name)

        problem = await joining.wait_until_joined(call, cluster, str(new["selector"]), awaited, set_up)
        if problem and complete:
            raise InitFailed(call.name, {**news, "nodes": sorted(complete)}, [problem])
        if problem:
            raise OperationError(problem)
        return sorted(complete)

    async def _reshared(self, inputs: Properties) -> list[tuple[Manifest, list[Manifest], list[Manifest]]]:
        """Nodes that change their GPU sharing, each with its pods and with those that have claims."""
        cluster, changes = self._clusters(inputs), []
        for node in await cluster.nodes(str(inputs["selector"])):
            if shares.changes_sharing(node, inputs):
                pods = await cluster.pods(node["metadata"]["name"])
                checked = pods if shares.is_claimed(node, inputs) else []
                changes.append((node, pods, [pod for pod in checked if await has_claim(cluster, pod)]))
        return changes

    async def _set_node(
        self, cluster: Cluster, call: Call, name: str, new: Mapping[str, Any], old: Mapping[str, Any]
    ) -> None:
        """Set the labels and taints of ``new`` on one node, and remove those that only ``old`` had."""
        node = await cluster.node(name)
        if node is None:
            return
        # Raise before the first change: a foreign taint must not leave the labels half done.
        taints.merge(node, new, old)
        default_manager = f"gpuform-pool-{hashlib.sha256(call.urn.encode()).hexdigest()[:8]}"
        manager = str((new or old).get("manager") or default_manager)
        await hand_over_labels(cluster, node, default_manager, manager)
        # The uid keeps server-side apply from creating a node that was deleted meanwhile.
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node"}
        body["metadata"] = {"name": name, "uid": node["metadata"]["uid"], "labels": new.get("labels") or {}}
        try:
            await cluster.client.apply(f"/api/v1/nodes/{name}", body, manager=manager)
        except ApiError as error:
            if error.code == 409 and error.causes:
                conflicts = "; ".join(f"{item.get('field')}: {item.get('message')}" for item in error.causes)
                raise OperationError(
                    f"node {name}: a label of this pool is set to another value by another manager "
                    f"({conflicts}); remove it, or give the pool the same value"
                ) from error
            raise
        await self._set_taints(cluster, name, new, old)
        if old.get("startup") and not new.get("startup"):  # a proof is valid for this pool only
            annotations = node["metadata"].get("annotations") or {}
            keys = [old["startup"].get(key) for key in ("proof", "reason")]
            if removed := {key: None for key in keys if key in annotations}:
                await cluster.patch(name, {"metadata": {"annotations": removed}})
        # A killed first relayout is not in the state, so nothing else would uncordon the node.
        if not new and Note.from_node(node) and (changes := release_patch(node)):
            await cluster.patch(name, changes)

    async def _set_taints(
        self, cluster: Cluster, name: str, new: Mapping[str, Any], old: Mapping[str, Any]
    ) -> None:
        for attempt in range(_ATTEMPTS):
            node = await cluster.node(name)
            if node is None or (wanted := taints.merge(node, new, old)) == taints.current(node):
                return
            version = node["metadata"]["resourceVersion"]
            try:
                await cluster.patch(
                    name, {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted or None}}
                )
                return
            except ApiError as error:
                if error.code != 409 or attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(0.1 * 2**attempt)


def _is_incomplete(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    live = {taints.key_of(taint): taints.value_of(taint) for taint in taints.current(node)}
    tainted = all(
        (value := live.get(taints.key_of(taint))) is not None and taints.is_met(taint, value)
        for taint in taints.required(node, inputs)
    )
    return not tainted or any(
        labels(node).get(key) != value for key, value in (inputs.get("labels") or {}).items()
    )

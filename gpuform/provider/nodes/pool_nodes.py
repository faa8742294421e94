"""``gpuform:nodes:PoolNodes``: a pool's labels and taints on nodes that a selector matches."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Call, Checked, Diffed, InitFailed, Properties, ReadResult
from gpuform.provider.nodes import joining, shares, taints
from gpuform.provider.nodes.cluster import Cluster, Manifest, hand_over, labels
from gpuform.provider.nodes.drain import by_claim
from gpuform.provider.nodes.inputs import checked, pool_failures
from gpuform.provider.nodes.joining import node_names
from gpuform.provider.nodes.layout import Note, letting_go
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

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        return checked(news, _INPUTS, pool_failures(news))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Changed inputs, and ``nodes`` if a live node is new, lacks something, or has left the pool."""
        left: list[Manifest] = []

        def as_wanted(node: Manifest) -> bool:
            return node not in left and not _lacks(node, reveal(news))

        async def nodes() -> Sequence[Manifest]:
            cluster = self._clusters(news)
            found = await cluster.nodes(str(reveal(news["selector"])))
            for name in sorted(set(reveal(olds.get("nodes")) or []) - set(node_names(found))):
                if node := await cluster.node(name):  # it still has our labels and taints
                    left.append(node)
            return [*found, *left]

        def missing(found: Sequence[Manifest]) -> bool:
            return joining.too_few([node for node in found if node not in left], reveal(news))

        kept = bool(news.get("manager"))
        return await joining.diff(call, _COMPARED, old_inputs, olds, news, nodes, as_wanted, kept, missing)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", await self._expected(call, news)
        return call.name, {**news, "nodes": await self._put(call, {}, (), news)}

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """``nodes`` are those that match and have all labels and taints. Import is an error."""
        if not inputs:
            raise OperationError(
                f"{id}: a PoolNodes cannot be imported; declare it; it adopts the existing nodes"
            )
        nodes = await self._clusters(inputs).nodes(str(reveal(inputs["selector"])))
        carrying = node_names([node for node in nodes if not _lacks(node, reveal(inputs))])
        return ReadResult(id, {**inputs, "nodes": carrying}, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Update every matching node; nodes that no longer match lose our labels and taints."""
        if call.preview:
            return await self._expected(call, news)
        before = reveal(olds.get("nodes")) or []
        return {**news, "nodes": await self._put(call, reveal(old_inputs), before, news)}

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Remove our labels and taints, also from nodes that no longer match."""
        cluster, old = self._clusters(old_inputs), reveal(old_inputs)
        names = {*(reveal(olds.get("nodes")) or []), *node_names(await cluster.nodes(str(old["selector"])))}
        for name in sorted(names):
            await self._set(cluster, call, name, {}, old)

    async def _expected(self, call: Call, news: Properties) -> Properties:
        if has_unknown(news):
            return {**news, "nodes": UNKNOWN}
        try:
            nodes = await self._clusters(news).nodes(str(reveal(news["selector"])))
        except Unreachable as error:
            await call.warn(f"{error}; the nodes were not checked")
            return {**news, "nodes": UNKNOWN}
        lacking = [str(node["metadata"]["name"]) for node in nodes if _lacks(node, reveal(news))]
        if lacking:
            await call.info(f"gets labels and taints: {', '.join(lacking)}")
        if joining.too_few(nodes, reveal(news)):
            await call.info(
                f"waits for nodes: {len(nodes)} of {reveal(news)['joining']['nodes']} have joined"
            )
        for node, pods, claiming in await self._moving(reveal(news)):
            if why := shares.overdrawn(node, reveal(news), pods, claiming):
                await call.warn(why)
            elif what := shares.kept(node, reveal(news), pods):
                await call.warn(what)
        return {**news, "nodes": node_names(nodes) or UNKNOWN}

    async def _put(
        self, call: Call, old: Mapping[str, Any], before: Sequence[str], news: Properties
    ) -> list[str]:
        cluster, new = self._clusters(news), reveal(news)
        awaited = joining.Joining.of(new, call.timeout)
        names = node_names(await cluster.nodes(str(new["selector"])))
        if not names and not new.get("mayBeEmpty") and not awaited:
            raise OperationError(
                f"{call.name}: no node matches the selector {new['selector']!r}; label the pool's nodes, "
                "or correct its selector (`kubectl get nodes --show-labels` shows the labels)"
            )
        for node, pods, claiming in await self._moving(new):
            if why := shares.overdrawn(node, new, pods, claiming):
                raise OperationError(why)
        for name in sorted(set(before) - set(names)):
            await self._set(cluster, call, name, {}, old)
        if awaited:
            return await self._join(call, cluster, old, news, awaited)
        for index, name in enumerate(names, 1):
            await call.status(f"labels and taints: node {name} ({index} of {len(names)})")
            await self._set(cluster, call, name, new, old)
        return names

    async def _join(
        self, call: Call, cluster: Cluster, old: Mapping[str, Any], news: Properties, awaited: joining.Joining
    ) -> list[str]:
        """Set up each node as it joins; if some never do, the state must still have the others."""
        new, carrying = reveal(news), list[str]()

        async def one(name: str) -> None:
            await call.status(f"labels and taints: node {name}")
            await self._set(cluster, call, name, new, old)
            carrying.append(name)

        missing = await joining.wait(call, cluster, str(new["selector"]), awaited, one)
        if missing and carrying:
            raise InitFailed(call.name, {**news, "nodes": sorted(carrying)}, [missing])
        if missing:
            raise OperationError(missing)
        return sorted(carrying)

    async def _moving(self, inputs: Properties) -> list[tuple[Manifest, list[Manifest], list[Manifest]]]:
        """Nodes that change their GPU sharing, each with its pods and with those that have claims."""
        cluster, found = self._clusters(inputs), []
        for node in await cluster.nodes(str(inputs["selector"])):
            if shares.moves(node, inputs):
                pods = await cluster.pods(node["metadata"]["name"])
                asked = pods if shares.claimed(node, inputs) else []
                found.append((node, pods, [pod for pod in asked if await by_claim(cluster, pod)]))
        return found

    async def _set(
        self, cluster: Cluster, call: Call, name: str, new: Mapping[str, Any], old: Mapping[str, Any]
    ) -> None:
        """Set the labels and taints of ``new`` on one node, and remove those that only ``old`` had."""
        node = await cluster.node(name)
        if node is None:
            return
        # Raise before the first change: a foreign taint must not leave the labels half done.
        taints.merged(node, new, old)
        own = f"gpuform-pool-{hashlib.sha256(call.urn.encode()).hexdigest()[:8]}"
        manager = str((new or old).get("manager") or own)
        await hand_over(cluster, node, own, manager)
        # The uid keeps server-side apply from creating a node that was deleted meanwhile.
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node"}
        body["metadata"] = {"name": name, "uid": node["metadata"]["uid"], "labels": new.get("labels") or {}}
        try:
            await cluster.client.apply(f"/api/v1/nodes/{name}", body, manager=manager)
        except ApiError as error:
            if error.code == 409 and error.causes:
                who = "; ".join(f"{item.get('field')}: {item.get('message')}" for item in error.causes)
                raise OperationError(
                    f"node {name}: a label of this pool is set to another value by another manager ({who}); "
                    "remove it, or give the pool the same value"
                ) from error
            raise
        await self._taint(cluster, name, new, old)
        if old.get("startup") and not new.get("startup"):  # a proof is valid for this pool only
            noted = node["metadata"].get("annotations") or {}
            keys = [old["startup"].get(key) for key in ("proof", "reason")]
            if gone := {key: None for key in keys if key in noted}:
                await cluster.patch(name, {"metadata": {"annotations": gone}})
        # A killed first relayout is not in the state, so nothing else would uncordon the node.
        if not new and Note.on(node) and (changes := letting_go(node)):
            await cluster.patch(name, changes)

    async def _taint(
        self, cluster: Cluster, name: str, new: Mapping[str, Any], old: Mapping[str, Any]
    ) -> None:
        for attempt in range(_ATTEMPTS):
            node = await cluster.node(name)
            if node is None or (wanted := taints.merged(node, new, old)) == taints.live(node):
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


def _lacks(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    live = {taints.key_of(item): taints.value_of(item) for item in taints.live(node)}
    wanted = {taints.key_of(item): taints.value_of(item) for item in taints.owed(node, inputs)}
    tainted = all(live.get(key) == value for key, value in wanted.items())
    return not tainted or any(
        labels(node).get(key) != value for key, value in (inputs.get("labels") or {}).items()
    )

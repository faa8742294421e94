"""``gpuform:nodes:MigLayout``: one MIG layout on every node that a selector matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Unreachable
from gpuform.provider.handler import Call, Checked, Diffed, InitFailed, Properties, ReadResult
from gpuform.provider.nodes import joining
from gpuform.provider.nodes.cluster import Cluster, Manifest, labels, pod_name
from gpuform.provider.nodes.drain import in_use, obstacle, refusal, users
from gpuform.provider.nodes.inputs import TIMEOUT_S, checked, layout_failures
from gpuform.provider.nodes.joining import node_names
from gpuform.provider.nodes.layout import Note, Wanted, done, label, letting_go, under_way
from gpuform.provider.nodes.relayout import Relayout, at_once, roll
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal
from infra.model.labels import POOL

_COMPARED = ("selector", "config", "layout", "offers")
_HOW = ("inUse", "maxUnavailable", "timeoutSeconds", "mayBeEmpty", "kept")
_INPUTS = ("kubeconfig", "context", *_COMPARED, *_HOW)


class MigLayout:
    """Changes nodes a few at a time (see `Relayout`); the live nodes show what is left to do.

    Before the first node is changed, all are checked: a pod that would be lost by an eviction is an error;
    with ``inUse: refuse``, so is every pod that uses a GPU. ``inUse``, ``maxUnavailable`` and
    ``timeoutSeconds`` are not compared by the diff. If another component lays out nodes that join later
    (``kept``), a new node that has the layout is not a change. Deleting removes the label and leaves the
    layout on the GPU, as NVIDIA's MIG manager does.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> Checked:
        return checked({"timeoutSeconds": TIMEOUT_S, **news}, _INPUTS, layout_failures(news))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Diffed:
        """Changed inputs, and ``nodes`` if a live node is new, has another layout, or has left the pool."""
        left: list[Manifest] = []

        def as_wanted(node: Manifest) -> bool:
            return node not in left and done(node, _wanted(news))

        async def nodes() -> Sequence[Manifest]:
            found = await self._nodes(news)
            left.extend(await _left(self._clusters(news), old_inputs, olds, found))
            return [*found, *left]

        kept = bool(news.get("kept"))
        return await joining.diff(call, _COMPARED, old_inputs, olds, news, nodes, as_wanted, kept)

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", await self._expected(call, news)
        return call.name, await self._lay_out(call, news)

    async def read(self, call: Call, id: str, inputs: Properties, olds: Properties) -> ReadResult | None:
        """``nodes`` are those that have the layout; None if no node matches any more."""
        if not inputs:
            raise OperationError(
                f"{id}: a MigLayout cannot be imported; declare it; nodes with the layout are not changed"
            )
        nodes = await self._nodes(inputs)
        if not nodes and not reveal(inputs.get("mayBeEmpty")):
            return None
        laid_out = node_names([node for node in nodes if done(node, _wanted(inputs))])
        return ReadResult(id, {**inputs, "nodes": laid_out}, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Lay out every matching node, and take the layout off those that have left the pool."""
        if call.preview:
            return await self._expected(call, news)
        cluster = self._clusters(news)
        for node in await _left(cluster, old_inputs, olds, await self._nodes(news)):
            await _let_go(cluster, old_inputs, node)
        return await self._lay_out(call, news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Remove the label if it still names this layout; uncordon nodes that a killed run left cordoned."""
        for node in await self._nodes(old_inputs):
            await _let_go(self._clusters(old_inputs), old_inputs, node)

    async def _lay_out(self, call: Call, news: Properties) -> Properties:
        cluster, wanted = self._clusters(news), _wanted(news)
        nodes = await self._nodes(news)
        if not nodes and not reveal(news.get("mayBeEmpty")):
            raise OperationError(
                f"{call.name}: no node matches the selector {reveal(news['selector'])!r}; label the "
                "nodes, or correct it (`kubectl get nodes --show-labels` shows the labels)"
            )
        await self._refuse(cluster, nodes, wanted, _evicts(news))
        timeout_s = float(call.timeout or reveal(news.get("timeoutSeconds")) or TIMEOUT_S)
        evicts = _evicts(news)

        async def one(name: str) -> bool:
            return await Relayout(call, cluster, name, wanted, timeout_s, evicts).run()

        order = [str(node["metadata"]["name"]) for node in sorted(nodes, key=_begun_first)]
        rolled = await roll(order, at_once(reveal(news.get("maxUnavailable")) or 1, len(order)), one)
        outputs = {**news, "nodes": sorted(rolled.ready)}
        if rolled.failures and rolled.changed:  # the state must have it, or a destroy would skip it
            raise InitFailed(call.name, outputs, rolled.failures)
        if rolled.failures:
            raise OperationError("; ".join(rolled.failures))
        return outputs

    async def _refuse(
        self, cluster: Cluster, nodes: Sequence[Manifest], wanted: Wanted, evicts: bool
    ) -> None:
        for node in nodes:
            if _must_be_free(node, wanted):
                name = str(node["metadata"]["name"])
                pods = await users(cluster, name)
                if why := refusal(name, pods) if evicts else in_use(name, pods):
                    raise OperationError(why)

    async def _expected(self, call: Call, news: Properties) -> Properties:
        if has_unknown(news):
            return {**news, "nodes": UNKNOWN}
        try:
            nodes, cluster, wanted = await self._nodes(news), self._clusters(news), _wanted(news)
            for node in nodes:
                if _must_be_free(node, wanted):
                    await self._tell(call, cluster, node, wanted, _evicts(news))
        except Unreachable as error:
            await call.warn(f"{error}; the nodes were not checked")
            nodes = []
        return {**news, "nodes": node_names(nodes) or UNKNOWN}

    async def _tell(self, call: Call, cluster: Cluster, node: Manifest, wanted: Wanted, evicts: bool) -> None:
        name = str(node["metadata"]["name"])
        pods = await users(cluster, name)
        leaving = ", ".join(pod_name(pod) for pod in pods if evicts and not obstacle(pod))
        evicted = f"; would evict {leaving}" if leaving else ""
        await call.info(f"node {name}: layout {label(node) or 'none'} -> {wanted.config}{evicted}")
        if why := refusal(name, pods) if evicts else in_use(name, pods):
            await call.warn(why)

    async def _nodes(self, inputs: Properties) -> list[Manifest]:
        return await self._clusters(inputs).nodes(str(reveal(inputs["selector"])))


async def _let_go(cluster: Cluster, inputs: Properties, node: Manifest) -> None:
    if changes := letting_go(node, str(reveal(inputs["config"]))):
        await cluster.patch(str(node["metadata"]["name"]), changes)


async def _left(
    cluster: Cluster, old_inputs: Properties, olds: Properties, found: Sequence[Manifest]
) -> list[Manifest]:
    """Nodes that had the layout and have left the pool, except those that another pool has now."""
    left = []
    for name in sorted(set(reveal(olds.get("nodes")) or []) - set(node_names(found))):
        node = await cluster.node(name)
        ours = node and (label(node) == reveal(old_inputs["config"]) or Note.on(node))
        if node and ours and POOL not in labels(node):
            left.append(node)
    return left


def _wanted(inputs: Properties) -> Wanted:
    plain = reveal(inputs)
    return Wanted(str(plain["config"]), plain["offers"], str(plain.get("layout") or ""))


def _evicts(inputs: Properties) -> bool:
    """Whether blocking pods are evicted, within their disruption budgets; the default."""
    return bool(reveal(inputs.get("inUse")) != "refuse")


def _must_be_free(node: Manifest, wanted: Wanted) -> bool:
    return not done(node, wanted) and not under_way(node, wanted) and not _told(node, wanted)


def _told(node: Manifest, wanted: Wanted) -> bool:
    """Whether a killed run has evicted the pods and set the label already."""
    note = Note.on(node)
    return note is not None and note.target == wanted.config == label(node)


def _begun_first(node: Manifest) -> tuple[bool, str]:
    return Note.on(node) is None, str(node["metadata"]["name"])

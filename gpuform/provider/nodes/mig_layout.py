"""``gpuform:nodes:MigLayout``: one MIG layout on every node that a selector matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Unreachable
from gpuform.provider.handler import Call, CheckResult, DiffResult, InitFailed, Properties, ReadResult
from gpuform.provider.nodes import joining
from gpuform.provider.nodes.cluster import Cluster, Manifest, labels, pod_name
from gpuform.provider.nodes.drain import gpu_pods, in_use_refusal, obstacle, refusal
from gpuform.provider.nodes.inputs import TIMEOUT_S, check_inputs, layout_failures
from gpuform.provider.nodes.joining import node_names
from gpuform.provider.nodes.layout import Layout, Note, is_applied, is_under_way, mig_config, release_patch
from gpuform.provider.nodes.relayout import Relayout
from gpuform.provider.nodes.rolling import max_unavailable, roll
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal
from infra.model.base.labels import POOL

_COMPARED = ("selector", "config", "layout", "offers")
_OPTIONS = ("inUse", "maxUnavailable", "timeoutSeconds", "mayBeEmpty", "kept", "configMap", "expected")
_INPUTS = ("kubeconfig", "context", *_COMPARED, *_OPTIONS)


class MigLayout:
    """Changes nodes a few at a time (see `Relayout`); the live nodes show what is left to do.

    Before the first node is changed, all are checked: a pod that would be lost by an eviction is an error;
    with ``inUse: refuse``, so is every pod that uses a GPU. ``inUse``, ``maxUnavailable``,
    ``timeoutSeconds`` and ``configMap`` are not compared by the diff. If another component lays out nodes
    that join later (``kept``), a new node that has the layout is not a change. Deleting removes the label and
    leaves the layout on the GPU, as NVIDIA's MIG manager does.
    """

    def __init__(self, clusters: Callable[[Properties], Cluster]) -> None:
        self._clusters = clusters

    async def check(self, call: Call, olds: Properties, news: Properties) -> CheckResult:
        return check_inputs({"timeoutSeconds": TIMEOUT_S, **news}, _INPUTS, layout_failures(news))

    async def diff(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> DiffResult:
        """Changed inputs, and ``nodes`` if a live node is new, has another layout, or has left the pool.

        Nodes that this update lets join are new too: ``expected`` is more than before, and than there are.
        """
        expected = int(reveal(news.get("expected")) or 0)
        before = int(reveal(old_inputs.get("expected")) or expected)
        departed: list[Manifest] = []

        def matches(node: Manifest) -> bool:
            return node not in departed and is_applied(node, _layout_of(news))

        async def nodes() -> Sequence[Manifest]:
            current = await self._nodes(news)
            departed.extend(await _departed_nodes(self._clusters(news), old_inputs, olds, current))
            return [*current, *departed]

        skip_new = bool(news.get("kept"))
        return await joining.diff(
            call,
            _COMPARED,
            old_inputs,
            olds,
            news,
            nodes,
            matches,
            skip_new,
            lambda live: len(joining.live_names(live)) < expected > before,
        )

    async def create(self, call: Call, news: Properties) -> tuple[str, Properties]:
        if call.preview:
            return "", await self._preview(call, news)
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
        laid_out = node_names([node for node in nodes if is_applied(node, _layout_of(inputs))])
        return ReadResult(id, {**inputs, "nodes": laid_out}, inputs)

    async def update(
        self, call: Call, id: str, old_inputs: Properties, olds: Properties, news: Properties
    ) -> Properties:
        """Lay out every matching node, and take the layout off those that have left the pool."""
        if call.preview:
            return await self._preview(call, news)
        cluster = self._clusters(news)
        for node in await _departed_nodes(cluster, old_inputs, olds, await self._nodes(news)):
            await _release(cluster, old_inputs, node)
        return await self._lay_out(call, news)

    async def delete(self, call: Call, id: str, old_inputs: Properties, olds: Properties) -> None:
        """Remove the label if it still names this layout; uncordon nodes that a killed run left cordoned."""
        for node in await self._nodes(old_inputs):
            await _release(self._clusters(old_inputs), old_inputs, node)

    async def _lay_out(self, call: Call, news: Properties) -> Properties:
        cluster, layout = self._clusters(news), _layout_of(news)
        nodes = await self._nodes(news)
        if not nodes and not reveal(news.get("mayBeEmpty")):
            raise OperationError(
                f"{call.name}: no node matches the selector {reveal(news['selector'])!r}; label the "
                "nodes, or correct it (`kubectl get nodes --show-labels` shows the labels)"
            )
        await self._check_pods(cluster, nodes, layout, _evicts(news))
        timeout_s = float(call.timeout or reveal(news.get("timeoutSeconds")) or TIMEOUT_S)
        evicts, config_map = _evicts(news), str(reveal(news.get("configMap")) or "")

        async def relayout_node(name: str) -> bool:
            return await Relayout(call, cluster, name, layout, timeout_s, evicts, config_map).run()

        order = [str(node["metadata"]["name"]) for node in sorted(nodes, key=_resume_order)]
        width = max_unavailable(reveal(news.get("maxUnavailable")) or 1, len(order))
        progress = await roll(order, width, relayout_node)
        outputs = {**news, "nodes": sorted(progress.ready)}
        if progress.failures and progress.changed:  # the state must have it, or a destroy would skip it
            raise InitFailed(call.name, outputs, progress.failures)
        if progress.failures:
            raise OperationError("; ".join(progress.failures))
        return outputs

    async def _check_pods(
        self, cluster: Cluster, nodes: Sequence[Manifest], layout: Layout, evicts: bool
    ) -> None:
        for node in nodes:
            if _must_be_free(node, layout):
                name = str(node["metadata"]["name"])
                pods = await gpu_pods(cluster, name)
                if reason := refusal(name, pods) if evicts else in_use_refusal(name, pods):
                    raise OperationError(reason)

    async def _preview(self, call: Call, news: Properties) -> Properties:
        if has_unknown(news):
            return {**news, "nodes": UNKNOWN}
        try:
            nodes, cluster, layout = await self._nodes(news), self._clusters(news), _layout_of(news)
            for node in nodes:
                if _must_be_free(node, layout):
                    await self._show(call, cluster, node, layout, _evicts(news))
        except Unreachable as error:
            await call.warn(f"{error}; the nodes were not checked")
            nodes = []
        return {**news, "nodes": node_names(nodes) or UNKNOWN}

    async def _show(self, call: Call, cluster: Cluster, node: Manifest, layout: Layout, evicts: bool) -> None:
        name = str(node["metadata"]["name"])
        pods = await gpu_pods(cluster, name)
        evictable = ", ".join(pod_name(pod) for pod in pods if evicts and not obstacle(pod))
        eviction = f"; would evict {evictable}" if evictable else ""
        await call.info(f"node {name}: layout {mig_config(node) or 'none'} -> {layout.config}{eviction}")
        if reason := refusal(name, pods) if evicts else in_use_refusal(name, pods):
            await call.warn(reason)

    async def _nodes(self, inputs: Properties) -> list[Manifest]:
        return await self._clusters(inputs).nodes(str(reveal(inputs["selector"])))


async def _release(cluster: Cluster, inputs: Properties, node: Manifest) -> None:
    if changes := release_patch(node, str(reveal(inputs["config"]))):
        await cluster.patch(str(node["metadata"]["name"]), changes)


async def _departed_nodes(
    cluster: Cluster, old_inputs: Properties, olds: Properties, current: Sequence[Manifest]
) -> list[Manifest]:
    """Nodes that had the layout and have left the pool, except those that another pool has now."""
    departed = []
    for name in sorted(set(reveal(olds.get("nodes")) or []) - set(node_names(current))):
        node = await cluster.node(name)
        has_layout = node and (mig_config(node) == reveal(old_inputs["config"]) or Note.from_node(node))
        if node and has_layout and POOL not in labels(node):
            departed.append(node)
    return departed


def _layout_of(inputs: Properties) -> Layout:
    plain = reveal(inputs)
    return Layout(str(plain["config"]), plain["offers"], str(plain.get("layout") or ""))


def _evicts(inputs: Properties) -> bool:
    """Whether blocking pods are evicted, within their disruption budgets; the default."""
    return bool(reveal(inputs.get("inUse")) != "refuse")


def _must_be_free(node: Manifest, layout: Layout) -> bool:
    return not is_applied(node, layout) and not is_under_way(node, layout) and not _is_evicted(node, layout)


def _is_evicted(node: Manifest, layout: Layout) -> bool:
    """Whether a killed run has evicted the pods and set the label already."""
    note = Note.from_node(node)
    return note is not None and note.target == layout.config == mig_config(node)


def _resume_order(node: Manifest) -> tuple[bool, str]:
    return Note.from_node(node) is None, str(node["metadata"]["name"])

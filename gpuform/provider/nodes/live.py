"""The diff of PoolNodes and MigLayout: inputs against the old inputs, and against the live nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from gpuform.kubernetes.client import Unreachable
from gpuform.provider.handler import Call, Change, Diffed, Properties
from gpuform.provider.nodes.cluster import Manifest
from gpuform.provider.properties import has_unknown, reveal


async def diff(
    call: Call,
    keys: Sequence[str],
    old_inputs: Properties,
    olds: Properties,
    news: Properties,
    nodes: Callable[[], Awaitable[Sequence[Manifest]]],
    as_wanted: Callable[[Manifest], bool],
    kept: bool = False,
    missing: Callable[[Sequence[Manifest]], bool] = lambda found: False,
) -> Diffed:
    """Changed inputs among ``keys``, and ``nodes`` if a live node is new or not as wanted.

    A node that is gone is not a change, because nothing is left to do on it, unless too few remain
    (``missing``). If another component sets up new nodes (``kept``), a new node that is as wanted is not a
    change either: with autoscaling there would be one every day. An unreachable cluster is a warning, and
    only the inputs are compared.
    """
    changes = {
        key: Change.UPDATE
        for key in keys
        if has_unknown(news.get(key)) or reveal(old_inputs.get(key)) != reveal(news.get(key))
    }
    if not has_unknown(news):
        try:
            found = await nodes()
        except Unreachable as error:
            await call.warn(f"{error}; the nodes were not checked")
        else:
            new = set(node_names(found)) - set(reveal(olds.get("nodes")) or [])
            if (new and not kept) or missing(found) or not all(as_wanted(node) for node in found):
                changes["nodes"] = Change.UPDATE
    return Diffed(changes=changes)


def node_names(nodes: Sequence[Manifest]) -> list[str]:
    return sorted(str(node["metadata"]["name"]) for node in nodes)

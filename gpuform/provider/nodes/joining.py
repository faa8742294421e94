"""Waits until the declared number of nodes has joined the cluster, and compares live nodes with the state."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Call, Change, Diffed, Properties
from gpuform.provider.nodes.cluster import Cluster, Manifest
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal

TIMEOUT_S = 900
"""Seconds that nodes may take once their group is complete; a bare-metal GPU node boots for minutes."""


@dataclass(frozen=True)
class Joining:
    """The number of nodes to wait for, the timeout, and where to look if they do not join."""

    nodes: int
    timeout_s: float
    look: str

    @classmethod
    def of(cls, inputs: Mapping[str, Any], timeout_s: float | None = None) -> Joining | None:
        """From a resource's inputs; None if no node is awaited. ``timeout_s`` is from customTimeouts."""
        found = inputs.get("joining")
        if not isinstance(found, Mapping):
            return None
        own = float(timeout_s or found.get("timeoutSeconds") or TIMEOUT_S)
        return cls(int(found["nodes"]), own, str(found.get("look") or ""))


def failures(found: Any) -> Sequence[tuple[str, str]]:
    if found is None or found is UNKNOWN:
        return ()
    nodes = found.get("nodes") if isinstance(found, Mapping) else None
    if not isinstance(nodes, int | float) or isinstance(nodes, bool) or nodes < 0 or nodes != int(nodes):
        return (("joining", "has no number of nodes; it is {nodes, look}; look is a hint for the user"),)
    return ()


def there(nodes: Sequence[Manifest]) -> list[str]:
    """Names of the nodes that are not being deleted."""
    return node_names([node for node in nodes if "deletionTimestamp" not in node["metadata"]])


async def wait(
    call: Call, cluster: Cluster, selector: str, joining: Joining, each: Callable[[str], Awaitable[None]]
) -> str:
    """Wait until enough nodes match; ``each`` is called once for every node, as it joins.

    Returns what is missing after the timeout, in words; empty if nothing is. A cluster that does not answer
    may be starting, so it is not an error.
    """
    deadline, pause = time.monotonic() + joining.timeout_s, 0.5
    names, seen, trouble = list[str](), set[str](), ""
    while True:
        try:
            names, trouble = there(await cluster.nodes(selector)), ""
            for name in (name for name in names if name not in seen):
                await each(name)
                seen.add(name)
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.code < 500:
                raise
            trouble = f"; {error}"
        if not trouble and len(names) >= joining.nodes:
            return ""
        how = f"{len(names)} of {joining.nodes} nodes have joined"
        if time.monotonic() > deadline:
            return _missing(call, how, trouble, names, selector, joining)
        await call.status(f"waiting for nodes: {how}{trouble}")
        await call.sleep(pause)
        pause = min(pause * 1.5, 5.0)


def _missing(call: Call, how: str, trouble: str, names: list[str], selector: str, joining: Joining) -> str:
    has = f", which are {', '.join(names)}" if names else ""
    look = f"; look at {joining.look}" if joining.look else ""
    return (
        f"{call.name}: {how} after {joining.timeout_s:.0f} s{has}{trouble} (selector {selector!r}){look}; "
        "then run again"
    )


def too_few(nodes: Sequence[Manifest], inputs: Mapping[str, Any]) -> bool:
    joining = Joining.of(inputs)
    return joining is not None and len(there(nodes)) < joining.nodes


def node_names(nodes: Sequence[Manifest]) -> list[str]:
    return sorted(str(node["metadata"]["name"]) for node in nodes)


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

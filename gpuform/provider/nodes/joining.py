"""Waits until the declared number of nodes has joined the cluster, and compares live nodes with the state."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Call, Change, DiffResult, Properties
from gpuform.provider.nodes.cluster import Cluster, Manifest
from gpuform.provider.properties import UNKNOWN, has_unknown, reveal

TIMEOUT_S = 900
"""Seconds that nodes may take once their group is complete; a bare-metal GPU node boots for minutes."""


@dataclass(frozen=True)
class Joining:
    """The number of nodes to wait for, the timeout, and where to look if they do not join."""

    nodes: int
    timeout_s: float
    look_at: str

    @classmethod
    def from_inputs(cls, inputs: Mapping[str, Any], timeout_s: float | None = None) -> Joining | None:
        """From a resource's inputs; None if no node is awaited. ``timeout_s`` is from customTimeouts."""
        joining = inputs.get("joining")
        if not isinstance(joining, Mapping):
            return None
        timeout = float(timeout_s or joining.get("timeoutSeconds") or TIMEOUT_S)
        return cls(int(joining["nodes"]), timeout, str(joining.get("look") or ""))


def input_failures(joining: Any) -> Sequence[tuple[str, str]]:
    if joining is None or joining is UNKNOWN:
        return ()
    nodes = joining.get("nodes") if isinstance(joining, Mapping) else None
    if not isinstance(nodes, int | float) or isinstance(nodes, bool) or nodes < 0 or nodes != int(nodes):
        return (("joining", "has no number of nodes; it is {nodes, look}; look is a hint for the user"),)
    return ()


def live_names(nodes: Sequence[Manifest]) -> list[str]:
    """Names of the nodes that are not being deleted."""
    return node_names([node for node in nodes if "deletionTimestamp" not in node["metadata"]])


async def wait_until_joined(
    call: Call, cluster: Cluster, selector: str, joining: Joining, on_join: Callable[[str], Awaitable[None]]
) -> str:
    """Wait until enough nodes match; ``on_join`` is called once for every node, as it joins.

    Returns what is missing after the timeout, in words; empty if nothing is. A cluster that does not answer
    may be starting, so it is not an error.
    """
    deadline, pause = time.monotonic() + joining.timeout_s, 0.5
    names, seen, problem = list[str](), set[str](), ""
    while True:
        try:
            names, problem = live_names(await cluster.nodes(selector)), ""
            for name in (name for name in names if name not in seen):
                await on_join(name)
                seen.add(name)
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.code < 500:
                raise
            problem = f"; {error}"
        if not problem and len(names) >= joining.nodes:
            return ""
        progress = f"{len(names)} of {joining.nodes} nodes have joined"
        if time.monotonic() > deadline:
            joined = f", which are {', '.join(names)}" if names else ""
            hint = f"; look at {joining.look_at}" if joining.look_at else ""
            return (
                f"{call.name}: {progress} after {joining.timeout_s:.0f} s{joined}{problem} "
                f"(selector {selector!r}){hint}; then run again"
            )
        await call.status(f"waiting for nodes: {progress}{problem}")
        await call.sleep(pause)
        pause = min(pause * 1.5, 5.0)


def too_few(nodes: Sequence[Manifest], inputs: Mapping[str, Any]) -> bool:
    joining = Joining.from_inputs(inputs)
    return joining is not None and len(live_names(nodes)) < joining.nodes


def node_names(nodes: Sequence[Manifest]) -> list[str]:
    return sorted(str(node["metadata"]["name"]) for node in nodes)


async def diff(
    call: Call,
    keys: Sequence[str],
    old_inputs: Properties,
    olds: Properties,
    news: Properties,
    nodes: Callable[[], Awaitable[Sequence[Manifest]]],
    matches: Callable[[Manifest], bool],
    skip_new: bool = False,
    too_few: Callable[[Sequence[Manifest]], bool] = lambda live: False,
) -> DiffResult:
    """Changed inputs among ``keys``, and ``nodes`` if a live node is new or not as wanted.

    A node that is gone is not a change, because nothing is left to do on it, unless too few remain
    (``too_few``). If another component sets up new nodes (``skip_new``), a new node that is as wanted is not
    a change either: with autoscaling there would be one every day. An unreachable cluster is a warning, and
    only the inputs are compared.
    """
    changes = {
        key: Change.UPDATE
        for key in keys
        if has_unknown(news.get(key)) or reveal(old_inputs.get(key)) != reveal(news.get(key))
    }
    if not has_unknown(news):
        try:
            live = await nodes()
        except Unreachable as error:
            await call.warn(f"{error}; the nodes were not checked")
        else:
            new = set(node_names(live)) - set(reveal(olds.get("nodes")) or [])
            if (new and not skip_new) or too_few(live) or not all(matches(node) for node in live):
                changes["nodes"] = Change.UPDATE
    return DiffResult(changes=changes)

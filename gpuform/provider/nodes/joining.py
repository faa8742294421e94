"""Waits until the declared number of nodes has joined the cluster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.kubernetes.client import ApiError, Unreachable
from gpuform.provider.handler import Call
from gpuform.provider.nodes.cluster import Cluster, Manifest
from gpuform.provider.nodes.live import node_names
from gpuform.provider.properties import UNKNOWN

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
    call: Call,
    cluster: Cluster,
    selector: str,
    joining: Joining,
    each: Callable[[str], Awaitable[None]],
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

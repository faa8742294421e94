"""Labels and taints of hosts that have joined a cluster, put on by the code that Pulumi's runs use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.errors import Failure
from gpuform.plugins.handler import Call, Engine, PluginError
from gpuform.plugins.kubernetes.client import ApiError, Unreachable
from gpuform.plugins.nodes.clusters import Clusters
from gpuform.plugins.nodes.live import node_names
from gpuform.plugins.nodes.pool_nodes import PoolNodes

HOSTNAME = "kubernetes.io/hostname"  # the kubelet sets it to the host's name
_TYPE = "gpuform:nodes:PoolNodes"


@dataclass(frozen=True)
class PoolHosts:
    """What the nodes of one pool's hosts are to carry."""

    pool: str
    hosts: Sequence[str]
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]


def put(
    stack: str, pools: Sequence[PoolHosts], kubeconfig: str, context: str | None = None
) -> dict[str, list[str]]:
    """Put labels and taints on; the names of each pool's nodes, empty for one of which no host has joined.

    The field manager follows from stack and pool, so a label that is declared no longer is taken off again;
    a taint is not. Raises `Failure` with the cluster's own reason.
    """
    return asyncio.run(_put(stack, pools, {"kubeconfig": kubeconfig, "context": context or ""}))


async def _put(stack: str, pools: Sequence[PoolHosts], cluster: Mapping[str, str]) -> dict[str, list[str]]:
    clusters = Clusters()
    found = {}
    try:
        for pool in pools:
            found[pool.pool] = await _pool(stack, pool, clusters, cluster)
    finally:
        await clusters.close()
    return found


async def _pool(stack: str, pool: PoolHosts, clusters: Clusters, cluster: Mapping[str, str]) -> list[str]:
    urn = f"urn:pulumi:{stack}::gpuform::{_TYPE}::{pool.pool}"
    call = Call(urn, _TYPE, pool.pool, Engine(), asyncio.Event())
    selector = f"{HOSTNAME} in ({','.join(pool.hosts)})"
    inputs = {
        **{key: value for key, value in cluster.items() if value},
        "selector": selector,
        "labels": dict(pool.labels),
        "taints": [dict(taint) for taint in pool.taints],
    }
    handler = PoolNodes(clusters.of)
    try:
        checked = await handler.check(call, {}, inputs)
        if checked.failures:
            raise PluginError("; ".join(f"{name} {why}" for name, why in checked.failures))
        if not node_names(await clusters.of(checked.inputs).nodes(selector)):
            return []
        _, outputs = await handler.create(call, checked.inputs)
    except (PluginError, ApiError, Unreachable) as error:
        raise Failure(f"nodes of pool {pool.pool}", str(error), "then run the same again") from error
    return list(outputs["nodes"])

"""Labels and taints of hosts that have joined a cluster, set by the code that Pulumi's runs use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuform.checkout.errors import Failure, OperationError
from gpuform.hosts.listing import PoolHosts
from gpuform.kubernetes.pods import condition
from gpuform.provider.handler import Call, Engine
from gpuform.provider.nodes.cluster import Clusters, Manifest
from gpuform.provider.nodes.pool_nodes import PoolNodes

HOSTNAME = "kubernetes.io/hostname"  # the kubelet sets it to the host's name
_TYPE = "gpuform:nodes:PoolNodes"


def label_and_taint(
    stack: str, pools: Sequence[PoolHosts], kubeconfig: str, context: str | None = None
) -> dict[str, list[str]]:
    """Set labels and taints; returns the node names of each pool, empty for a pool without joined hosts.

    The field manager is derived from stack and pool, so a label that is no longer declared is removed; a
    taint is not. Raises `Failure` with the cluster's own reason.
    """
    return asyncio.run(_apply(stack, pools, {"kubeconfig": kubeconfig, "context": context or ""}))


async def _apply(stack: str, pools: Sequence[PoolHosts], cluster: Mapping[str, str]) -> dict[str, list[str]]:
    clusters = Clusters()
    names = {}
    try:
        for pool in pools:
            names[pool.pool] = await _set_up(stack, pool, clusters, cluster)
    finally:
        await clusters.close()
    return names


async def _set_up(stack: str, pool: PoolHosts, clusters: Clusters, cluster: Mapping[str, str]) -> list[str]:
    urn = f"urn:pulumi:{stack}::gpuform::{_TYPE}::{pool.pool}"
    call = Call(urn, _TYPE, pool.pool, Engine(), asyncio.Event())
    inputs = {
        **{key: value for key, value in cluster.items() if value},
        "selector": selector_of(pool.hosts),
        "labels": dict(pool.labels),
        "taints": [dict(taint) for taint in pool.taints],
        "startup": pool.startup and dict(pool.startup),
        "sharing": pool.sharing and dict(pool.sharing),
        "mayBeEmpty": True,
    }
    handler = PoolNodes(clusters.get)
    try:
        checked = await handler.check(call, {}, inputs)
        if checked.failures:
            raise OperationError("; ".join(f"{name} {reason}" for name, reason in checked.failures))
        _, outputs = await handler.create(call, checked.inputs)
    except OperationError as error:
        raise Failure(f"nodes of pool {pool.pool}", str(error), "then run the same command again") from error
    return list(outputs["nodes"])


def node_states(hosts: Sequence[str], kubeconfig: Path | None, context: str | None = None) -> dict[str, str]:
    """Whether each host's node is ``ready``, ``not ready`` or ``not joined``.

    ``-`` without a kubeconfig, ``unknown`` if the cluster does not answer.
    """
    if kubeconfig is None:
        return dict.fromkeys(hosts, "-")
    try:
        nodes = asyncio.run(_nodes(hosts, {"kubeconfig": str(kubeconfig), "context": context or ""}))
    except OperationError:
        return dict.fromkeys(hosts, "unknown")
    by_host = {str((node["metadata"].get("labels") or {}).get(HOSTNAME)): node for node in nodes}
    states = {name: condition(node, "Ready").get("status") == "True" for name, node in by_host.items()}
    texts = {True: "ready", False: "not ready", None: "not joined"}
    return {name: texts[states.get(name)] for name in hosts}


async def _nodes(hosts: Sequence[str], cluster: Mapping[str, str]) -> list[Manifest]:
    clusters = Clusters()
    try:
        return await clusters.get(dict(cluster)).nodes(selector_of(hosts))
    finally:
        await clusters.close()


def selector_of(hosts: Sequence[str]) -> str:
    return f"{HOSTNAME} in ({','.join(hosts)})"

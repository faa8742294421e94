"""A cluster's nodes, pods and claims, fetched once for all reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.kubernetes.kubeconfigs import answered
from gpuform.usage import claims as dra
from gpuform.usage import queues
from gpuform.usage.claims import Claims
from gpuform.usage.queues import QueueStatus
from infra.model import labels
from infra.model.environment import Environment

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Objects:
    """Live objects, as the API server returns them."""

    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    claims: Claims = Claims()  # noqa: RUF009  (frozen)
    node_pools: tuple[Json, ...] = ()
    """Karpenter's NodePools, with their status and limits."""
    queues: tuple[QueueStatus, ...] = ()


def pool_of(env: Environment, node: Json) -> str:
    """The node's pool; empty if the node has no pool of this environment."""
    return labelled(node) if ours(env, node) else ""


def labelled(node: Json) -> str:
    """Value of the pool label, whichever stack set it; empty without the label."""
    return str((node["metadata"].get("labels") or {}).get(labels.POOL, ""))


def ours(env: Environment, node: Json) -> bool:
    """Whether the node's environment label names this environment or is missing.

    Several stacks may be simulated on one embedded cluster, and their pools have the same names.
    """
    return bool((node["metadata"].get("labels") or {}).get(labels.ENVIRONMENT, env.name) == env.name)


NODE_POOLS = "nodepools.karpenter.sh"


def fetch(env: Environment, kubeconfig: Path, context: str | None = None) -> Objects:
    """Fetch nodes, pods and `kinds`.

    Raises what httpx raises if the cluster cannot be reached, or an OSError if it refuses.
    """
    with answered():
        return _fetch(env, kubeconfig, context)


def _fetch(env: Environment, kubeconfig: Path, context: str | None) -> Objects:
    from kr8s.objects import Node, Pod

    from gpuform.kubernetes import reading

    api = reading.api(kubeconfig, context)
    nodes, pods = every(api, Node), every(api, Pod)
    wanted = kinds(env)
    claims = Claims()
    if dra.CLAIMS in wanted:
        claims = dra.gather(*(every(api, kind) for kind in (dra.SLICES, dra.CLAIMS)))
    node_pools = _known(api, NODE_POOLS) if NODE_POOLS in wanted else ()
    lined_up = [_known(api, kind) for kind in queues.KINDS] if env.queues else [(), ()]
    return Objects(nodes, pods, claims, node_pools, queues.summarise(env, *lined_up))


def kinds(env: Environment) -> tuple[str, ...]:
    """Kinds to fetch beside nodes and pods: DRA slices and claims; NodePools if Karpenter scales a pool."""
    found: tuple[str, ...] = ()
    if any(pool.by_claim for pool in env.pools):
        found += (dra.SLICES, dra.CLAIMS)
    if any(pool.elastic and env.by_karpenter(pool) for pool in env.pools):
        found += (NODE_POOLS,)
    return found


def _known(api: Any, kind: str) -> tuple[Json, ...]:
    """Empty if the CRD is not installed."""
    try:
        return every(api, kind)
    except ValueError:  # what kr8s raises for a kind that the server does not have
        return ()


def every(api: Any, kind: str | type) -> tuple[Json, ...]:
    """The objects of a kind in all namespaces. ValueError if the server does not have the kind."""
    import kr8s

    return tuple(dict(one.raw) for one in api.get(kind, namespace=kr8s.ALL))

"""A cluster's nodes, pods and claims, asked for once and given to whoever tells something of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform import claims as dra
from gpuform.claims import Claims
from gpuform.kubeconfigs import answered
from infra.model import labels
from infra.model.environment import Environment

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Objects:
    """What lies in the cluster, as the API server has it."""

    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    claims: Claims = Claims()  # noqa: RUF009  (frozen)
    node_pools: tuple[Json, ...] = ()
    """Karpenter's, with what they have and their limits."""


def pool_of(env: Environment, node: Json) -> str:
    """The name of the pool that a node was given; empty for none, and for one of another environment."""
    return labelled(node) if ours(env, node) else ""


def labelled(node: Json) -> str:
    """The pool that the node's label says, whosever; empty for none."""
    return str((node["metadata"].get("labels") or {}).get(labels.POOL, ""))


def ours(env: Environment, node: Json) -> bool:
    """Whether it is of this environment, or of nobody's who says so.

    Several stacks may be played on one embedded cluster, and their pools have the same names.
    """
    return bool((node["metadata"].get("labels") or {}).get(labels.ENVIRONMENT, env.name) == env.name)


NODE_POOLS = "nodepools.karpenter.sh"


def fetch(env: Environment, kubeconfig: Path, context: str | None = None) -> Objects:
    """Ask the cluster for nodes, pods and `kinds`.

    Raises what httpx raises when the cluster cannot be reached, or an OSError where it refuses.
    """
    with answered():
        return _fetch(env, kubeconfig, context)


def _fetch(env: Environment, kubeconfig: Path, context: str | None) -> Objects:
    import kr8s
    from kr8s.objects import Node, Pod

    api = kr8s.api(kubeconfig=str(kubeconfig), context=context)
    nodes = tuple(dict(node.raw) for node in Node.list(api=api) if isinstance(node, Node))
    pods = tuple(dict(pod.raw) for pod in Pod.list(api=api, namespace=kr8s.ALL) if isinstance(pod, Pod))
    wanted = kinds(env)
    claims = Claims()
    if dra.CLAIMS in wanted:
        claims = dra.gather(
            *([dict(one.raw) for one in _every(api, kind)] for kind in (dra.SLICES, dra.CLAIMS))
        )
    return Objects(nodes, pods, claims, _node_pools(api) if NODE_POOLS in wanted else ())


def kinds(env: Environment) -> tuple[str, ...]:
    """What else than nodes and pods: claims and what they are of, and Karpenter's where it follows pods."""
    found: tuple[str, ...] = ()
    if any(pool.by_claim for pool in env.pools):
        found += (dra.SLICES, dra.CLAIMS)
    if any(pool.elastic and env.by_karpenter(pool) for pool in env.pools):
        found += (NODE_POOLS,)
    return found


def _node_pools(api: Any) -> tuple[Json, ...]:
    """None where Karpenter's definitions are not there: nothing is elastic then."""
    try:
        return tuple(dict(one.raw) for one in _every(api, NODE_POOLS))
    except ValueError:  # kr8s' word for a kind that the server does not have
        return ()


def _every(api: Any, kind: str) -> Iterable[Any]:
    import kr8s

    found: Iterable[Any] = api.get(kind, namespace=kr8s.ALL)
    return found

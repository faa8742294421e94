"""Checks of an existing cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gpuform.checkout.paths import Paths
from gpuform.clouds.existing.preflight import cluster, controllers, limits, nodes, prometheus
from gpuform.stack.cluster_access import declared_kubeconfig
from gpuform.stack.preflight.check import Check, Finding
from infra.model.environment import Environment

_Part = Callable[[Environment, str], Iterator[Check]]
_OF_NODES = (nodes.checks, nodes.controllers)
_OF_PLATFORM = (prometheus.checks, controllers.checks, limits.checks)


def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    return _run((cluster.checks, *_OF_NODES, *_OF_PLATFORM), env, paths, stack)


def checks_of_nodes(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    """Those of the nodes alone: a GitOps controller applies the platform."""
    return _run(_OF_NODES, env, paths, stack)


def _run(parts: Sequence[_Part], env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    kubeconfig, context = declared_kubeconfig(env, paths)
    by_hand = f"kubectl --kubeconfig {kubeconfig}" + (f" --context {context}" if context else "")
    list_objects = partial(cluster.list_objects, str(kubeconfig), context)
    find = partial(cluster.find_object, str(kubeconfig), context)
    live = cluster.LiveCluster(env, cluster.has_release(paths, stack), list_objects, find)
    for checks_of in parts:
        yield from (check.run(live) for check in checks_of(env, by_hand))

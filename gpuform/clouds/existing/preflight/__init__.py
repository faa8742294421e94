"""Checks of an existing cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.checkout.paths import Paths
from gpuform.clouds.existing.preflight import cluster, controllers, limits, nodes, prometheus
from gpuform.stack.cluster_access import declared_kubeconfig
from gpuform.stack.preflight.check import Finding
from infra.model.environment import Environment


def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    kubeconfig, context = declared_kubeconfig(env, paths)
    by_hand = f"kubectl --kubeconfig {kubeconfig}" + (f" --context {context}" if context else "")
    list_objects = partial(cluster.list_objects, str(kubeconfig), context)
    find = partial(cluster.find_object, str(kubeconfig), context)
    live = cluster.LiveCluster(env, cluster.has_release(paths, stack), list_objects, find)
    parts = (
        cluster.checks,
        nodes.checks,
        nodes.controllers,
        prometheus.checks,
        controllers.checks,
        limits.checks,
    )
    for checks_of in parts:
        yield from (check.run(live) for check in checks_of(env, by_hand))

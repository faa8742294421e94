"""Checks of an existing cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.checkout.paths import Paths
from gpuform.clouds.existing.preflight import cluster, nodes
from gpuform.stack.cluster_access import cluster_of
from gpuform.stack.preflight.check import Finding
from infra.model.environment import Environment


def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    kubeconfig, context = cluster_of(env, paths)
    by_hand = f"kubectl --kubeconfig {kubeconfig}" + (f" --context {context}" if context else "")
    listed = partial(cluster.listed, str(kubeconfig), context)
    parts = cluster.Parts(env, cluster.installed(paths, stack), listed)
    for subject in (cluster.checks, nodes.checks, nodes.controllers):
        yield from (check.run(parts) for check in subject(env, by_hand))

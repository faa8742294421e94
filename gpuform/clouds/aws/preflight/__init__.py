"""Preflight of an AWS account: whether the environment can be created in it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuform.checkout.paths import Paths
from gpuform.clients.aws.api import client
from gpuform.clouds.aws.preflight import account, network, offerings, quotas, reach, versions
from gpuform.clouds.aws.preflight.account_api import Aws, Clients
from gpuform.clouds.aws.preflight.reach import Here
from gpuform.stack.preflight.check import Check, Finding, not_installed, run_in_order
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of


def checks(
    env: Environment, paths: Paths, stack: str, clients: Clients | None = None, here: Here | None = None
) -> Iterator[Finding]:
    """Without credentials or the region, the rest is SKIP. Tests set ``clients`` and ``here``."""
    cluster = cluster_of(env)
    first = (account.credentials(cluster), account.region(cluster))
    missing = "" if clients else not_installed("botocore", "botocore", "offline")
    aws = Aws(cluster.region, clients or client)
    return run_in_order(first, _others(env, here or Here()), aws, missing)


def _others(env: Environment, here: Here) -> Iterator[Check]:
    yield from account.zones(cluster_of(env))
    yield from network.checks(env)
    yield from reach.checks(env, here)
    yield from account.access(env)
    yield from quotas.checks(env)
    yield from offerings.checks(env)
    yield from offerings.reservations(env)
    yield from account.roles(env)
    yield from versions.checks(env)

"""Preflight of an AWS account: whether the environment can be created in it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuform.checkout.paths import Paths
from gpuform.clients.aws.api import create_client
from gpuform.clouds.aws.preflight import account, endpoint, network, offerings, quotas, versions
from gpuform.clouds.aws.preflight.account import Aws, CreateClient
from gpuform.clouds.aws.preflight.endpoint import LocalMachine
from gpuform.stack.preflight.check import Check, Finding, missing_client, run_in_order
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of


def checks(
    env: Environment,
    paths: Paths,
    stack: str,
    clients: CreateClient | None = None,
    machine: LocalMachine | None = None,
) -> Iterator[Finding]:
    """Without credentials or the region, the rest is SKIP. Tests set ``clients`` and ``machine``."""
    cluster = cluster_of(env)
    first_checks = (account.credentials(cluster), account.region(cluster))
    missing = "" if clients else missing_client("botocore", "botocore", "aws")
    aws = Aws(cluster.region, clients or create_client)
    return run_in_order(first_checks, _others(env, machine or LocalMachine()), aws, missing)


def _others(env: Environment, machine: LocalMachine) -> Iterator[Check]:
    yield from account.zones(cluster_of(env))
    yield from network.checks(env)
    yield from endpoint.checks(env, machine)
    yield from account.access(env)
    yield from quotas.checks(env)
    yield from offerings.checks(env)
    yield from offerings.reservations(env)
    yield from account.roles(env)
    yield from versions.checks(env)

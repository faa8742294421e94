"""Preflight of an OpenStack project: whether the environment can be created in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.checkout.paths import Paths
from gpuform.clients.openstack.cloud import connect
from gpuform.clouds.openstack.preflight import account, operator, quotas, references
from gpuform.clouds.openstack.preflight.project import Project, clusters_in_state
from gpuform.stack.preflight.check import Check, Finding, missing_client, run_in_order
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of


def checks(env: Environment, paths: Paths, stack: str) -> Iterator[Finding]:
    """Without credentials or Magnum, the rest is SKIP."""
    declared = cluster_of(env)
    connected = partial(connect, declared.cloud, declared.region)
    project = Project(connected, env.name, clusters_in_state(paths, stack))
    return checks_of(env, stack, project, missing_client("openstack", "openstacksdk", "openstack"))


def checks_of(env: Environment, stack: str, project: Project, missing: str = "") -> Iterator[Finding]:
    """The findings about this project; ``missing`` is why it cannot be asked."""
    return run_in_order(account.first_checks(cluster_of(env)), _others(env, stack), project, missing)


def _others(env: Environment, stack: str) -> Iterator[Check]:
    yield from account.cluster_check(env, stack)
    yield from references.checks(env)
    yield from operator.checks(env)
    yield from references.flavors(env)
    yield from quotas.checks(env)

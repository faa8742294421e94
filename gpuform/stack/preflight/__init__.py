"""Preflight: checks of an account or a cluster before anything is created in it. Read-only."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from gpuform.checkout.paths import Paths
from gpuform.clouds.aws.api import client
from gpuform.stack.preflight import (
    access,
    account,
    charts,
    existing,
    existing_health,
    existing_nodes,
    network,
    offerings,
    quotas,
    reach,
    reservations,
    roles,
    versions,
)
from gpuform.stack.preflight.aws import Aws, Clients
from gpuform.stack.preflight.check import Check
from gpuform.stack.preflight.here import Here
from gpuform.usage.finding import Finding
from infra.model.aws import AwsCluster
from infra.model.clusters import ExistingCluster
from infra.model.environment import Environment
from infra.model.openstack import OpenstackCluster

__all__ = ["ASKED", "findings"]

ASKED = ("aws", "openstack", "existing")
"""Kinds of clusters with an account, a project or an API server, which is checked before an update."""

_ELSEWHERE = {
    "embedded": ("the cluster runs on this machine: `gpuform doctor` without a stack checks it", ""),
    "hosts": ("own hosts are checked over ssh, by another command", "gpuform hosts check {stack}"),
}
"""Cluster kinds without anything to check: the reason, and the command that checks them."""


def findings(
    env: Environment,
    stack: str = "STACK",
    clients: Clients | None = None,
    paths: Paths | None = None,
    here: Here | None = None,
) -> Iterator[Finding]:
    """All checks for the environment, one after another; ``stack`` is the name to use in suggested commands.

    Without credentials, or without the region, the rest is SKIP. ``clients`` creates AWS clients; ``paths``
    locates the stack's state, which shows whether an OpenStack cluster of this name is the stack's own.
    """
    if isinstance(env.cluster, AwsCluster):
        yield from _of_aws(env, env.cluster, clients, here or Here())
    elif isinstance(env.cluster, OpenstackCluster):
        from gpuform.stack.preflight import openstack
        from gpuform.stack.preflight.openstack.held import held

        yield from openstack.findings(env, stack, held=held(paths, stack) if paths else None)
    elif isinstance(env.cluster, ExistingCluster):
        parts, by_hand = existing.look(env, paths, stack)
        for subject in (existing, existing_nodes, existing_health):
            yield from (check.run(parts) for check in subject.checks(env, by_hand))
    else:
        fact, fix = _ELSEWHERE[env.cluster.kind]
        yield Finding(f"stack {stack}", "SKIP", f"nothing to check: {fact}", fix.format(stack=stack))
        return
    if paths is not None:
        yield from charts.findings(env, paths, stack)


def _of_aws(env: Environment, cluster: AwsCluster, clients: Clients | None, here: Here) -> Iterator[Finding]:
    aws = Aws(cluster.region, clients or client)
    stopped = _without_botocore() if clients is None else ""
    for check in (account.credentials(cluster), account.region(cluster)):
        found = check.skipped(stopped) if stopped else check.run(aws)
        if found.verdict == "FAIL":
            stopped = f"see {check.subject}"
        yield found
    for check in _checks(env, cluster, here):
        yield check.skipped(stopped) if stopped else check.run(aws)


def _checks(env: Environment, cluster: AwsCluster, here: Here) -> Iterator[Check]:
    yield from account.zones(cluster)
    yield from network.checks(env)
    yield from reach.checks(env, here)
    yield from access.checks(env)
    for subject in (quotas, offerings, reservations, roles, versions):
        yield from subject.checks(env)


def _without_botocore() -> str:
    """Why nothing can be checked; gpuform creates stacks without botocore, so this is not a failure."""
    if importlib.util.find_spec("botocore"):
        return ""
    return "botocore is not installed: pip install 'gpuform[offline]'"

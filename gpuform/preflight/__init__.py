"""Preflight: what can be known of an account before anything is made in it. It asks, and changes nothing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from gpuform.aws.api import client
from gpuform.finding import Finding
from gpuform.paths import Paths
from gpuform.preflight import access, account, offerings, quotas, reservations, roles, versions
from gpuform.preflight.aws import Aws, Clients
from gpuform.preflight.check import Check
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.model.openstack import OpenstackCluster

__all__ = ["ASKED", "findings"]

ASKED = ("aws", "openstack")
"""Kinds of clusters that have an account or a project, which is asked before an update."""

_ELSEWHERE = {
    "embedded": ("the cluster runs on this machine: `gpuform doctor` without a stack says it all", ""),
    "existing": ("the cluster and its nodes are there already, and are not made from here", ""),
    "hosts": ("own hosts are asked over ssh, which this does not do", "gpuform hosts check {stack}"),
}
"""Clusters that no account is asked about: why, and the command that does look."""


def findings(
    env: Environment, stack: str = "STACK", clients: Clients | None = None, paths: Paths | None = None
) -> Iterator[Finding]:
    """Every check that follows from the environment, one after another; ``stack`` is for the commands.

    Without credentials, or without the region, the rest is SKIP. ``clients`` makes those of AWS; ``paths`` is
    where the stack's state may lie, by which a cluster of its name at OpenStack is known as its own.
    """
    if isinstance(env.cluster, AwsCluster):
        yield from _of_aws(env, env.cluster, clients)
    elif isinstance(env.cluster, OpenstackCluster):
        from gpuform.preflight import openstack
        from gpuform.preflight.openstack.held import held

        yield from openstack.findings(env, stack, held=held(paths, stack) if paths else None)
    else:
        fact, fix = _ELSEWHERE[env.cluster.kind]
        yield Finding(f"stack {stack}", "SKIP", f"nothing to check: {fact}", fix.format(stack=stack))


def _of_aws(env: Environment, cluster: AwsCluster, clients: Clients | None) -> Iterator[Finding]:
    aws = Aws(cluster.region, clients or client)
    stopped = _without_botocore() if clients is None else ""
    for check in (account.credentials(cluster), account.region(cluster)):
        found = check.skipped(stopped) if stopped else check.run(aws)
        if found.verdict == "FAIL":
            stopped = f"see {check.subject}"
        yield found
    for check in _checks(env, cluster):
        yield check.skipped(stopped) if stopped else check.run(aws)


def _checks(env: Environment, cluster: AwsCluster) -> Iterator[Check]:
    yield from account.zones(cluster)
    yield from access.checks(env)
    for subject in (quotas, offerings, reservations, roles, versions):
        yield from subject.checks(env)


def _without_botocore() -> str:
    """Why nothing can be asked; gpuform makes a stack without botocore, so that this is no failure."""
    if importlib.util.find_spec("botocore"):
        return ""
    return "botocore is not installed: pip install 'gpuform[offline]'"

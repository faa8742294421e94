"""Preflight of an OpenStack project: whether the environment can be created in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial

from gpuform.clouds.openstack.cloud import connect
from gpuform.stack.preflight.check import Check
from gpuform.stack.preflight.openstack import account, cluster, flavors, operator, parts, quotas
from gpuform.stack.preflight.openstack.project import Connect, Held, Project
from gpuform.usage.finding import Finding
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of

__all__ = ["findings"]


def findings(
    env: Environment, stack: str = "STACK", cloud: Connect | None = None, held: Held | None = None
) -> Iterator[Finding]:
    """All checks for the environment; if one that the others need fails, the others are SKIP.

    ``held`` is what the stack's state contains; None if the state was not read. ``cloud`` is for tests.
    """
    declared = cluster_of(env)
    project = Project(cloud or partial(connect, declared.cloud, declared.region), env.name, held)
    stopped = _without_sdk() if cloud is None else ""
    for check in account.first(declared):
        found = check.skipped(stopped) if stopped else check.run(project)
        if found.verdict == "FAIL":
            stopped = f"see {check.subject}"
        yield found
    for check in _checks(env, stack):
        yield check.skipped(stopped) if stopped else check.run(project)


def _checks(env: Environment, stack: str) -> Iterator[Check]:
    yield from cluster.checks(env, stack)
    for subject in (parts, operator, flavors, quotas):
        yield from subject.checks(env)


def _without_sdk() -> str:
    """Why nothing can be checked; gpuform creates stacks without openstacksdk, so this is not a failure."""
    if importlib.util.find_spec("openstack"):
        return ""
    return "openstacksdk is not installed: pip install 'gpuform[openstack]'"

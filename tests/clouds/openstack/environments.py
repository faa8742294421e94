"""Environments on OpenStack, and the findings of their preflight."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuform.clouds.openstack.preflight import checks_of
from gpuform.clouds.openstack.preflight.project import Project, StateClusters
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from infra.model.environment import Environment
from tests.build.openstack_stacks import small
from tests.fakes.openstack import FakeCloud

T4 = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 2}
CLUSTER = {"uuid": "c-1", "name": "research", "status": "CREATE_COMPLETE"}
A100 = {"name": "gpu-a100", "machine": "g4.p1.40g", "elastic": {"min": 1, "max": {"nodes": 4}}}


def environment(
    *pools: dict[str, Any], operator: dict[str, Any] | None = None, **cluster: Any
) -> Environment:
    base = {"cloud": None, "region": "cern", "keypair": "gpu-admins"}
    content = small(*(pools or (T4, A100)), **{**base, **cluster})
    return parse(content if operator is None else {**content, "gpu_operator": operator})


def findings(
    cloud: FakeCloud, env: Environment, state: StateClusters | None = None, **more: Any
) -> dict[str, Finding]:
    connect = partial(cloud.connect, **{"region": "cern", **more})
    results = list(checks_of(env, "research", Project(connect, env.name, state)))
    by_subject = {finding.subject: finding for finding in results}
    assert len(by_subject) == len(results), "two checks of one name"
    by_hand = ("openstack ", "on each node")
    assert all(finding.check.startswith(by_hand) for finding in results), "each names a command"
    return by_subject

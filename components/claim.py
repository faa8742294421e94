"""The template of a workload's claim, where it has its GPUs by claim."""

from __future__ import annotations

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.model.workload import Workload
from infra.plan import workloads


def claim(
    name: str, environment: Environment, workload: Workload, parent: pulumi.Resource
) -> list[pulumi.Resource]:
    """Register it beside the workload's object ``name``, which has to wait for it; empty without one."""
    template = workloads.claim_template(environment, workload)
    if template is None:
        return []
    # A template cannot be changed: another one is another resource, and has another name.
    ending = str(template["metadata"]["name"]).removeprefix(workload.name)
    return [resource(f"{name}{ending}", template, pulumi.ResourceOptions(parent=parent))]

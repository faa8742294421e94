"""The ResourceClaimTemplate of a workload that gets its GPUs by claim (DRA)."""

from __future__ import annotations

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.model.workload import Workload
from infra.plan import workloads


def claim(
    name: str, environment: Environment, workload: Workload, parent: pulumi.Resource
) -> list[pulumi.Resource]:
    """Register the template, which the workload's object ``name`` must depend on; empty without a claim."""
    template = workloads.claim_template(environment, workload)
    if template is None:
        return []
    # A template is immutable: changed content is another resource with another name.
    ending = str(template["metadata"]["name"]).removeprefix(workload.name)
    return [resource(f"{name}{ending}", template, pulumi.ResourceOptions(parent=parent))]

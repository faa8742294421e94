"""The environment's workloads."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.workloads import manifests


@dataclass(frozen=True, kw_only=True)
class WorkloadsArgs:
    """Whose workloads."""

    environment: Environment


class Workloads(pulumi.ComponentResource):
    """Pods, Deployments and Jobs; the update waits until each runs, and says why one does not."""

    def __init__(self, name: str, args: WorkloadsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register one resource per workload, after the template of its claim if it has one."""
        super().__init__("gpuform:platform:Workloads", name, None, opts)
        before: list[pulumi.Resource] = []
        for manifest in manifests(args.environment):
            metadata = manifest["metadata"]
            made = resource(
                f"{name}-{metadata['namespace']}-{metadata['name']}",
                manifest,
                pulumi.ResourceOptions(parent=self, depends_on=before),
            )
            before = [made] if manifest["kind"] == "ResourceClaimTemplate" else []
        self.register_outputs({})

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
        """Register one resource per workload."""
        super().__init__("gpuform:platform:Workloads", name, None, opts)
        for manifest in manifests(args.environment):
            metadata = manifest["metadata"]
            resource(
                f"{name}-{metadata['namespace']}-{metadata['name']}",
                manifest,
                pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})

"""The scheduler that packs GPU nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.scheduler import manifests


@dataclass(frozen=True, kw_only=True)
class SchedulerArgs:
    """Whose pods with GPUs it places."""

    environment: Environment


class Scheduler(pulumi.ComponentResource):
    """A Deployment with its configuration and its rights; on the embedded control plane without the former.

    Pods that name it wait while it is away: it comes before them and goes after them.
    """

    def __init__(self, name: str, args: SchedulerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register its objects, each after those before it; another configuration is another ConfigMap."""
        super().__init__("gpuform:platform:Scheduler", name, None, opts)
        before: list[pulumi.Resource] = []
        for manifest in manifests(args.environment):
            metadata = manifest["metadata"]
            role = f"{name}-{manifest['kind']}"
            if manifest["kind"] != "ConfigMap":  # whose name is another one with each content
                role += f"-{metadata['name']}"
            child = pulumi.ResourceOptions(parent=self, depends_on=list(before))
            before.append(resource(role, manifest, child))
        self.register_outputs({})

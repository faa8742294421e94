"""The scheduler that packs GPU nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi

from components.program import register
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
        register(self, name, manifests(args.environment), _role)
        self.register_outputs({})


def _role(manifest: dict[str, Any]) -> str:
    """With its name, but for the ConfigMap, whose name is another one with each content."""
    kind: str = manifest["kind"]
    return kind if kind == "ConfigMap" else f"{kind}-{manifest['metadata']['name']}"

"""The scheduler that packs GPU nodes."""

from __future__ import annotations

from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.program import register
from infra.plan.scheduler import manifests


class Scheduler(pulumi.ComponentResource):
    """A Deployment with its configuration and RBAC objects; no Deployment on the embedded control plane.

    Pods that name it wait while it is down: it is created before them and deleted after them.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Scheduler", name, None, opts)
        register(self, name, manifests(args.environment), _role)
        self.register_outputs({})


def _role(manifest: dict[str, Any]) -> str:
    """Kind and name; only the kind for the ConfigMap, as its name changes with its content."""
    kind: str = manifest["kind"]
    return kind if kind == "ConfigMap" else f"{kind}-{manifest['metadata']['name']}"

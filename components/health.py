"""The loop that acts on nodes with a broken GPU."""

from __future__ import annotations

from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.program import register
from infra.plan.health import manifests


class HealthLoop(pulumi.ComponentResource):
    """A Deployment with its program and RBAC objects, and what Prometheus needs to scrape it.

    When it is deleted, nodes keep their taint: nothing else knows whether they are repaired.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:HealthLoop", name, None, opts)
        register(self, name, manifests(args.environment), _role)
        self.register_outputs({})


def _role(manifest: dict[str, Any]) -> str:
    kind: str = manifest["kind"]
    return f"{kind}-{manifest['metadata']['name']}" if kind in ("Role", "RoleBinding") else kind

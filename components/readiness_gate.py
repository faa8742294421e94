"""The gate that lets pods onto new GPU nodes."""

from __future__ import annotations

from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.program import by_kind, register
from infra.model.checks import TRIAL
from infra.plan.readiness_gate import manifests


class ReadinessGate(pulumi.ComponentResource):
    """A Deployment with its program and RBAC objects.

    Waiting nodes keep waiting while it is down. It is deleted after the pools of nodes that wait for it.
    """

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:ReadinessGate", name, None, opts)
        register(self, name, manifests(args.environment), _role)
        self.register_outputs({})


def _role(manifest: dict[str, Any]) -> str:
    return f"{'trial-' if manifest['metadata'].get('namespace') == TRIAL else ''}{by_kind(manifest)}"

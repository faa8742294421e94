"""The gate that lets pods onto new GPU nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.program import register
from infra.model.environment import Environment
from infra.plan.readiness_gate import manifests


@dataclass(frozen=True, kw_only=True)
class ReadinessGateArgs:
    """The environment with the pools of nodes that wait for it."""

    environment: Environment


class ReadinessGate(pulumi.ComponentResource):
    """A Deployment with its program and RBAC objects.

    Waiting nodes keep waiting while it is down. It is deleted after the pools of nodes that wait for it.
    """

    def __init__(
        self, name: str, args: ReadinessGateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:platform:ReadinessGate", name, None, opts)
        register(self, name, manifests(args.environment))
        self.register_outputs({})

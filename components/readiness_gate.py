"""The gate that lets pods onto new GPU nodes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.program import register
from infra.model.environment import Environment
from infra.plan.readiness_gate import manifests


@dataclass(frozen=True, kw_only=True)
class ReadinessGateArgs:
    """Whose pools have nodes that wait for it."""

    environment: Environment


class ReadinessGate(pulumi.ComponentResource):
    """A Deployment with its program and its rights.

    Nodes that wait keep waiting while it is away. It goes after the pools whose nodes wait for it.
    """

    def __init__(
        self, name: str, args: ReadinessGateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register its objects, each after those before it: it starts with its program and its rights."""
        super().__init__("gpuform:platform:ReadinessGate", name, None, opts)
        register(self, name, manifests(args.environment))
        self.register_outputs({})

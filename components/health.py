"""The loop that acts on nodes with a broken GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi

from components.program import register
from infra.model.environment import Environment
from infra.plan.health import manifests


@dataclass(frozen=True, kw_only=True)
class HealthLoopArgs:
    """Whose nodes it acts on."""

    environment: Environment


class HealthLoop(pulumi.ComponentResource):
    """A Deployment with its program and its rights, and what makes its figures known.

    When it goes, nodes keep the taint that they have then: nobody is left to say that they are well.
    """

    def __init__(self, name: str, args: HealthLoopArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register its objects, each after those before it; another program is another ConfigMap."""
        super().__init__("gpuform:platform:HealthLoop", name, None, opts)
        register(self, name, manifests(args.environment), _role)
        self.register_outputs({})


def _role(manifest: dict[str, Any]) -> str:
    kind: str = manifest["kind"]
    return f"{kind}-{manifest['metadata']['name']}" if kind in ("Role", "RoleBinding") else kind

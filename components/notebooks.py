"""What all notebooks of an environment share."""

from __future__ import annotations

from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.program import register
from infra.plan.notebooks import manifests


class Notebooks(pulumi.ComponentResource):
    """The culler with its program and RBAC objects; on the embedded cluster a class of simulated volumes."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Notebooks", name, None, opts)
        register(self, name, manifests(args.environment), _role)
        self.register_outputs({})


def _role(manifest: dict[str, Any]) -> str:
    kind: str = manifest["kind"]
    return f"{kind}-{manifest['metadata']['namespace']}" if kind in ("Role", "RoleBinding") else kind

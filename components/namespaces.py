"""The namespaces of the operator and the workloads."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.workloads import namespaces


@dataclass(frozen=True, kw_only=True)
class NamespacesArgs:
    """The environment with the namespaces."""

    environment: Environment


class Namespaces(pulumi.ComponentResource):
    """The operator's namespace and those of the workloads, with their Pod Security labels."""

    def __init__(self, name: str, args: NamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Namespaces", name, None, opts)
        for manifest in namespaces(args.environment):
            resource(f"{name}-{manifest['metadata']['name']}", manifest, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

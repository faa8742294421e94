"""The namespaces of the operator and the workloads."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs
from components.manifest import resource
from infra.plan.workloads import namespaces


class Namespaces(pulumi.ComponentResource):
    """The operator's namespace and those of the workloads, with their Pod Security labels."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Namespaces", name, None, opts)
        for manifest in namespaces(args.environment):
            resource(f"{name}-{manifest['metadata']['name']}", manifest, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

"""KEDA, which scales Deployments by their requests."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs
from components.chart import installed
from infra.plan import scaling

TIMEOUT_S = 300


class Scaling(pulumi.ComponentResource):
    """KEDA's release with its CRDs; the objects that use it belong to the workloads."""

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Scaling", name, None, opts)
        planned = scaling.release(args.environment)
        assert planned is not None, "nothing is scaled"
        installed(f"{name}-release", planned, TIMEOUT_S, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

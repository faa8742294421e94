"""The GPU operator's Helm release."""

from __future__ import annotations

from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.chart import installed
from infra.plan.gpu_operator import release

TIMEOUT_S = 600  # compiling a driver on the node takes minutes; the embedded cluster needs seconds


class GpuOperator(pulumi.ComponentResource):
    """The Helm release as one resource: rendered objects would skip the chart's hooks."""

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:GpuOperator", name, None, opts)
        made = installed(
            f"{name}-release",
            release(args.environment),
            TIMEOUT_S,
            pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            disable_openapi_validation=True,  # the chart requires it if its hook upgrades the CRDs
        )
        self.status = made.status
        self.register_outputs({"status": self.status})

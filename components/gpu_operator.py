"""The GPU operator's Helm release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi

from components.chart import installed
from infra.model.environment import Environment
from infra.plan.gpu_operator import release

TIMEOUT_S = 600  # a driver that is compiled on the node takes minutes; the embedded cluster needs seconds


@dataclass(frozen=True, kw_only=True)
class GpuOperatorArgs:
    """Whose pools decide the chart's values."""

    environment: Environment


class GpuOperator(pulumi.ComponentResource):
    """The release as one resource: its chart's hooks run, which a list of rendered objects would skip."""

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the release; a failed upgrade is rolled back."""
        super().__init__("gpuform:platform:GpuOperator", name, None, opts)
        made = installed(
            f"{name}-release",
            release(args.environment),
            TIMEOUT_S,
            pulumi.ResourceOptions(parent=self, delete_before_replace=True),
            disable_openapi_validation=True,  # as the chart asks where its hook upgrades its CRDs
        )
        self.status = made.status
        self.register_outputs({"status": self.status})

"""The Helm release of NVIDIA's device plugin, where there is no operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi

from components.chart import installed
from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.device_plugin import release, runtime_class

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class DevicePluginArgs:
    """Whose pools decide the chart's values."""

    environment: Environment


class DevicePlugin(pulumi.ComponentResource):
    """The chart as one resource, and the runtime class that its pods start with where they need one.

    It installs no driver and no toolkit; a node without them shows in its pods, which do not get ready.
    """

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: DevicePluginArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the release; a failed upgrade is rolled back."""
        super().__init__("gpuform:platform:DevicePlugin", name, None, opts)
        wanted = runtime_class(args.environment)
        child = pulumi.ResourceOptions(parent=self)
        first = [resource(f"{name}-runtime-class", wanted, child)] if wanted else []
        made = installed(
            f"{name}-release",
            release(args.environment),
            TIMEOUT_S,
            pulumi.ResourceOptions(parent=self, depends_on=first, delete_before_replace=True),
        )
        self.status = made.status
        self.register_outputs({"status": self.status})

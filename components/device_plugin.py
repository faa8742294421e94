"""The Helm release of NVIDIA's device plugin, used without the GPU operator."""

from __future__ import annotations

from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.chart import installed
from components.manifest import resource
from infra.plan.device_plugin import release, runtime_class

TIMEOUT_S = 300


class DevicePlugin(pulumi.ComponentResource):
    """The Helm release, and the RuntimeClass of its pods if they need one.

    It installs neither driver nor toolkit; on a node without them its pods do not become ready.
    """

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
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

"""The EFA device plugin's Helm release."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.chart import installed
from infra.plan.gpu_operator import ChartRelease

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class EfaDevicePluginArgs:
    """The planned release."""

    release: ChartRelease


class EfaDevicePlugin(pulumi.ComponentResource):
    """A DaemonSet on the nodes with Elastic Fabric Adapters; installs without such a node, too."""

    def __init__(
        self, name: str, args: EfaDevicePluginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpuform:aws:EfaDevicePlugin", name, None, opts)
        installed(f"{name}-release", args.release, TIMEOUT_S, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

"""The EFA device plugin's Helm release."""

from __future__ import annotations

import pulumi

from components.args import ReleaseArgs
from components.chart import installed

TIMEOUT_S = 300


class EfaDevicePlugin(pulumi.ComponentResource):
    """A DaemonSet on the nodes with Elastic Fabric Adapters; installs without such a node, too."""

    def __init__(self, name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:EfaDevicePlugin", name, None, opts)
        installed(f"{name}-release", args.release, TIMEOUT_S, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

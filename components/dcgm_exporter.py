"""The Helm release of dcgm-exporter, used without the GPU operator."""

from __future__ import annotations

import pulumi

from components.args import ReleaseArgs
from components.chart import installed

TIMEOUT_S = 300


class DcgmExporter(pulumi.ComponentResource):
    """A DaemonSet on the nodes with GPUs, its Service and, if requested, its ServiceMonitor."""

    def __init__(self, name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:DcgmExporter", name, None, opts)
        installed(f"{name}-release", args.release, TIMEOUT_S, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

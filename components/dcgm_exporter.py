"""The Helm release of dcgm-exporter, used without the GPU operator."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.chart import installed
from infra.plan.gpu_operator import ChartRelease

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class DcgmExporterArgs:
    """The planned release."""

    release: ChartRelease


class DcgmExporter(pulumi.ComponentResource):
    """A DaemonSet on the nodes with GPUs, its Service and, if requested, its ServiceMonitor."""

    def __init__(self, name: str, args: DcgmExporterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:DcgmExporter", name, None, opts)
        installed(f"{name}-release", args.release, TIMEOUT_S, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})

"""The Helm release of NVIDIA's DRA driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pulumi
from pulumi_kubernetes.helm.v3 import Release

from infra.plan.gpu_operator import ChartRelease

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class DraDriverArgs:
    """The planned release."""

    release: ChartRelease


class DraDriver(pulumi.ComponentResource):
    """A DaemonSet on nodes whose GPUs are claimed, and device classes; no node needs to be there."""

    def __init__(self, name: str, args: DraDriverArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the release."""
        super().__init__("gpuform:platform:DraDriver", name, None, opts)
        planned = args.release
        Release(
            f"{name}-release",
            # A local chart is named from the program's folder, so that no state says where the checkout lies.
            chart=planned.chart if planned.version else os.path.relpath(ROOT / planned.chart),
            version=planned.version,
            namespace=planned.namespace,
            name=planned.name,
            values=planned.values,
            skip_crds=True,  # compute domains are switched off, and the operator's chart has theirs, too
            atomic=True,
            timeout=TIMEOUT_S,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

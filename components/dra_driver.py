"""The Helm release of NVIDIA's DRA driver."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.helm.v3 import Release

from infra.plan.gpu_operator import ChartRelease

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
            chart=planned.chart,
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

"""The EFA device plugin's Helm release."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from infra.plan.gpu_operator import ChartRelease

TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class EfaDevicePluginArgs:
    """The planned release."""

    release: ChartRelease


class EfaDevicePlugin(pulumi.ComponentResource):
    """A DaemonSet on the nodes with Elastic Fabric Adapters; it needs none of them to be there."""

    def __init__(
        self, name: str, args: EfaDevicePluginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register the release."""
        super().__init__("gpuform:aws:EfaDevicePlugin", name, None, opts)
        planned = args.release
        Release(
            f"{name}-release",
            chart=planned.chart,
            version=planned.version,
            repository_opts=RepositoryOptsArgs(repo=planned.repository) if planned.repository else None,
            namespace=planned.namespace,
            name=planned.name,
            values=planned.values,
            atomic=True,
            timeout=TIMEOUT_S,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

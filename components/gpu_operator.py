"""The GPU operator's Helm release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

TIMEOUT_S = 600  # a driver that is compiled on the node takes minutes; the embedded cluster needs seconds


@dataclass(frozen=True, kw_only=True)
class GpuOperatorArgs:
    """One chart at one version with the values that the plan derived; ``repository`` is None for a local chart."""

    chart: str
    version: str | None
    repository: str | None
    namespace: str
    release_name: str
    values: dict[str, Any]


class GpuOperator(pulumi.ComponentResource):
    """The release as one resource: its chart's hooks run, which a list of rendered objects would skip."""

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the release; a failed upgrade is rolled back."""
        super().__init__("gpuform:platform:GpuOperator", name, None, opts)
        release = Release(
            f"{name}-release",
            chart=args.chart,
            version=args.version,
            repository_opts=RepositoryOptsArgs(repo=args.repository) if args.repository else None,
            namespace=args.namespace,
            name=args.release_name,
            values=args.values,
            atomic=True,
            timeout=TIMEOUT_S,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.status = release.status
        self.register_outputs({"status": self.status})

"""The GPU operator's Helm release."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from infra.model.environment import Environment
from infra.plan.gpu_operator import release

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 600  # a driver that is compiled on the node takes minutes; the embedded cluster needs seconds


@dataclass(frozen=True, kw_only=True)
class GpuOperatorArgs:
    """Whose pools decide the chart's values."""

    environment: Environment


class GpuOperator(pulumi.ComponentResource):
    """The release as one resource: its chart's hooks run, which a list of rendered objects would skip."""

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the release; a failed upgrade is rolled back."""
        super().__init__("gpuform:platform:GpuOperator", name, None, opts)
        planned = release(args.environment)
        installed = Release(
            f"{name}-release",
            # A local chart is named from the program's folder, so that no state says where the checkout lies.
            chart=planned.chart if planned.repository else os.path.relpath(ROOT / planned.chart),
            version=planned.version,
            repository_opts=RepositoryOptsArgs(repo=planned.repository) if planned.repository else None,
            namespace=planned.namespace,
            name=planned.name,
            values=planned.values,
            atomic=True,
            timeout=TIMEOUT_S,
            disable_openapi_validation=True,  # as the chart asks where its hook upgrades its CRDs
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        self.status = installed.status
        self.register_outputs({"status": self.status})

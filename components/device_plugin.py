"""The Helm release of NVIDIA's device plugin, where there is no operator."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.device_plugin import release, runtime_class

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 300


@dataclass(frozen=True, kw_only=True)
class DevicePluginArgs:
    """Whose pools decide the chart's values."""

    environment: Environment


class DevicePlugin(pulumi.ComponentResource):
    """The chart as one resource, and the runtime class that its pods start with where they need one.

    It installs no driver and no toolkit; a node without them shows in its pods, which do not get ready.
    """

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: DevicePluginArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the release; a failed upgrade is rolled back."""
        super().__init__("gpuform:platform:DevicePlugin", name, None, opts)
        planned, wanted = release(args.environment), runtime_class(args.environment)
        child = pulumi.ResourceOptions(parent=self)
        first = [resource(f"{name}-runtime-class", wanted, child)] if wanted else []
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
            opts=pulumi.ResourceOptions(parent=self, depends_on=first, delete_before_replace=True),
        )
        self.status = installed.status
        self.register_outputs({"status": self.status})

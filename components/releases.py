"""Components that are one Helm release each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pulumi

from components.chart import installed
from components.manifest import Manifest, resource
from infra.plan.charts import ChartRelease


@dataclass(frozen=True, kw_only=True)
class ReleaseArgs:
    """The release, and objects that must exist before it, by the last part of their resource names."""

    release: ChartRelease
    before: Mapping[str, Manifest] = field(default_factory=dict)


class ReleaseComponent(pulumi.ComponentResource):
    """One Helm release as one resource: rendered objects would skip the chart's hooks."""

    TYPE: ClassVar[str]
    TIMEOUT_S: ClassVar[int] = 300
    SETTINGS: ClassVar[Mapping[str, Any]] = {}
    """Further arguments of the release."""
    STATUS: ClassVar[bool] = False
    """Whether the release's status is an output, and the release is deleted before its replacement comes."""

    def __init__(self, name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(self.TYPE, name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        before = [resource(f"{name}-{role}", manifest, child) for role, manifest in args.before.items()]
        inside = pulumi.ResourceOptions(
            parent=self, depends_on=before, delete_before_replace=self.STATUS or None
        )
        made = installed(f"{name}-release", args.release, self.TIMEOUT_S, inside, **self.SETTINGS)
        self.register_outputs({"status": made.status} if self.STATUS else {})


class GpuOperator(ReleaseComponent):
    """NVIDIA's GPU operator."""

    TYPE = "gpuform:platform:GpuOperator"
    TIMEOUT_S = 600  # compiling a driver on the node takes minutes; the embedded cluster needs seconds
    SETTINGS: ClassVar = {"disable_openapi_validation": True}  # required if the chart's hook upgrades CRDs
    STATUS = True


class DevicePlugin(ReleaseComponent):
    """NVIDIA's device plugin, used without the GPU operator.

    It installs neither driver nor toolkit; on a node without them its pods do not become ready.
    """

    TYPE = "gpuform:platform:DevicePlugin"
    STATUS = True


class DcgmExporter(ReleaseComponent):
    """dcgm-exporter, used without the GPU operator, its Service and, if requested, its ServiceMonitor."""

    TYPE = "gpuform:platform:DcgmExporter"


class DraDriver(ReleaseComponent):
    """NVIDIA's DRA driver on nodes with GPUs by claim, and device classes."""

    TYPE = "gpuform:platform:DraDriver"
    # Compute domains are off, and the operator's chart has their CRDs, too.
    SETTINGS: ClassVar = {"skip_crds": True}


class EfaDevicePlugin(ReleaseComponent):
    """A DaemonSet on the nodes with Elastic Fabric Adapters; installs without such a node, too."""

    TYPE = "gpuform:aws:EfaDevicePlugin"


class Scaling(ReleaseComponent):
    """KEDA with its CRDs; the objects that use it belong to the workloads."""

    TYPE = "gpuform:platform:Scaling"

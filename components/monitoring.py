"""The Helm release of kube-prometheus-stack, and the objects that it selects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.chart import installed
from components.manifest import Manifest, resource
from infra.plan.charts import ChartRelease

TIMEOUT_S = 600  # a dozen images, a volume, and jobs that make the webhook's certificate


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """The release; ``objects`` are PrometheusRules and dashboards, ``counters`` the exporter's ConfigMap."""

    release: ChartRelease
    counters: Sequence[Manifest] = ()
    objects: Sequence[Manifest] = ()


class Monitoring(pulumi.ComponentResource):
    """Prometheus and its stack, the exporter's counters, rules and dashboards.

    It creates no Secret: users create those that the values name. Until they exist, Prometheus or
    Alertmanager waits, and the release does not.
    """

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        for manifest in args.counters:
            # Changed content is another ConfigMap: the old one is deleted once the exporter has the new one.
            resource(f"{name}-counters", manifest, child)
        made = installed(f"{name}-release", args.release, TIMEOUT_S, child)
        after = pulumi.ResourceOptions(parent=self, depends_on=[made])
        for manifest in args.objects:
            role = f"{name}-{manifest['metadata']['name'].removeprefix('gpuform-')}"
            # A ConfigMap is updated in place (the provider's enableConfigMapMutable): during a replacement, a
            # dashboard would be missing in Grafana. A ConfigMap that must be replaced has another name.
            resource(role if manifest["kind"] == "ConfigMap" else f"{role}-rules", manifest, after)
        self.register_outputs({"status": made.status})

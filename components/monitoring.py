"""The Helm release of kube-prometheus-stack, and the objects that it selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.args import EnvironmentArgs
from components.chart import installed
from components.manifest import resource
from infra.plan.monitoring import after, before, release

TIMEOUT_S = 600  # a dozen images, a volume, and jobs that make the webhook's certificate


class Monitoring(pulumi.ComponentResource):
    """Prometheus and its stack, the exporter's counters, rules and dashboards.

    It creates no Secret: users create those that the environment names. Until they exist, Prometheus or
    Alertmanager waits, and the release does not.
    """

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: EnvironmentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:platform:Monitoring", name, None, opts)
        env = args.environment
        planned = release(env)
        assert planned is not None, "nothing is monitored"
        for manifest in before(env):
            # Changed content is another ConfigMap: the old one is deleted once the exporter has the new one.
            resource(f"{name}-counters", manifest, pulumi.ResourceOptions(parent=self))
        made = installed(
            f"{name}-release",
            planned,
            TIMEOUT_S,
            pulumi.ResourceOptions(parent=self),
        )
        for manifest in after(env):
            self._object(name, manifest, made)
        self.status = made.status
        self.register_outputs({"status": self.status})

    def _object(self, name: str, manifest: Mapping[str, Any], made: pulumi.Resource) -> None:
        child = pulumi.ResourceOptions(parent=self, depends_on=[made])
        role = f"{name}-{manifest['metadata']['name'].removeprefix('gpuform-')}"
        # A ConfigMap is updated in place (the provider's enableConfigMapMutable): during a replacement, a
        # dashboard would be missing in Grafana. A ConfigMap that must be replaced has another name.
        resource(role if manifest["kind"] == "ConfigMap" else f"{role}-rules", manifest, child)

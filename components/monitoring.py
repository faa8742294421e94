"""The Helm release of kube-prometheus-stack, and what it picks up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.chart import installed
from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.monitoring import after, before, release

TIMEOUT_S = 600  # a dozen images, a volume, and jobs that make the webhook's certificate


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """What is measured, kept and told."""

    environment: Environment


class Monitoring(pulumi.ComponentResource):
    """Prometheus and all that goes with it, the exporter's counters, rules and dashboards.

    It makes no Secret: those that the environment names are made by whoever knows what is in them. Until they
    are there, Prometheus or Alertmanager waits, and the release does not.
    """

    status: pulumi.Output[Any]

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register counters and release, then what is of kinds that the release brings."""
        super().__init__("gpuform:platform:Monitoring", name, None, opts)
        env = args.environment
        planned = release(env)
        assert planned is not None, "nothing is monitored"
        for manifest in before(env):
            # Another content is another ConfigMap: the old one goes once the exporter has the new one.
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
        # A ConfigMap changes in place (the provider's enableConfigMapMutable): deleted and made again, a
        # dashboard is gone from Grafana meanwhile. One that has to be another one has another name.
        resource(role if manifest["kind"] == "ConfigMap" else f"{role}-rules", manifest, child)

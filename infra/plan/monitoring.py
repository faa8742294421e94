"""The release of the monitoring, and what it loads: rules and dashboards.

The chart is kube-prometheus-stack. It installs the kinds ``PrometheusRule`` and ``ServiceMonitor``, so it is
created before all objects of those kinds, NVIDIA's operator included, and deleted after them. On the embedded
cluster the chart is ours, and a real Prometheus beside the control plane does what it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from infra import versions
from infra.model import labels
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.monitoring import NAMESPACE, RELEASE
from infra.plan import counters, monitoring_values
from infra.plan.charts import ChartRelease, mirrored
from infra.plan.dashboards import dashboards
from infra.plan.rules import groups

CHART = "kube-prometheus-stack"
SIMULATED = f"charts/{CHART}-sim"

Manifest = dict[str, Any]


def release(env: Environment) -> ChartRelease | None:
    """The release on this cluster: the published chart, or ours; None without monitoring."""
    monitoring = env.monitoring
    if monitoring is None:
        return None
    embedded = isinstance(env.cluster, EmbeddedCluster)
    repository = monitoring.repository or versions.KUBE_PROMETHEUS_STACK_REPOSITORY
    planned = ChartRelease(
        chart=SIMULATED if embedded else CHART,
        repository=None if embedded else repository,
        version=None if embedded else monitoring.version or versions.KUBE_PROMETHEUS_STACK,
        namespace=NAMESPACE,
        name=RELEASE,
        values=monitoring_values.values(env, monitoring),
    )
    return mirrored(env, planned)


def before(env: Environment) -> tuple[Manifest, ...]:
    """Objects that must exist before the exporter: its counters."""
    found = counters.config_map(env)
    return (found,) if found else ()


def after(env: Environment) -> tuple[Manifest, ...]:
    """Objects of kinds that the release installs, or for its Grafana: rules and dashboards."""
    return (*_rules(env), *_dashboards(env)) if env.monitoring else ()


def rule_groups(env: Environment) -> list[dict[str, Any]]:
    """Rule groups as installed: without alerts if the environment turns them off."""
    assert env.monitoring is not None
    found = []
    for group in groups(env):
        rules = [rule for rule in group["rules"] if env.monitoring.alerts or "alert" not in rule]
        if rules:
            found.append({**group, "rules": rules})
    return found


def _rules(env: Environment) -> Iterator[Manifest]:
    """One object per group, so that none exceeds the API server's size limit."""
    for group in rule_groups(env):
        yield {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": _metadata(env, group["name"], {labels.RELEASE: RELEASE}),
            "spec": {"groups": [group]},
        }


def _dashboards(env: Environment) -> Iterator[Manifest]:
    """One ConfigMap per dashboard, which Grafana's sidecar loads and watches."""
    assert env.monitoring is not None
    for name, dashboard in dashboards(env).items() if env.monitoring.dashboards else ():
        text = json.dumps(dashboard, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(env, f"dashboard-{name}", {labels.GRAFANA_DASHBOARD: "1"}),
            "data": {f"{_object_name(name)}.json": text},
        }


def _metadata(env: Environment, name: str, own: dict[str, str]) -> Manifest:
    found = {labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform", **own}
    return {"name": _object_name(name), "namespace": NAMESPACE, "labels": dict(sorted(found.items()))}


def _object_name(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain if plain.startswith("gpuform") else f"gpuform-{plain}"

"""The release of the monitoring, its values, and what it loads: rules and dashboards.

The chart is kube-prometheus-stack. It installs the kinds ``PrometheusRule`` and ``ServiceMonitor``, so it is
created before all objects of those kinds, NVIDIA's operator included, and deleted after them. On the embedded
cluster the chart is ours, and a real Prometheus beside the control plane does what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra import versions
from infra.model.base import labels
from infra.model.base.namespaces import HEALTH, KUEUE
from infra.model.base.quantities import memory_bytes
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.platform.monitoring import (
    LONG_RETENTION,
    NAMESPACE,
    RELEASE,
    SHORT_RETENTION,
    VOLUME_SHARE,
    Monitoring,
    RemoteWrite,
)
from infra.model.workload.workload import InferenceWorkload
from infra.plan import gpu_operator, scraping, sharing, templates
from infra.plan.charts import ChartRelease, Values, plan_release
from infra.plan.dashboards import texts
from infra.plan.manifest import Manifest, manifest, own_labels, volume_claim
from infra.plan.rules import groups

CHART = "kube-prometheus-stack"
NODE_LABELS = (
    labels.POOL,
    labels.MIG_CONFIG,
    labels.MIG_CONFIG_STATE,
    labels.DRIVER_UPGRADE_STATE,
    labels.DRIVER_UPGRADE_SKIP,
    labels.GPU_PRODUCT,
    labels.GPU_COUNT,
    labels.INSTANCE_GPU_COUNT,
)
"""Node labels that kube-state-metrics exports, and no others: each makes a series per node and value."""
POD_LABELS = (labels.QUEUE_MANAGED, labels.QUEUE_ADMITTED)
"""Labels of pods that it exports if pods wait in queues."""


def release(env: Environment) -> ChartRelease | None:
    """The release on this cluster: the published chart, or ours; None without it, or with one of others."""
    monitoring = env.monitoring
    if monitoring is None or monitoring.prometheus:
        return None
    repository = monitoring.repository or versions.KUBE_PROMETHEUS_STACK_REPOSITORY
    version, target = monitoring.version or versions.KUBE_PROMETHEUS_STACK, (NAMESPACE, RELEASE)
    data = values(env, monitoring)
    return plan_release(env, CHART, repository, version, target, data, simulated=f"{CHART}-sim")


def values(env: Environment, monitoring: Monitoring) -> Values:
    """The chart's values (``monitoring.yaml``), without any password or token.

    The chart generates Grafana's password at installation and keeps it in the Secret ``monitoring-grafana``.
    """
    pods = [f"pods=[{','.join(POD_LABELS)}]"] if env.queues else []
    system = gpu_operator.system_tolerations(env)
    names = {
        "alertmanager": _alertmanager(monitoring, system),
        "alerts": monitoring.alerts,
        "busybox": versions.BUSYBOX,
        "environment": env.name,
        "exported_labels": [f"nodes=[{','.join(NODE_LABELS)}]", *pods],
        "grafana": _grafana(monitoring, system),
        "interval": monitoring.interval,
        "karpenter": env.has_karpenter,
        "kueue": KUEUE,
        "operator": sharing.NAMESPACE,
        "own": {"matchLabels": {labels.RELEASE: RELEASE}},
        "queues": env.queues,
        "retention": retention(env, monitoring),
        "scrape_configs": scraping.scrape_configs(env),
        "somewhere": system,
    }
    chart_values: Values = templates.fill(templates.read(Path(__file__).with_suffix(".yaml")), names)
    spec, size = chart_values["prometheus"]["prometheusSpec"], retention_size(monitoring)
    if size:
        spec["retentionSize"] = size
    if monitoring.remote_write:
        spec["remoteWrite"] = [_remote_write(monitoring.remote_write)]
    if storage := monitoring.storage:
        claim = volume_claim(storage.size, storage.storage_class)
        spec["storageSpec"] = {"volumeClaimTemplate": {"spec": claim}}
    return chart_values


def retention(env: Environment, monitoring: Monitoring) -> str:
    """How long samples are kept: as declared, else a default that depends on the storage."""
    is_persistent = monitoring.storage is not None or isinstance(env.cluster, EmbeddedCluster)
    return monitoring.retention or (LONG_RETENTION if is_persistent else SHORT_RETENTION)


def retention_size(monitoring: Monitoring) -> str | None:
    """Size limit of the samples; None without a limit."""
    if monitoring.retention_size or monitoring.storage is None:
        return monitoring.retention_size
    return f"{memory_bytes(monitoring.storage.size) * VOLUME_SHARE // 100 // 2**20}MB"


def _remote_write(spec: RemoteWrite) -> Values:
    settings: Values = {"url": spec.url}
    if spec.secret:
        settings["basicAuth"] = {key: {"name": spec.secret, "key": key} for key in ("username", "password")}
    return settings


def _alertmanager(monitoring: Monitoring, tolerations: list[dict[str, str]]) -> Values:
    if not monitoring.alerts:
        return {"enabled": False}
    spec: Values = {"tolerations": tolerations}
    if monitoring.alertmanager:
        spec |= {"configSecret": monitoring.alertmanager.config_secret, "useExistingSecret": True}
    return {"enabled": True, "alertmanagerSpec": spec}


def _grafana(monitoring: Monitoring, tolerations: list[dict[str, str]]) -> Values:
    if not monitoring.dashboards:
        return {"enabled": False}
    sidecar = {
        "enabled": True,
        "label": labels.GRAFANA_DASHBOARD,
        "labelValue": "1",
        "searchNamespace": NAMESPACE,  # the chart's default ALL would load dashboards from any namespace
    }
    return {
        "enabled": True,
        "grafana.ini": {"auth.anonymous": {"enabled": False}},
        "sidecar": {"dashboards": sidecar},
        "tolerations": tolerations,
    }


def secret_namespaces(env: Environment) -> tuple[str, ...]:
    """Where the Secret must be by which others' Prometheus is asked: by commands, health loop and KEDA."""
    scaled = {work.namespace for work in env.workloads if isinstance(work, InferenceWorkload) and work.scale}
    return (sharing.namespace(env), *((HEALTH,) if env.health else ()), *sorted(scaled))


def objects_before(env: Environment) -> tuple[Manifest, ...]:
    """Objects that must exist before the exporter: what it exports."""
    config_map = scraping.config_map(env)
    return (config_map,) if config_map else ()


def monitors(env: Environment) -> Iterator[Manifest]:
    """ServiceMonitors for a Prometheus of others: of their exporter, and those that our release has."""
    if env.monitoring is None or env.installs_prometheus:
        return
    if monitor := scraping.exporter_monitor(env):
        yield monitor
    for entry in values(env, env.monitoring)["prometheus"]["additionalServiceMonitors"]:
        if entry["name"] == "kueue" and not env.installs("kueue"):
            continue
        metadata = _metadata(env, entry["name"])
        metadata["labels"] |= env.monitoring.selected_by
        spec = {key: value for key, value in entry.items() if key != "name"}
        times = scraping.scrape_times(env.monitoring)
        spec["endpoints"] = [{**times, **endpoint} for endpoint in spec["endpoints"]]
        yield manifest("ServiceMonitor", metadata, "monitoring.coreos.com/v1", spec=spec)


def rule_groups(env: Environment) -> list[dict[str, Any]]:
    """Rule groups as installed: without alerts if the environment turns them off."""
    assert env.monitoring is not None
    kept_groups = []
    for group in groups(env):
        rules = [rule for rule in group["rules"] if env.monitoring.alerts or "alert" not in rule]
        if rules:
            # A Prometheus of others evaluates at its own interval.
            own = {"interval": env.monitoring.interval} if env.monitoring.prometheus else {}
            kept_groups.append({**group, **own, "rules": rules})
    return kept_groups


def rule_objects(env: Environment) -> Iterator[Manifest]:
    """One object per group, so that none exceeds the API server's size limit."""
    assert env.monitoring is not None
    for group in rule_groups(env):
        metadata = _metadata(env, group["name"])
        metadata["labels"] |= env.monitoring.selected_by
        yield manifest("PrometheusRule", metadata, "monitoring.coreos.com/v1", spec={"groups": [group]})


def dashboard_objects(env: Environment) -> Iterator[Manifest]:
    """One ConfigMap per dashboard, which Grafana's sidecar loads and watches."""
    assert env.monitoring is not None
    for name, text in texts(env).items() if env.monitoring.dashboards else ():
        metadata = _metadata(env, f"dashboard-{name}", GRAFANA_DASHBOARD="1")
        yield manifest("ConfigMap", metadata, data={f"{_object_name(name)}.json": text})


def _metadata(env: Environment, name: str, **more: str) -> Manifest:
    namespace = NAMESPACE if env.installs_prometheus else sharing.namespace(env)
    return {"name": _object_name(name), "namespace": namespace, "labels": own_labels(env, **more)}


def _object_name(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return slug if slug.startswith("gpuform") else f"gpuform-{slug}"

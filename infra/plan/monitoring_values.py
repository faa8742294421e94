"""kube-prometheus-stack's values that differ from the chart's defaults, or are pinned."""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model import labels
from infra.model.amounts import memory_bytes
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.monitoring import (
    NAMESPACE,
    RELEASE,
    VOLUME_SHARE,
    WITH_STORAGE,
    WITHOUT_STORAGE,
    Monitoring,
    RemoteWrite,
    Storage,
)
from infra.model.queues import KUEUE
from infra.plan import gpu_operator, scraping, sharing

Values = dict[str, Any]

NODE_LABELS = (
    labels.POOL,
    labels.MIG_CONFIG,
    labels.MIG_CONFIG_STATE,
    labels.DRIVER_UPGRADE_STATE,
    labels.GPU_PRODUCT,
    labels.GPU_COUNT,
    labels.INSTANCE_GPU_COUNT,
)
"""Node labels that kube-state-metrics exports, and no others: each makes a series per node and value."""
COLLECTORS = (
    "cronjobs",
    "daemonsets",
    "deployments",
    "horizontalpodautoscalers",
    "ingresses",
    "jobs",
    "limitranges",
    "namespaces",
    "networkpolicies",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "pods",
    "replicasets",
    "replicationcontrollers",
    "resourcequotas",
    "services",
    "statefulsets",
    "storageclasses",
    "volumeattachments",
)
"""Kinds that kube-state-metrics exports, and may therefore list; Secrets and ConfigMaps are not included."""
_OWN = {"matchLabels": {labels.RELEASE: RELEASE}}


def values(env: Environment, monitoring: Monitoring) -> Values:
    """The chart's values, without any password or token.

    The chart generates Grafana's password at installation and keeps it in the Secret ``monitoring-grafana``.
    """
    tolerations = gpu_operator.somewhere_tolerations(env)
    somewhere = {"tolerations": tolerations}
    return {
        "alertmanager": _alertmanager(monitoring, tolerations),
        # Helm never upgrades CRDs; the chart's own job does.
        "crds": {
            "upgradeJob": {"enabled": True, "image": {"busybox": {"tag": versions.BUSYBOX}}, **somewhere}
        },
        # The chart's own rules are about the cluster; its own dashboards show what they record.
        "defaultRules": {"create": monitoring.alerts},
        "grafana": _grafana(monitoring, tolerations),
        **_out_of_reach(),
        "kube-state-metrics": {
            "collectors": list(COLLECTORS),
            "metricLabelsAllowlist": [
                f"nodes=[{','.join(NODE_LABELS)}]",
                *([f"pods=[{labels.QUEUE_MANAGED},{labels.QUEUE_ADMITTED}]"] if env.queues else []),
            ],
            **somewhere,
        },
        "prometheus": {
            "additionalServiceMonitors": [*_karpenter(env), *_kueue(env)],
            "prometheusSpec": _prometheus(env, monitoring, tolerations),
        },
        "prometheus-node-exporter": {
            # It needs the node's /proc, /sys and network, which only this namespace allows.
            "namespaceOverride": sharing.NAMESPACE,
            # On every node, whatever its taints: faults of an unmonitored node go unseen.
            "tolerations": [{"operator": "Exists"}],
        },
        "prometheusOperator": {"admissionWebhooks": {"patch": somewhere}, **somewhere},
    }


def retention(env: Environment, monitoring: Monitoring) -> str:
    """How long samples are kept: as declared, else a default that depends on the storage."""
    lasts = monitoring.storage is not None or isinstance(env.cluster, EmbeddedCluster)
    return monitoring.retention or (WITH_STORAGE if lasts else WITHOUT_STORAGE)


def retention_size(monitoring: Monitoring) -> str | None:
    """Size limit of the samples; None without a limit."""
    if monitoring.retention_size or monitoring.storage is None:
        return monitoring.retention_size
    return f"{memory_bytes(monitoring.storage.size) * VOLUME_SHARE // 100 // 2**20}MB"


def _prometheus(env: Environment, monitoring: Monitoring, tolerations: list[dict[str, str]]) -> Values:
    size = retention_size(monitoring)
    found: Values = {
        "additionalScrapeConfigs": scraping.scrape_configs(env),
        "evaluationInterval": monitoring.interval,
        # The source of a sample, for receivers of several clusters' samples.
        "externalLabels": {"cluster": env.name},
        "podMonitorSelector": _OWN,
        "probeSelector": _OWN,
        # No limit: a Prometheus killed for its memory is blind just when a fault happens.
        "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}},
        "retention": retention(env, monitoring),
        **({"retentionSize": size} if size else {}),
        "ruleSelector": _OWN,
        "scrapeConfigSelector": _OWN,
        "scrapeInterval": monitoring.interval,
        "serviceMonitorSelector": _OWN,
        "tolerations": tolerations,
    }
    if monitoring.remote_write:
        found["remoteWrite"] = [_remote_write(monitoring.remote_write)]
    if monitoring.storage:
        found["storageSpec"] = {"volumeClaimTemplate": {"spec": _claim(monitoring.storage)}}
    return found


def _remote_write(given: RemoteWrite) -> Values:
    found: Values = {"url": given.url}
    if given.secret:
        found["basicAuth"] = {key: {"name": given.secret, "key": key} for key in ("username", "password")}
    return found


def _claim(storage: Storage) -> Values:
    found: Values = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    return found | ({"storageClassName": storage.storage_class} if storage.storage_class else {})


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


def _out_of_reach() -> Values:
    """Parts of the control plane that pods cannot scrape, so that their alerts would always fire.

    Managed planes do not expose them; with kubeadm they and kube-proxy listen on the node itself only.
    """
    parts = ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")
    return {part: {"enabled": False} for part in parts}


def _kueue(env: Environment) -> list[Values]:
    """Kueue's metrics, which its own monitor offers only to a Prometheus of other labels.

    They need an account that may read `/metrics`, as Prometheus' own may [Kueue, cmd/kueue/main.go]. Kueue
    makes its certificate itself.
    """
    if env.queues is None:
        return []
    metrics = {labels.APP_NAME: "kueue", "app.kubernetes.io/component": "metrics-service"}
    endpoint = {
        "port": "https",
        "path": "/metrics",
        "scheme": "https",
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "tlsConfig": {"insecureSkipVerify": True},
    }
    return [
        {
            "name": "kueue",
            "namespaceSelector": {"matchNames": [KUEUE]},
            "selector": {"matchLabels": metrics},
            "endpoints": [endpoint],
        }
    ]


def _karpenter(env: Environment) -> list[Values]:
    """Karpenter's metrics (limits and usage); its chart is installed before the kind ServiceMonitor."""
    if not any(env.by_karpenter(pool) for pool in env.pools):
        return []
    return [
        {
            "name": "karpenter",
            "namespaceSelector": {"matchNames": ["kube-system"]},
            "selector": {"matchLabels": {labels.APP_NAME: "karpenter"}},
            "endpoints": [{"port": "http-metrics", "path": "/metrics"}],
        }
    ]

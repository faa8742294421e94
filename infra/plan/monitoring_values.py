"""kube-prometheus-stack's values: what differs from the chart's own, or must not drift with them."""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model import labels
from infra.model.environment import EmbeddedCluster, Environment
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
from infra.model.workload import memory_bytes
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
"""Labels of nodes that kube-state-metrics shows, and no others: each is a series for each node and value."""
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
"""What kube-state-metrics shows, and may therefore list: Secrets and ConfigMaps are not among them."""
_OWN = {"matchLabels": {labels.RELEASE: RELEASE}}


def values(env: Environment, monitoring: Monitoring) -> Values:
    """The chart's values.

    Neither a password nor a token is among them. Grafana's is made by the chart when it is installed, at
    random, and kept in the Secret ``monitoring-grafana``.
    """
    tolerations = gpu_operator.somewhere_tolerations(env)
    somewhere = {"tolerations": tolerations}
    return {
        "alertmanager": _alertmanager(monitoring, tolerations),
        # Helm never upgrades CRDs; the chart's own job does.
        "crds": {
            "upgradeJob": {"enabled": True, "image": {"busybox": {"tag": versions.BUSYBOX}}, **somewhere}
        },
        # The chart's own rules are about the cluster; what they record, its own dashboards show.
        "defaultRules": {"create": monitoring.alerts},
        "grafana": _grafana(monitoring, tolerations),
        **_out_of_reach(),
        "kube-state-metrics": {
            "collectors": list(COLLECTORS),
            "metricLabelsAllowlist": [f"nodes=[{','.join(NODE_LABELS)}]"],
            **somewhere,
        },
        "prometheus": {
            "additionalServiceMonitors": _karpenter(env),
            "prometheusSpec": _prometheus(env, monitoring, tolerations),
        },
        "prometheus-node-exporter": {
            # It reads the node's /proc and /sys, in the node's network: one namespace lets pods do so.
            "namespaceOverride": sharing.NAMESPACE,
            # On every node, whatever its taints: a node that is not measured is not seen to be ill.
            "tolerations": [{"operator": "Exists"}],
        },
        "prometheusOperator": {"admissionWebhooks": {"patch": somewhere}, **somewhere},
    }


def retention(env: Environment, monitoring: Monitoring) -> str:
    """How long measurements are kept: what is asked for, or what the place where they lie is good for."""
    lasts = monitoring.storage is not None or isinstance(env.cluster, EmbeddedCluster)
    return monitoring.retention or (WITH_STORAGE if lasts else WITHOUT_STORAGE)


def retention_size(monitoring: Monitoring) -> str | None:
    """How much is kept at most; None where nothing bounds it."""
    if monitoring.retention_size or monitoring.storage is None:
        return monitoring.retention_size
    return f"{memory_bytes(monitoring.storage.size) * VOLUME_SHARE // 100 // 2**20}MB"


def _prometheus(env: Environment, monitoring: Monitoring, tolerations: list[dict[str, str]]) -> Values:
    size = retention_size(monitoring)
    found: Values = {
        "additionalScrapeConfigs": scraping.scrape_configs(env),
        "evaluationInterval": monitoring.interval,
        # Where a measurement comes from, for whoever gets those of several clusters.
        "externalLabels": {"cluster": env.name},
        "podMonitorSelector": _OWN,
        "probeSelector": _OWN,
        # No limit: a Prometheus that is ended for its memory is blind in the very moment of a fault.
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
        "searchNamespace": NAMESPACE,  # the chart's ALL would show what anyone in the cluster puts there
    }
    return {
        "enabled": True,
        "grafana.ini": {"auth.anonymous": {"enabled": False}},
        "sidecar": {"dashboards": sidecar},
        "tolerations": tolerations,
    }


def _out_of_reach() -> Values:
    """Parts of the control plane that no pod can ask, whose alerts would say for ever that they are down.

    Managed planes keep them to themselves; kubeadm lets them, and kube-proxy, listen on the node itself only.
    """
    parts = ("kubeControllerManager", "kubeEtcd", "kubeProxy", "kubeScheduler")
    return {part: {"enabled": False} for part in parts}


def _karpenter(env: Environment) -> list[Values]:
    """Karpenter's own numbers: its pools' limits and what is used of them. Its chart came before the kind."""
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

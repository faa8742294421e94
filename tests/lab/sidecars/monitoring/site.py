"""Minimal objects of a monitored cluster, and a plane that has what they need."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from typing import Any

Json = dict[str, Any]
NAMESPACE = "monitoring"
STATE_METRICS = {"app.kubernetes.io/name": "kube-state-metrics"}
EXPORTER = {"app": "nvidia-dcgm-exporter"}


def meta(name: str, labels: Json | None = None, namespace: str = NAMESPACE) -> Json:
    return {"name": name, "namespace": namespace, "labels": labels or {}}


def may_read(name: str, groups: list[str], resources: list[str]) -> list[Json]:
    rule = {"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]}
    api = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(name)},
        {**api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            **api,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        },
    ]


def prometheus(**spec: Any) -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": meta("own"),
        "spec": {
            "serviceAccountName": "prometheus",
            "retention": "3d",
            "scrapeInterval": "15s",
            "evaluationInterval": "30s",
            "serviceMonitorSelector": {},
            "serviceMonitorNamespaceSelector": {},
            "ruleSelector": {"matchLabels": {"release": "own"}},
            "ruleNamespaceSelector": {},
            **spec,
        },
    }


def monitor(name: str, labels: Json, namespace: str = NAMESPACE, **endpoint: Any) -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": meta(name),
        "spec": {
            "selector": {"matchLabels": labels},
            "namespaceSelector": {"matchNames": [namespace]},
            "endpoints": [endpoint],
        },
    }


def rules(*found: Json, name: str = "own", **group: Any) -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": meta(name, {"release": "own"}),
        "spec": {"groups": [{"name": name, "rules": list(found), **group}]},
    }


def service(name: str, labels: Json, port: str, number: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta(name, labels),
        "spec": {"selector": labels, "ports": [{"name": port, "port": number, "targetPort": number}]},
    }


def state_metrics() -> list[Json]:
    container = {
        "name": "kube-state-metrics",
        "image": "simulated.gpuform.io/kube-state-metrics",
        "args": [
            "--port=8080",
            "--resources=nodes,pods",
            "--metric-labels-allowlist=nodes=[gpuform.io/pool]",
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
    }
    pod = {
        "metadata": {"labels": STATE_METRICS},
        "spec": {"serviceAccountName": "kube-state-metrics", "containers": [container]},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta("state", STATE_METRICS),
        "spec": {"selector": {"matchLabels": STATE_METRICS}, "template": pod},
    }
    return [
        *may_read("kube-state-metrics", [""], ["nodes", "pods"]),
        deployment,
        service("state", STATE_METRICS, "http", 8080),
        monitor("state", STATE_METRICS, port="http", honorLabels=True),
    ]


def exporters() -> Json:
    """ServiceMonitor of dcgm-exporter: keeps the node, drops the labels of the answering pod."""
    drop = {"action": "labeldrop", "regex": "pod|container|service|endpoint|namespace"}
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    return monitor(
        "nvidia-dcgm-exporter",
        EXPORTER,
        "gpu-operator",
        port="gpu-metrics",
        interval="15s",
        honorLabels=True,
        relabelings=[node, drop],
    )


def ask(port: int, query: str) -> dict[str, float]:
    """Prometheus's answer: value by the series' labels, as sorted JSON."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in found}

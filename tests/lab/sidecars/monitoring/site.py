"""Minimal objects of a monitored cluster, and the effect of the scrape configuration on a target."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from typing import Any

import yaml

from lab.sidecars.monitoring.cluster import MonitoringObjects
from lab.sidecars.monitoring.config import PrometheusFiles, prometheus_files
from lab.sidecars.monitoring.targets import Ports

Json = dict[str, Any]
NAMESPACE = "monitoring"
STATE_METRICS = {"app.kubernetes.io/name": "kube-state-metrics"}
EXPORTER = {"app": "nvidia-dcgm-exporter"}
PORTS = Ports(prometheus=1, state_metrics=2, telemetry=3, exporters=4)
NAMESPACES = {"monitoring": {}, "gpu-operator": {"team": "gpu"}, "science": {"team": "science"}}
NODE = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node", "action": "Replace"}
DROP = {"action": "LabelDrop", "regex": "pod|container|service|endpoint|namespace"}


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


def rules(*result: Json, name: str = "own", **group: Any) -> Json:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": meta(name, {"release": "own"}),
        "spec": {"groups": [{"name": name, "rules": list(result), **group}]},
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
    return monitor(
        "nvidia-dcgm-exporter",
        EXPORTER,
        "gpu-operator",
        port="gpu-metrics",
        interval="15s",
        honorLabels=True,
        relabelings=[NODE, DROP],
    )


def ask(port: int, query: str) -> dict[str, float]:
    """Prometheus's answer: value by the series' labels, as sorted JSON."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return {json.dumps(item["metric"], sort_keys=True): float(item["value"][1]) for item in result}


def world(*monitors: Json, rules: tuple[Json, ...] = (), by_hand: str = "", **spec: Any) -> MonitoringObjects:
    return MonitoringObjects(prometheus(**spec), monitors, rules, NAMESPACES, by_hand)


def rendered_config(it: MonitoringObjects) -> tuple[PrometheusFiles, Json]:
    made = prometheus_files(it, PORTS)
    return made, yaml.safe_load(made.config)


def relabel(labels: dict[str, str], configs: list[Json]) -> dict[str, str] | None:
    """The labels after Prometheus's relabelling, None if the target is dropped.

    Implements the few actions in use, by Prometheus's documentation.
    """
    for config in configs:
        value = ";".join(labels.get(name, "") for name in config.get("source_labels", []))
        match = re.fullmatch(config.get("regex", "(.*)"), value, re.DOTALL)
        action = config.get("action", "replace")
        if (action == "keep" and not match) or (action == "drop" and match):
            return None
        if action == "labeldrop":
            labels = {name: text for name, text in labels.items() if not re.fullmatch(config["regex"], name)}
        if action == "replace" and match:
            template = re.sub(r"\$\{?(\d+)\}?", r"\\g<\1>", config.get("replacement", "$1"))
            groups = match.expand(template) if match.re.groups or "\\g" not in template else ""
            labels = {**labels, config["target_label"]: groups}
            if not groups:
                del labels[config["target_label"]]
    return labels


def scrape(labels: dict[str, str], job: Json) -> dict[str, str] | None:
    """URL of one discovered target, and the labels of its series."""
    defaults = {"__scheme__": "http", "__metrics_path__": job.get("metrics_path", "/metrics")}
    made = relabel({"job": job["job_name"], **defaults, **labels}, job["relabel_configs"])
    if made is None:
        return None
    url = f"{made['__scheme__']}://{made['__address__']}{made['__metrics_path__']}"
    return {"url": url} | {name: text for name, text in made.items() if not name.startswith("__")}


def target(service: str, labels: dict[str, str], pod: dict[str, str], **more: str) -> dict[str, str]:
    """An endpoint of a service, with the label names of Prometheus's documentation."""
    meta = "__meta_kubernetes_"
    result = {
        "__address__": "10.0.0.7:9400",
        f"{meta}namespace": "gpu-operator",
        f"{meta}service_name": service,
        f"{meta}endpoint_port_name": "gpu-metrics",
        f"{meta}endpoint_address_target_kind": "Pod",
        f"{meta}endpoint_address_target_name": "pod-x",
        f"{meta}pod_name": "pod-x",
        f"{meta}pod_node_name": "t4-0",
        f"{meta}pod_phase": "Running",
        f"{meta}pod_container_name": "main",
    }
    for kind, some in (("service", labels), ("pod", pod)):
        for key, value in some.items():
            plain = re.sub(r"\W", "_", key)
            result |= {f"{meta}{kind}_label_{plain}": value, f"{meta}{kind}_labelpresent_{plain}": "true"}
    return result | more


OPERAND = {"simulator.gpuform.io/operand": "dcgm-exporter"}
EXPORTS = target("nvidia-dcgm-exporter", EXPORTER, OPERAND)


def exporter_job(**endpoint: Any) -> Json:
    labelled = monitor("d", EXPORTER, "gpu-operator", port="gpu-metrics", honorLabels=True, **endpoint)
    (job,) = rendered_config(world(labelled))[1]["scrape_configs"]
    return dict(job)

"""Rules and scrape configurations as files, for a Prometheus without prometheus-operator.

They are one ConfigMap in the namespace of that Prometheus, which its owner mounts. Annotations of Services
(``prometheus.io/scrape``) do not do: the chart ``prometheus`` scrapes what has them as one job, with the
namespace of the exporter as that of an unused GPU [its values.yaml, kubernetes-service-endpoints], and the
rules select by job, and take a namespace for that of the GPU's user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from infra.model.environment import Environment
from infra.model.platform.monitoring import Monitoring
from infra.model.workload.workload import InferenceWorkload
from infra.plan import health, monitoring, scaling, scraping, sharing
from infra.plan.manifest import Manifest, manifest, own_labels
from infra.plan.rules.promql import label

CONFIG_MAP = "gpuform-prometheus"
RULES, SCRAPED = "rules.yaml", "scrape.yaml"


def config_map(env: Environment) -> Manifest | None:
    """None for a Prometheus that reads monitors and rules of prometheus-operator's kinds."""
    declared = env.monitoring
    if declared is None or declared.prometheus is None or declared.prometheus.config_namespace is None:
        return None
    metadata = {
        "name": CONFIG_MAP,
        "namespace": declared.prometheus.config_namespace,
        "labels": own_labels(env) | declared.prometheus.labels,
    }
    jobs = [*scraping.scrape_configs(env), *(_job(declared, monitor) for monitor in _monitors(env))]
    files = {RULES: {"groups": monitoring.rule_groups(env)}, SCRAPED: {"scrape_configs": jobs}}
    texts = {name: yaml.safe_dump(content, sort_keys=False, width=1000) for name, content in files.items()}
    return manifest("ConfigMap", metadata, data=texts)


def _monitors(env: Environment) -> Iterator[Manifest]:
    yield from monitoring.monitors(env)
    if env.health:
        yield health.monitor(env)
    for work in env.workloads:
        if isinstance(work, InferenceWorkload) and work.pod_metrics and env.monitoring:
            metadata = {"name": work.name, "namespace": work.namespace, "labels": {}}
            yield scaling.pod_monitor(work, metadata, env.monitoring)
    # The chart's own job gives a pod that waits the node of kube-state-metrics.
    selector = {"matchLabels": {"app.kubernetes.io/name": "kube-state-metrics"}}
    endpoints = [{"port": "http", "honorLabels": True}]
    spec = {"selector": selector, "namespaceSelector": {"any": True}, "endpoints": endpoints}
    metadata = {"name": "gpuform-kube-state-metrics", "namespace": sharing.namespace(env)}
    yield manifest("ServiceMonitor", metadata, spec=spec)


def _job(declared: Monitoring, monitor: Manifest) -> Manifest:
    """Scrapes what a monitor of one endpoint selects, as the operator's job for it does.

    Its name is the job of the series, as that of a PodMonitor is [prometheus-operator,
    pkg/prometheus/promcfg.go]; the rules read that of no other.
    """
    metadata, spec = monitor["metadata"], monitor["spec"]
    has_pods = monitor["kind"] == "PodMonitor"
    (endpoint,) = spec["podMetricsEndpoints" if has_pods else "endpoints"]
    kind, port = ("pod", "pod_container") if has_pods else ("service", "endpoint")
    selected = spec["selector"]["matchLabels"].items()
    kept = {f"{kind}_label_{label(key)}": value for key, value in selected}
    copied = {"namespace": "namespace", "pod_name": "pod", "service_name": "service"}
    within = spec.get("namespaceSelector") or {"matchNames": [metadata["namespace"]]}
    job = {
        "job_name": f"{metadata['namespace']}/{metadata['name']}",
        "scrape_interval": endpoint.get("interval", declared.interval),
        "scrape_timeout": scraping.scrape_timeout(declared),
        "honor_labels": endpoint.get("honorLabels", False),
        "scheme": endpoint.get("scheme", "http"),
        "metrics_path": endpoint.get("path", "/metrics"),
        "kubernetes_sd_configs": [{"role": "pod" if has_pods else "endpoints", **_namespaces(within)}],
        "relabel_configs": [
            *(_relabel("keep", source, regex=re.escape(value))
              for source, value in {**kept, f"{port}_port_name": endpoint["port"]}.items()),
            _relabel("drop", "pod_phase", regex="Failed|Succeeded"),
            *(_relabel("replace", source, target_label=target) for source, target in copied.items()),
        ],
    }  # fmt: skip
    if token := endpoint.get("bearerTokenFile"):
        job |= {"authorization": {"credentials_file": token}, "tls_config": {"insecure_skip_verify": True}}
    return job


def _namespaces(selector: Manifest) -> Manifest:
    return {"namespaces": {"names": selector["matchNames"]}} if "matchNames" in selector else {}


def _relabel(action: str, source: str, **more: str) -> Manifest:
    return {"action": action, "source_labels": [f"__meta_kubernetes_{source}"], **more}

"""Prometheus's configuration from a Prometheus object, monitors and rules, compared by meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.sidecars.monitoring.cluster import MonitoringObjects, matches
from lab.sidecars.monitoring.config import prometheus_flags
from tests.lab.sidecars.monitoring.site import (
    DROP,
    EXPORTER,
    EXPORTS,
    NAMESPACES,
    NODE,
    PORTS,
    STATE_METRICS,
    Json,
    exporter_job,
    meta,
    monitor,
    rendered_config,
    rules,
    scrape,
    target,
    world,
)

pytestmark = pytest.mark.unit


def test_an_exporter_is_asked_at_the_simulator_and_known_by_its_own_address() -> None:
    job = exporter_job(interval="15s", relabelings=[NODE, DROP])
    assert job["honor_labels"] is True
    assert (job["scrape_interval"], job["scrape_timeout"]) == ("15s", "10s")
    assert scrape(EXPORTS, job) == {
        "url": "http://127.0.0.1:4/nodes/t4-0/metrics",
        "job": "nvidia-dcgm-exporter",
        "instance": "10.0.0.7:9400",
        "node": "t4-0",
    }


def test_without_relabellings_the_series_have_what_the_operator_gives_them() -> None:
    assert scrape(EXPORTS, exporter_job()) == {
        "url": "http://127.0.0.1:4/nodes/t4-0/metrics",
        "job": "nvidia-dcgm-exporter",
        "instance": "10.0.0.7:9400",
        "namespace": "gpu-operator",
        "service": "nvidia-dcgm-exporter",
        "pod": "pod-x",
        "container": "main",
        "endpoint": "gpu-metrics",
    }


@pytest.mark.parametrize(
    "other",
    [
        {"__meta_kubernetes_service_label_app": "something-else"},
        {"__meta_kubernetes_endpoint_port_name": "another"},
        {"__meta_kubernetes_pod_phase": "Failed"},
        {"__meta_kubernetes_pod_label_simulator_gpuform_io_operand": "device-plugin"},
        {"__meta_kubernetes_pod_label_simulator_gpuform_io_operand": ""},
    ],
)
def test_what_is_not_meant_or_cannot_answer_is_not_scraped(other: dict[str, str]) -> None:
    assert scrape(EXPORTS | other, exporter_job()) is None


def test_a_controller_is_asked_at_its_own_port_with_prometheus_own_account() -> None:
    access = {"scheme": "https", "bearerTokenFile": "/token", "tlsConfig": {"insecureSkipVerify": True}}
    job = exporter_job(**access)
    served = {"__meta_kubernetes_pod_annotation_simulator_gpuform_io_metrics": "4711", "__scheme__": "https"}
    other = {"__meta_kubernetes_pod_label_simulator_gpuform_io_operand": "", **served}
    assert (scrape(EXPORTS | other, job) or {})["url"] == "https://127.0.0.1:4711/metrics"
    assert job["authorization"] == {"credentials_file": "prometheus.token"}
    assert job["tls_config"] == {"insecure_skip_verify": True}
    assert (scrape(EXPORTS, job) or {})["url"].startswith("http://127.0.0.1:4/"), "exporters have no TLS"


@pytest.mark.parametrize(
    ("port", "more", "at"),
    [
        ("http", {}, 2),
        ("metrics", {}, 3),
        ("http", {"__meta_kubernetes_pod_container_port_name": "metrics"}, 2),
    ],
)
def test_kube_state_metrics_is_asked_at_its_two_ports(port: str, more: dict[str, str], at: int) -> None:
    labels = STATE_METRICS | {"app.kubernetes.io/instance": "own"}
    made = monitor("k", STATE_METRICS, port=port, scheme="https")
    made["spec"]["jobLabel"] = "app.kubernetes.io/name"
    made["spec"]["targetLabels"] = ["app.kubernetes.io/instance", "absent"]
    (job,) = rendered_config(world(made))[1]["scrape_configs"]
    result = scrape(
        target("own-ksm", labels, STATE_METRICS, __meta_kubernetes_endpoint_port_name=port, **more), job
    )
    assert result is not None
    assert result["url"] == f"http://127.0.0.1:{at}/metrics"
    assert result["job"] == "kube-state-metrics"
    assert result["app_kubernetes_io_instance"] == "own"
    assert "absent" not in result


@pytest.mark.parametrize(
    ("expression", "taken"),
    [
        ({"key": "app", "operator": "In", "values": ["a", "nvidia-dcgm-exporter"]}, True),
        ({"key": "app", "operator": "In", "values": ["a.b"]}, False),
        ({"key": "app", "operator": "NotIn", "values": ["nvidia-dcgm-exporter"]}, False),
        ({"key": "app", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "none", "operator": "NotIn", "values": [""]}, True),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "none", "operator": "Exists"}, False),
        ({"key": "app", "operator": "DoesNotExist"}, False),
        ({"key": "none", "operator": "DoesNotExist"}, True),
    ],
)
def test_a_selector_by_relabelling_takes_what_kubernetes_would(expression: Json, taken: bool) -> None:
    made = monitor("d", {}, "gpu-operator", port="gpu-metrics")
    made["spec"]["selector"] = {"matchExpressions": [expression]}
    (job,) = rendered_config(world(made))[1]["scrape_configs"]
    assert (scrape(EXPORTS, job) is not None) is taken
    assert matches(made["spec"]["selector"], EXPORTER) is taken


def test_where_a_job_looks() -> None:
    def where(**selector: Any) -> Json:
        made = monitor("d", EXPORTER, port="x")
        made["spec"]["namespaceSelector"] = selector
        (job,) = rendered_config(world(made))[1]["scrape_configs"]
        (result,) = job["kubernetes_sd_configs"]
        return dict(result)

    account = {"role": "endpoints", "kubeconfig_file": "prometheus.kubeconfig"}
    assert where() == account | {"namespaces": {"names": ["monitoring"]}}
    assert where(matchNames=["a", "b"]) == account | {"namespaces": {"names": ["a", "b"]}}
    assert where(any=True) == account


def test_slices_are_read_where_the_prometheus_says_so() -> None:
    made = monitor("d", EXPORTER, "gpu-operator", port="gpu-metrics")
    (job,) = rendered_config(world(made, serviceDiscoveryRole="EndpointSlice"))[1]["scrape_configs"]
    assert job["kubernetes_sd_configs"][0]["role"] == "endpointslice"
    slices = {name.replace("_endpoint_", "_endpointslice_"): text for name, text in EXPORTS.items()}
    result = scrape(slices, job)
    assert result is not None
    assert result["endpoint"] == "gpu-metrics"


BY_HAND = """
- job_name: gpu-metrics
  scrape_interval: 1s
  metrics_path: /metrics
  scheme: https
  tls_config: {ca_file: /var/run/secrets/ca.crt}
  bearer_token_file: /var/run/secrets/token
  kubernetes_sd_configs: [{role: endpoints, namespaces: {names: [gpu-operator]}}]
  relabel_configs: [{source_labels: [__meta_kubernetes_pod_node_name], target_label: kubernetes_node}]
- job_name: elsewhere
  static_configs: [{targets: ["example.com:80"]}]
"""


def test_jobs_that_were_added_by_hand() -> None:
    (ours, elsewhere) = rendered_config(world(by_hand=BY_HAND))[1]["scrape_configs"]
    assert not {"tls_config", "bearer_token_file"} & set(ours)
    assert scrape(EXPORTS, ours) == {
        "url": "http://127.0.0.1:4/nodes/t4-0/metrics",
        "job": "gpu-metrics",
        "instance": "10.0.0.7:9400",
        "kubernetes_node": "t4-0",
    }
    assert scrape({"__address__": "example.com:80"}, elsewhere) is None
    made, document = rendered_config(world(by_hand="a: b"))
    assert document["scrape_configs"] == []
    assert made.notes == ("additionalScrapeConfigs: is not a YAML list, and is ignored",)


def test_monitors_and_rules_are_chosen_by_label_and_namespace() -> None:
    rule = {"record": "a", "expr": "1"}
    far, plain = rules(rule, name="far"), rules(rule, name="plain")
    far["metadata"]["namespace"], plain["metadata"]["labels"] = "science", {}

    def names(**spec: Any) -> set[str]:
        return set(rendered_config(world(rules=(rules(rule), plain, far), **spec))[0].rules)

    assert names() == {"monitoring_own.yaml", "science_far.yaml"}
    assert names(ruleSelector={}) == {"monitoring_own.yaml", "monitoring_plain.yaml", "science_far.yaml"}
    assert names(ruleSelector=None) == set()
    assert names(ruleNamespaceSelector=None) == {"monitoring_own.yaml"}
    assert names(ruleNamespaceSelector={"matchLabels": {"team": "science"}}) == {"science_far.yaml"}
    made = monitor("d", EXPORTER, port="x")
    for selector in (None, {"matchLabels": {"a": "b"}}):
        assert rendered_config(world(made, serviceMonitorSelector=selector))[1]["scrape_configs"] == []


def test_a_pod_monitors_series_have_what_the_operator_gives_them() -> None:
    """Sources: prometheus-operator, generatePodMonitorConfig; pods are asked where their annotation says."""
    made = {
        "metadata": meta("w", namespace="science"),
        "spec": {
            "selector": {"matchLabels": {"app": "w"}},
            "podMetricsEndpoints": [{"port": "metrics", "path": "/m"}],
        },
    }
    it = replace(world(podMonitorSelector={}, podMonitorNamespaceSelector={}), pod_monitors=(made,))
    (job,) = rendered_config(it)[1]["scrape_configs"]
    assert job["job_name"] == "podMonitor/science/w/0"
    assert job["kubernetes_sd_configs"] == [
        {"role": "pod", "kubeconfig_file": "prometheus.kubeconfig", "namespaces": {"names": ["science"]}}
    ]
    note = "annotation_simulator_gpuform_io_metrics_port"
    of_pod = {
        "name": "w-x",
        "node_name": "n",
        "phase": "Running",
        "label_app": "w",
        "labelpresent_app": "true",
    }
    of_pod |= {"container_name": "main", "container_port_name": "metrics", note: "4711"}

    def scraped(**more: str) -> dict[str, str] | None:
        meta = {f"__meta_kubernetes_pod_{name}": text for name, text in {**of_pod, **more}.items()}
        at = {"__address__": "10.0.0.9:8002", "__meta_kubernetes_namespace": "science"}
        return scrape({**at, **meta}, job)

    assert scraped() == {
        **{"url": "http://127.0.0.1:4711/pods/science/w-x", "job": "science/w", "instance": "10.0.0.9:8002"},
        **{"namespace": "science", "pod": "w-x", "container": "main", "endpoint": "metrics"},
    }
    assert scraped(container_port_name="serving") is None
    assert scraped(**{note: ""}) is None, "no process answers for it"


def test_a_timeout_is_no_longer_than_its_interval() -> None:
    made = monitor("d", EXPORTER, port="x", interval="5s", scrapeTimeout="20s")
    _, document = rendered_config(world(made, scrapeInterval="1500ms"))
    assert document["global"]["scrape_timeout"] == "1500ms"
    (job,) = document["scrape_configs"]
    assert (job["scrape_interval"], job["scrape_timeout"]) == ("5s", "5s")


def test_what_is_not_played_is_said() -> None:
    made = monitor("d", EXPORTER, port="x", proxyUrl="http://p")
    it = world(made, remoteWrite=[{"url": "http://example.com"}], alerting={"alertmanagers": []})
    other = MonitoringObjects(it.prometheus, it.monitors, (), NAMESPACES, "", None, ("monitoring/other",))
    assert rendered_config(other)[0].notes == (
        "Prometheus monitoring/other is not run: only one runs here",
        "the Prometheus's remoteWrite is not supported here",
        "the Prometheus's alerting is not supported here",
        "serviceMonitor/monitoring/d: endpoints[0].proxyUrl is not supported here",
    )


def test_flags() -> None:
    assert prometheus_flags(world(retention="", retentionSize="5GB"), PORTS) == (
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        "--storage.tsdb.retention.time=24h",
        "--web.listen-address=127.0.0.1:1",
        "--web.enable-lifecycle",
        "--storage.tsdb.retention.size=5GB",
    )

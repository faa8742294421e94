"""Redirects scrapes to the processes that answer them: pods run no code here, so they do not answer.

Requests go to the simulator, to the real program on this machine, or to the port in the annotation
``METRICS_PORT`` of the pod or Service. All labels of the series, ``instance`` included, stay as they would be
elsewhere. Targets without such a process are not scraped: node exporters,
kubelets, Grafana, Alertmanager, operators, and a rehearsal's Karpenter, which may not listen on any port
(:mod:`lab.rehearse.no_open_ports`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
_POD = "__meta_kubernetes_pod_"
_NODE = f"{_POD}node_name"
_OPERAND = f"{_POD}label_simulator_gpuform_io_operand"
_LABEL_APP = f"{_POD}label_app"
_APP = f"{_POD}label_app_kubernetes_io_name"
_PORT_NAMES = (
    "__meta_kubernetes_endpoint_port_name",
    "__meta_kubernetes_endpointslice_port_name",
    f"{_POD}container_port_name",
)
_METRICS_LABEL = f"{_POD}annotation_simulator_gpuform_io_metrics"
_HAS_TARGET = "__tmp_gpuform_answered"
METRICS_PORT = "simulator.gpuform.io/metrics-port"
"""Annotation of a pod or Service: loopback port that answers for it, at /pods or /services/NAMESPACE/NAME."""


@dataclass(frozen=True)
class Ports:
    """Loopback ports: ours, and that of the simulator's exporters."""

    prometheus: int
    state_metrics: int
    telemetry: int
    exporters: int
    health: int = 0
    """Port of the health loop; 0 while it does not run."""


def redirections(ports: Ports) -> list[Json]:
    """Last relabelings of a job: redirect each target to its process, and drop targets without one."""
    return [
        {"source_labels": ["instance", "__address__"], "regex": ";(.+)", "target_label": "instance"},
        *_redirect((_OPERAND, _NODE), "dcgm-exporter;(.+)", ports.exporters, "/nodes/$1/metrics"),
        # Of NVIDIA's own operator.
        *_redirect((_LABEL_APP, _NODE), "nvidia-dcgm-exporter;(.+)", ports.exporters, "/nodes/$1/metrics"),
        *_redirect((_APP,), "kube-state-metrics", ports.state_metrics),
        # Its own telemetry is on a second port, which the chart calls "metrics".
        *_redirect(
            (_APP, *_PORT_NAMES), "kube-state-metrics;(metrics;.*|;metrics;.*|;;metrics)", ports.telemetry
        ),
        *_redirect((_APP,), "prometheus", ports.prometheus),
        *(_redirect((_APP,), "gpuform-health", ports.health) if ports.health else ()),
        *_annotated("service"),
        *_annotated("pod"),
        *_redirect((_METRICS_LABEL,), "(.+)", "$1"),
        {"source_labels": [_HAS_TARGET], "regex": "yes", "action": "keep"},
        # A controller answers as elsewhere, with its own certificate.
        {"source_labels": [_METRICS_LABEL], "regex": "", "target_label": "__scheme__", "replacement": "http"},
    ]


def _annotated(kind: str) -> list[Json]:
    name = f"__meta_kubernetes_{kind}_"
    annotation_label = f"{name}annotation_{re.sub(r'[^a-z]', '_', METRICS_PORT)}"
    labels = (annotation_label, "__meta_kubernetes_namespace", f"{name}name")
    return _redirect(labels, "([0-9]+);(.+);(.+)", "$1", f"/{kind}s/$2/$3")


def _redirect(labels: Sequence[str], regex: str, port: int | str, path: str = "") -> list[Json]:
    replacements = {"__address__": f"127.0.0.1:{port}", _HAS_TARGET: "yes"} | (
        {"__metrics_path__": path} if path else {}
    )
    return [
        {"source_labels": list(labels), "regex": regex, "target_label": name, "replacement": value}
        for name, value in replacements.items()
    ]

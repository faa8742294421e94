"""How Prometheus finds dcgm-exporter and relabels it, by ServiceMonitor or scrape configuration.

The exporter's labels ``namespace``, ``pod`` and ``container`` name the workload on the GPU, and are missing
if it is unknown. The target's labels of those names would then stand in for them, as if the exporter used the
GPU itself; so they are dropped, and the exporter's own win. Of the target only the node is kept, so that the
series of a GPU stay the same when the exporter's pod changes.
"""

from __future__ import annotations

from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.model.measures import seconds
from infra.model.monitoring import RELEASE, Monitoring
from infra.plan import sharing

JOB = "nvidia-dcgm-exporter"
"""Job of the exporter's series, and label ``app`` of its pods and of the operator's Service.

The operator's ServiceMonitor takes the job from that label [gpu-operator, assets/state-dcgm-exporter], the
exporter's chart from the name of its Service, which is the release's; a scrape configuration has this name.
"""
PORT = 9400
_NODE = "__meta_kubernetes_pod_node_name"
_TARGETS_OWN = "namespace|pod|container|service|endpoint"
_TIMEOUT_S = 10

Values = dict[str, Any]


def timeout(monitoring: Monitoring) -> str:
    """Timeout of a scrape, which may not be longer than the interval."""
    return f"{min(_TIMEOUT_S, seconds(monitoring.interval))}s"


def exporter_interval_ms(monitoring: Monitoring) -> str:
    """Milliseconds between the exporter's queries of DCGM: the same as between scrapes."""
    return str(seconds(monitoring.interval) * 1000)


def service_monitor(monitoring: Monitoring) -> Values:
    """The block ``serviceMonitor`` of NVIDIA's charts; disabled if Prometheus uses scrape configurations."""
    if monitoring.scrape != "service_monitor":
        return {"enabled": False}
    named = [{"action": "replace", "sourceLabels": [_NODE], "targetLabel": to} for to in ("node", "instance")]
    return {
        "enabled": True,
        "interval": monitoring.interval,
        "scrapeTimeout": timeout(monitoring),
        "honorLabels": True,
        "additionalLabels": {labels.RELEASE: RELEASE},
        "relabelings": [*named, {"action": "labeldrop", "regex": _TARGETS_OWN}],
    }


def scrape_configs(env: Environment) -> list[Values]:
    """Prometheus's scrape configuration of the exporter, as Bumble has it; empty with a ServiceMonitor."""
    monitoring = env.monitoring
    if monitoring is None or monitoring.scrape != "scrape_configs":
        return []
    found = {
        "role": "pod",
        "namespaces": {"names": [sharing.NAMESPACE]},
        "selectors": [{"role": "pod", "label": f"app={JOB}"}],
    }
    port = "__meta_kubernetes_pod_container_port_number"
    return [
        {
            "job_name": JOB,
            "honor_labels": True,
            "scrape_interval": monitoring.interval,
            "scrape_timeout": timeout(monitoring),
            "kubernetes_sd_configs": [found],
            "relabel_configs": [
                # The pod's init containers are targets as well, without a port.
                {"action": "keep", "source_labels": [port], "regex": str(PORT)},
                {"action": "replace", "source_labels": [_NODE], "target_label": "node"},
                {"action": "replace", "source_labels": [_NODE], "target_label": "instance"},
            ],
        }
    ]

"""What dcgm-exporter exports, and how Prometheus finds it, by ServiceMonitor or scrape configuration.

The fields are a CSV in a ConfigMap named by its content, since the exporter does not read it again.

The exporter's labels ``namespace``, ``pod`` and ``container`` name the workload on the GPU, and are missing
if it is unknown. The target's labels of those names would then stand in for them, as if the exporter used the
GPU itself; so they are dropped, and the exporter's own win. Of the target only the node is kept, so that the
series of a GPU stay the same when the exporter's pod changes.
"""

from __future__ import annotations

from typing import Any

from infra.model.base.quantities import seconds
from infra.model.environment import Environment
from infra.model.gpu.dcgm import DEFAULT, FIELDS, DcgmField
from infra.model.platform.monitoring import Counter, Monitoring
from infra.plan import sharing
from infra.plan.manifest import Manifest, manifest, own_labels

JOB = "nvidia-dcgm-exporter"
"""Job of the exporter's series, and label ``app`` of its pods and of the operator's Service.

The operator's ServiceMonitor takes the job from that label [gpu-operator, assets/state-dcgm-exporter], the
exporter's chart from a relabeling; a scrape configuration has this name.
"""
EXPORTER = "dcgm-exporter"
CONFIG_MAP = "gpuform-dcgm-metrics"
KEY = "dcgm-metrics.csv"
"""The key that NVIDIA's operator mounts [its values, dcgmExporter.config]."""
PORT = 9400
_NODE = "__meta_kubernetes_pod_node_name"
_TARGET_LABELS = "namespace|pod|container|service|endpoint"
_TIMEOUT_S = 10

Values = dict[str, Any]


def scrape_timeout(monitoring: Monitoring) -> str:
    """Timeout of a scrape, which may not be longer than the interval."""
    return f"{min(_TIMEOUT_S, seconds(monitoring.interval))}s"


def scrape_times(monitoring: Monitoring) -> Values:
    """Of an endpoint: a Prometheus of others has an interval of its own, and rates assume this one."""
    return {"interval": monitoring.interval, "scrapeTimeout": scrape_timeout(monitoring)}


def exporter_interval(monitoring: Monitoring) -> list[Values]:
    """Variable with the milliseconds between the exporter's queries of DCGM: the same as between scrapes."""
    return [{"name": "DCGM_EXPORTER_INTERVAL", "value": str(seconds(monitoring.interval) * 1000)}]


def service_monitor(monitoring: Monitoring) -> Values:
    """The block ``serviceMonitor`` of NVIDIA's charts; disabled if Prometheus uses scrape configurations."""
    if monitoring.scrape != "service_monitor" or not monitoring.has_operator:
        return {"enabled": False}
    rules = [
        {"action": "replace", "sourceLabels": [_NODE], "targetLabel": label} for label in ("node", "instance")
    ]
    return {
        "enabled": True,
        **scrape_times(monitoring),
        "honorLabels": True,
        "additionalLabels": dict(monitoring.selected_by),
        "relabelings": [*rules, {"action": "labeldrop", "regex": _TARGET_LABELS}],
    }


def exporter_monitor(env: Environment) -> Manifest | None:
    """A ServiceMonitor for the exporter of the cluster's own operator; None for an exporter of the stack.

    That operator's own monitor names neither the node nor the pod that uses the GPU as the rules need them.
    """
    if env.monitoring is None or not env.monitoring.has_operator or env.gpu_operator.mode != "existing":
        return None
    values = service_monitor(env.monitoring)
    endpoint = {key: values[key] for key in ("interval", "scrapeTimeout", "honorLabels", "relabelings")}
    metadata = {
        "name": f"gpuform-{EXPORTER}",
        "namespace": sharing.namespace(env),
        "labels": own_labels(env) | values["additionalLabels"],
    }
    spec = {
        "jobLabel": "app",
        "namespaceSelector": {"any": True},
        "selector": {"matchLabels": {"app": JOB}},
        "endpoints": [{"port": "gpu-metrics", **endpoint}],
    }
    return manifest("ServiceMonitor", metadata, "monitoring.coreos.com/v1", spec=spec)


def scrape_configs(env: Environment) -> list[Values]:
    """Prometheus's scrape configuration of the exporter, as Bumble has it; empty with a ServiceMonitor."""
    monitoring = env.monitoring
    if monitoring is None or (monitoring.scrape != "scrape_configs" and monitoring.has_operator):
        return []
    anywhere = env.gpu_operator.mode == "existing"
    discovery = {
        "role": "pod",
        **({} if anywhere else {"namespaces": {"names": [sharing.NAMESPACE]}}),
        "selectors": [{"role": "pod", "label": f"app={JOB}"}],
    }
    port = "__meta_kubernetes_pod_container_port_number"
    return [
        {
            "job_name": JOB,
            "honor_labels": True,
            "scrape_interval": monitoring.interval,
            "scrape_timeout": scrape_timeout(monitoring),
            "kubernetes_sd_configs": [discovery],
            "relabel_configs": [
                # The pod's init containers are targets as well, without a port.
                {"action": "keep", "source_labels": [port], "regex": str(PORT)},
                {"action": "replace", "source_labels": [_NODE], "target_label": "node"},
                {"action": "replace", "source_labels": [_NODE], "target_label": "instance"},
            ],
        }
    ]


def fields(env: Environment) -> dict[str, DcgmField]:
    """Every exported field, in the order of the CSV: the defaults, then those that the environment adds.

    For a default field that the environment also names, the environment's type and help apply.
    """
    fields_by_name = dict(DEFAULT)
    for counter in env.monitoring.counters if env.monitoring else ():
        declared = counter if isinstance(counter, Counter) else Counter(field=counter)
        base = FIELDS[declared.field]
        fields_by_name[declared.field] = DcgmField(declared.type or base.type, declared.help or base.help)
    return fields_by_name


def fields_csv(env: Environment) -> str:
    """One line for each field: name, type, help."""
    return "".join(f"{name}, {field.type}, {field.help}\n" for name, field in fields(env).items())


def config_map(env: Environment) -> Manifest | None:
    """The ConfigMap in the exporter's namespace; None without monitoring, or with an exporter of others."""
    if env.monitoring is None or env.gpu_operator.mode == "existing":
        return None
    return sharing.config_map(env, CONFIG_MAP, {KEY: fields_csv(env)})

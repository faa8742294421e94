"""dcgm-exporter from its own chart, where the device plugin runs without the GPU operator."""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model import labels
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.monitoring import Monitoring
from infra.plan import counters, device_plugin, gpu_operator, scraping, sharing
from infra.plan.charts import ChartRelease, Values, mirrored

CHART = "dcgm-exporter"
SIMULATED = f"charts/{CHART}-sim"
NAME = scraping.JOB
"""Release name; the chart names every object after it, also the Service and so the Prometheus job."""
_FOLDER = "/etc/gpuform"


def release(env: Environment) -> ChartRelease | None:
    """The release; None without monitoring or GPUs, or if the operator brings the exporter."""
    if env.monitoring is None or env.gpu_operator.mode != "device_plugin":
        return None
    if not any(pool.gpus for pool in env.pools):
        return None
    embedded = isinstance(env.cluster, EmbeddedCluster)
    planned = ChartRelease(
        chart=SIMULATED if embedded else CHART,
        repository=None if embedded else versions.DCGM_EXPORTER_REPOSITORY,
        version=None if embedded else versions.DCGM_EXPORTER_CHART,
        namespace=sharing.NAMESPACE,
        name=NAME,
        values=_values(env, env.monitoring),
    )
    return mirrored(env, planned)


def _values(env: Environment, monitoring: Monitoring) -> Values:
    """The chart's list of counters is a file in the image; ours is mounted in another folder.

    With ``customMetrics`` the chart makes a ConfigMap of fixed name, and no pod restarts when it changes.
    """
    found: Values = {
        "arguments": ["-f", f"{_FOLDER}/{counters.KEY}"],
        **_volume(env),
        "extraEnv": [
            {"name": "DCGM_EXPORTER_INTERVAL", "value": scraping.exporter_interval_ms(monitoring)},
        ],
        "nodeSelector": {labels.NVIDIA_GPU: "true"},
        "podLabels": {"app": NAME},  # as on the operator's exporter; Prometheus selects by it
        "serviceMonitor": scraping.service_monitor(monitoring),
        "tolerations": gpu_operator.gpu_tolerations(env),
    }
    if device_plugin.class_name(env):
        found["runtimeClassName"] = device_plugin.class_name(env)
    return found


def _volume(env: Environment) -> dict[str, Any]:
    config_map = counters.config_map(env)
    assert config_map is not None, "monitored, and without counters"
    volume = {"name": "metrics-config", "configMap": {"name": config_map["metadata"]["name"]}}
    return {
        "extraConfigMapVolumes": [volume],
        "extraVolumeMounts": [{"name": volume["name"], "mountPath": _FOLDER}],
    }

"""NVIDIA's device plugin and dcgm-exporter without the operator, and AWS's plugin of EFAs: charts and values.

For nodes that already have driver and container toolkit. The device plugin's chart has GPU feature discovery,
node feature discovery and the MPS control daemon; it has no MIG manager, no validator and no exporter. All of
it runs on nodes that a pool's label marks as having GPUs.
"""

from __future__ import annotations

from infra import versions
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.hosts.cluster import NVIDIA_RUNTIME, HostsCluster
from infra.model.platform import installed
from infra.model.platform.monitoring import Monitoring
from infra.model.pool import plugin_config
from infra.plan import gpu_operator, scraping, sharing, startup
from infra.plan.charts import ChartRelease, Values, plan_release
from infra.plan.manifest import Manifest, label_in, manifest, node_affinity, own_labels

NAME = "nvidia-device-plugin"
"""Name of the release and the chart, and the label ``app`` of every pod of its DaemonSets."""
_PRIVILEGED = {"securityContext": {"privileged": True}}
"""As the operator's pods. The chart would drop all capabilities (its ``templates/_helpers.tpl``), and the
variable by which its pods see GPUs, NVIDIA_VISIBLE_DEVICES, counts only in privileged containers."""
EXPORTER = "dcgm-exporter"
"""Chart of dcgm-exporter."""
_CONFIG_FOLDER = "/etc/gpuform"


def release(env: Environment) -> ChartRelease:
    """The release on this cluster: NVIDIA's chart, or ours with stand-ins for simulated nodes."""
    repository = env.gpu_operator.repository or versions.DEVICE_PLUGIN_REPOSITORY
    version, target = installed.chart_version(env.gpu_operator), (sharing.NAMESPACE, NAME)
    return plan_release(env, NAME, repository, version, target, values(env), simulated="device-plugin-sim")


def values(env: Environment) -> Values:
    """Chart values that differ from the chart's defaults, or are pinned."""
    system = {"tolerations": gpu_operator.system_tolerations(env)}
    chart_values: Values = {
        "affinity": node_affinity(
            label_in(labels.PCI_PRESENT, ["true"]),
            label_in(labels.CPU_VENDOR, ["NVIDIA"]),
            label_in(labels.NVIDIA_GPU, ["true"]),
        ),
        **_device_list(env),
        "gfd": {"enabled": True, **_PRIVILEGED},
        "migStrategy": env.gpu_operator.mig_strategy,
        "nfd": {
            **({} if env.gpu_operator.nfd else {"enabled": False}),
            "gc": system,
            "master": system,
            "worker": {"tolerations": gpu_operator.all_nodes_tolerations(env)},
        },
        "nodeSelector": {labels.NVIDIA_GPU: "true"},
        **_PRIVILEGED,
        # The readiness gate finds operands by this label; the chart's default label has another name.
        "selectorLabelsOverride": {"app": NAME},
        "tolerations": gpu_operator.gpu_tolerations(env),
    }
    config_map = sharing.device_plugin_config_map(env)
    if config_map is not None:
        chart_values["config"] = {"name": config_map["metadata"]["name"], "default": plugin_config.DEFAULT}
    if runtime_class_name(env):
        chart_values["runtimeClassName"] = runtime_class_name(env)
    return chart_values


def runtime_class_name(env: Environment) -> str | None:
    """RuntimeClass of pods that need the driver's libraries; None if the default runtime gives them."""
    return NVIDIA_RUNTIME if runtime_class(env) else env.runtime_class


def runtime_class(env: Environment) -> Manifest | None:
    """RuntimeClass that gives the chart's pods the driver's libraries if runc is the default runtime.

    Ansible adds NVIDIA's runtime to own hosts as a second one. Elsewhere the node image, or the nodes' owner,
    has made it the default, and the result is None; k3s and RKE2 bring the RuntimeClass.
    """
    cluster = env.cluster
    if not isinstance(cluster, HostsCluster) or cluster.toolkit_mode != "runtime" or cluster.own_containerd:
        return None
    metadata = {"name": NVIDIA_RUNTIME, "labels": own_labels(env)}
    return manifest("RuntimeClass", metadata, "node.k8s.io/v1", handler=NVIDIA_RUNTIME)


def _device_list(env: Environment) -> Values:
    """With CDI the chart writes the CDI specification, and looks for the driver on the node for that."""
    if env.cdi:
        return {"deviceListStrategy": "cdi-cri", "nvidiaDriverRoot": "/"}
    # A reload of systemd takes devices that the kubelet has not given [container-toolkit, troubleshooting].
    return {"compatWithCPUManager": True, "deviceListStrategy": env.ownership.device_list}


def exporter_release(env: Environment) -> ChartRelease | None:
    """dcgm-exporter from its own chart; None without monitoring or GPUs, or if the operator brings it."""
    if env.monitoring is None or env.gpu_operator.mode != "device_plugin":
        return None
    if not any(pool.gpus for pool in env.pools):
        return None
    # The chart names every object after the release. The operator's objects have the name of the job, so that
    # a changed mode can create one exporter before the other is deleted.
    target, values = (sharing.NAMESPACE, EXPORTER), exporter_values(env, env.monitoring)
    repository, version = versions.DCGM_EXPORTER_REPOSITORY, versions.DCGM_EXPORTER_CHART
    return plan_release(env, EXPORTER, repository, version, target, values, simulated=f"{EXPORTER}-sim")


def exporter_values(env: Environment, monitoring: Monitoring) -> Values:
    """The chart's list of counters is a file in the image; ours is mounted in another folder.

    With ``customMetrics`` the chart makes a ConfigMap of fixed name, and no pod restarts when it changes.
    """
    config_map = scraping.config_map(env)
    assert config_map is not None, "monitored, and without counters"
    volume = {"name": "metrics-config", "configMap": {"name": config_map["metadata"]["name"]}}
    values: Values = {
        "arguments": ["-f", f"{_CONFIG_FOLDER}/{scraping.KEY}"],
        "extraConfigMapVolumes": [volume],
        "extraVolumeMounts": [{"name": volume["name"], "mountPath": _CONFIG_FOLDER}],
        "extraEnv": scraping.exporter_interval(monitoring),
        "nodeSelector": {labels.NVIDIA_GPU: "true"},
        "podLabels": {"app": scraping.JOB},  # as on the operator's exporter; Prometheus selects by it
        "serviceMonitor": _service_monitor(monitoring),
        "tolerations": gpu_operator.gpu_tolerations(env),
    }
    if runtime_class_name(env):
        values["runtimeClassName"] = runtime_class_name(env)
    return values


def _service_monitor(monitoring: Monitoring) -> Values:
    """With the job of the operator's exporter; without it, the job is the name of the Service."""
    values = scraping.service_monitor(monitoring)
    job = {"action": "replace", "replacement": scraping.JOB, "targetLabel": "job"}
    return {**values, "relabelings": [*values["relabelings"], job]} if values["enabled"] else values


def efa_release(env: Environment) -> ChartRelease | None:
    """AWS's plugin, which offers EFAs as vpc.amazonaws.com/efa, on nodes of pools with EFA; None without any.

    By default the chart selects nodes by a list of instance types, also in pools without EFA: the pool label
    is exact.
    """
    pools = [pool for pool in env.pools if pool.aws_settings.efa]
    values: Values = {
        "supportedInstanceLabels": {"keys": [labels.POOL], "values": [pool.name for pool in pools]},
        "tolerations": [*sharing.tolerations(env, pools), *startup.tolerations(env, pools)],
    }
    name, repository = "aws-efa-k8s-device-plugin", versions.EKS_CHARTS_REPOSITORY
    target = "kube-system", name
    return plan_release(env, name, repository, versions.EFA_DEVICE_PLUGIN, target, values) if pools else None

"""NVIDIA's device plugin without the operator: its chart, and the values that follow from the pools.

For nodes that already have driver and container toolkit. The chart has GPU feature discovery, node feature
discovery and the MPS control daemon; it has no MIG manager, no validator and no exporter. All of it runs on
nodes that a pool's label marks as having GPUs.
"""

from __future__ import annotations

from typing import Any

from infra import versions
from infra.model import labels, operator_checks
from infra.model.clusters import EmbeddedCluster
from infra.model.container_runtimes import NVIDIA_RUNTIME
from infra.model.environment import Environment
from infra.model.hosts import HostsCluster
from infra.plan import gpu_operator, sharing
from infra.plan.charts import ChartRelease, Values, mirrored

NAME = "nvidia-device-plugin"
"""Name of the release and the chart, and the label ``app`` of every pod of its DaemonSets."""
_PRIVILEGED = {"securityContext": {"privileged": True}}
"""As the operator's pods. The chart would drop all capabilities (its ``templates/_helpers.tpl``), and the
variable by which its pods see GPUs, NVIDIA_VISIBLE_DEVICES, counts only in privileged containers."""

Manifest = dict[str, Any]


def release(env: Environment) -> ChartRelease:
    """The release on this cluster: NVIDIA's chart, or ours with stand-ins for simulated nodes."""
    embedded = isinstance(env.cluster, EmbeddedCluster)
    repository = env.gpu_operator.repository or versions.DEVICE_PLUGIN_REPOSITORY
    planned = ChartRelease(
        chart="charts/device-plugin-sim" if embedded else NAME,
        repository=None if embedded else repository,
        version=None if embedded else operator_checks.chart_version(env.gpu_operator),
        namespace=sharing.NAMESPACE,
        name=NAME,
        values=values(env),
    )
    return mirrored(env, planned)


def values(env: Environment) -> Values:
    """Chart values that differ from the chart's defaults, or are pinned."""
    somewhere = {"tolerations": gpu_operator.somewhere_tolerations(env)}
    found: Values = {
        "affinity": _affinity(),
        **_device_list(env),
        "gfd": {"enabled": True, **_PRIVILEGED},
        "migStrategy": env.gpu_operator.mig_strategy,
        "nfd": {
            **({} if env.gpu_operator.nfd else {"enabled": False}),
            "gc": somewhere,
            "master": somewhere,
            "worker": {"tolerations": gpu_operator.everywhere_tolerations(env)},
        },
        "nodeSelector": {labels.NVIDIA_GPU: "true"},
        **_PRIVILEGED,
        # The readiness gate finds operands by this label; the chart's default label has another name.
        "selectorLabelsOverride": {"app": NAME},
        "tolerations": gpu_operator.gpu_tolerations(env),
    }
    config_map = sharing.device_plugin_config_map(env)
    if config_map is not None:
        found["config"] = {"name": config_map["metadata"]["name"], "default": sharing.DEFAULT_KEY}
    if class_name(env):
        found["runtimeClassName"] = class_name(env)
    return found


def class_name(env: Environment) -> str | None:
    """RuntimeClass of pods that need the driver's libraries; None if the default runtime gives them."""
    return NVIDIA_RUNTIME if runtime_class(env) else env.runtime_class


def runtime_class(env: Environment) -> Manifest | None:
    """RuntimeClass that gives the chart's pods the driver's libraries if runc is the default runtime.

    Ansible adds NVIDIA's runtime to own hosts as a second one. Elsewhere the node image, or the nodes' owner,
    has made it the default, and the result is None.
    """
    if not isinstance(env.cluster, HostsCluster) or env.cluster.mode != "runtime":
        return None
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": NVIDIA_RUNTIME,
            "labels": {labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform"},
        },
        "handler": NVIDIA_RUNTIME,
    }


def _affinity() -> Values:
    wanted = ((labels.PCI_PRESENT, "true"), (labels.CPU_VENDOR, "NVIDIA"), (labels.NVIDIA_GPU, "true"))
    terms = [{"matchExpressions": [{"key": k, "operator": "In", "values": [v]}]} for k, v in wanted]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _device_list(env: Environment) -> Values:
    """With CDI the chart writes the CDI specification, and looks for the driver on the node for that."""
    if env.cdi:
        return {"deviceListStrategy": "cdi-cri", "nvidiaDriverRoot": "/"}
    return {"deviceListStrategy": env.ownership.device_list}

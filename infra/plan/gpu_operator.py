"""The GPU operator's release: which chart, and the values that follow from the pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra import versions
from infra.model import labels
from infra.model.aws import AwsCluster
from infra.model.environment import EmbeddedCluster, Environment
from infra.model.hosts import HostsCluster
from infra.plan import sharing, startup

Values = dict[str, Any]
Toleration = dict[str, str]


@dataclass(frozen=True)
class ChartRelease:
    """What Helm is asked for; ``chart`` is a path below the project's root where ``repository`` is None."""

    chart: str
    repository: str | None
    version: str | None
    namespace: str
    name: str
    values: Values


def release(env: Environment) -> ChartRelease:
    """The release on this cluster: NVIDIA's chart, or ours with stand-ins for simulated nodes."""
    embedded = isinstance(env.cluster, EmbeddedCluster)
    return ChartRelease(
        chart="charts/gpu-operator-sim" if embedded else "gpu-operator",
        repository=None if embedded else env.gpu_operator.repository or versions.GPU_OPERATOR_REPOSITORY,
        version=None if embedded else versions.GPU_OPERATOR,
        namespace=sharing.NAMESPACE,
        name="gpu-operator",
        values=values(env),
    )


def values(env: Environment) -> Values:
    """Chart values that differ from the chart's own, or must not drift with them."""
    tolerations = gpu_tolerations(env)
    control_plane = {"key": labels.CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}
    system = {"key": labels.CRITICAL_ADDONS, "operator": "Exists", "effect": "NoSchedule"}
    # Helm replaces lists, so the chart's own toleration of the control plane is repeated.
    everywhere = [control_plane, *tolerations]
    # What only has to run somewhere keeps off the GPU nodes, unless the environment has no others.
    if isinstance(env.cluster, AwsCluster):
        somewhere = [control_plane, system]
    else:
        somewhere = everywhere if all(pool.gpus for pool in env.pools) else [control_plane]
    return {
        "cdi": {"enabled": True},
        "daemonsets": {"tolerations": tolerations},
        "devicePlugin": _device_plugin(env),
        "driver": _driver(env),
        "mig": {"strategy": env.operator_strategy or ""},  # unset where each node's configuration says it
        "migManager": _mig_manager(env),
        "node-feature-discovery": {
            "gc": {"tolerations": somewhere},
            "master": {"tolerations": somewhere},
            "worker": {"tolerations": everywhere},
        },
        "operator": {"tolerations": somewhere},
        "psa": {"enabled": True},
        "toolkit": _toolkit(env),
    }


def gpu_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of every taint of a pool with GPUs, each once: GPU taint, startup taint, then their own."""
    found = [{"key": env.gpu_operator.gpu_taint, "operator": "Exists", "effect": "NoSchedule"}]
    found += startup.tolerations(env, env.pools)
    for pool in env.pools:
        for taint in pool.taints if pool.gpus else ():
            entry = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            if entry not in found:
                found.append(entry)
    return found


def driver_version(env: Environment) -> str:
    """One driver for all nodes: the operator's default, or the last branch that the oldest GPU still runs."""
    branches = [gpu.last_driver_branch for pool in env.pools for gpu in pool.gpus]
    last = min((branch for branch in branches if branch is not None), default=None)
    return versions.GPU_DRIVER if last is None else versions.GPU_DRIVER_OF_BRANCH[last]


def _driver(env: Environment) -> Values:
    # Every EKS image with NVIDIA's driver has the toolkit, too: the table of images says so.
    if env.gpu_operator.driver == "host" or isinstance(env.cluster, AwsCluster | HostsCluster):
        return {"enabled": False}
    return {"enabled": True, "version": driver_version(env)}


def _toolkit(env: Environment) -> Values:
    if env.gpu_operator.toolkit == "host" or isinstance(env.cluster, AwsCluster | HostsCluster):
        return {"enabled": False}
    # A pod that asks for no GPU must not see one by setting NVIDIA_VISIBLE_DEVICES.
    guard = {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}
    return {"enabled": True, "env": [guard]}


def _device_plugin(env: Environment) -> Values:
    config_map = sharing.device_plugin_config_map(env)
    if config_map is None:
        return {"enabled": not env.image_ships_device_plugin}
    return {
        "enabled": True,
        "config": {"name": config_map["metadata"]["name"], "default": sharing.DEFAULT_KEY},
    }


def _mig_manager(env: Environment) -> Values:
    config_map = sharing.mig_parted_config_map(env)
    if config_map is None:
        return {"enabled": False}
    return {
        "enabled": True,
        "config": {"name": config_map["metadata"]["name"], "default": sharing.MIG_DISABLED},
    }

"""The GPU operator's release: which chart, and the values that follow from the pools."""

from __future__ import annotations

from infra import versions
from infra.model import labels, operator_checks, relayout
from infra.model.amounts import numbers
from infra.model.environment import Environment
from infra.model.operator import Upgrade
from infra.plan import scraping, sharing, startup
from infra.plan.charts import ChartRelease, Values, planned
from infra.plan.manifest import exists, once

Toleration = dict[str, str]

_CONTROL_PLANE: Toleration = exists(labels.CONTROL_PLANE)
_FIRST_PLAIN_TAG = (1, 18)
"""Before this version the toolkit's image tags name a distribution [the operator's values, each release]."""


def release(env: Environment) -> ChartRelease:
    """The release on this cluster: NVIDIA's chart, or ours with stand-ins for simulated nodes."""
    repository = env.gpu_operator.repository or versions.GPU_OPERATOR_REPOSITORY
    version = operator_checks.chart_version(env.gpu_operator)
    place = sharing.NAMESPACE, "gpu-operator"
    return planned(env, place[1], repository, version, place, values(env), simulated="gpu-operator-sim")


def values(env: Environment) -> Values:
    """Chart values that differ from the chart's defaults, or are pinned.

    What the operator owns decides them: infra/model/operator.py.
    """
    tolerations = gpu_tolerations(env)
    somewhere = somewhere_tolerations(env)
    return {
        "cdi": {"enabled": env.cdi, "nriPluginEnabled": False},
        # The chart accepts both this and gpuCluster, but the operator works with only one of them.
        "clusterPolicy": {"deployCR": True},
        "daemonsets": {"tolerations": tolerations, **_accepted(env)},
        **_dcgm_exporter(env),
        "devicePlugin": _device_plugin(env),
        "driver": _driver(env),
        "gpuCluster": {"deployCR": False},
        "mig": {"strategy": env.operator_strategy or ""},  # empty if each node's configuration sets it
        "migManager": _mig_manager(env),
        **({} if env.gpu_operator.nfd else {"nfd": {"enabled": False}}),
        "node-feature-discovery": {
            "gc": {"tolerations": somewhere},
            "master": {"tolerations": somewhere},
            "worker": {"tolerations": everywhere_tolerations(env)},
        },
        # Helm never upgrades CRDs; the chart's own hook does.
        "operator": {"tolerations": somewhere, "upgradeCRD": True},
        "psa": {"enabled": True},
        "toolkit": _toolkit(env),
    }


def everywhere_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of pods on every node; Helm replaces lists, so the charts' defaults are repeated."""
    return [_CONTROL_PLANE, *gpu_tolerations(env)]


def somewhere_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of pods that may run anywhere: off the GPU nodes, unless there are no other nodes."""
    if env.ownership.system_nodes:
        return [_CONTROL_PLANE, exists(labels.CRITICAL_ADDONS)]
    return everywhere_tolerations(env) if all(pool.gpus for pool in env.pools) else [_CONTROL_PLANE]


def gpu_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of every taint of a pool with GPUs, each once: GPU taint, startup taint, own taints."""
    found = [exists(env.gpu_operator.gpu_taint)]
    found += startup.tolerations(env, env.pools)
    if env.health or env.monitoring:  # what reports the fault, and what a repaired node needs, keeps running;
        # a removed health loop leaves its taints behind
        found.append(exists(labels.GPU_UNHEALTHY))
    own = (taint for pool in env.pools if pool.gpus for taint in pool.taints)
    return once([*found, *(exists(taint.key, taint.effect) for taint in own)])


def driver_version(env: Environment) -> str:
    """Version of the operator's driver: one for all nodes."""
    return operator_checks.driver_version(env.gpu_operator, env.pools)


def _accepted(env: Environment) -> Values:
    """The accepted vulnerabilities as an annotation, visible on the operands and to the policies."""
    named = env.gpu_operator.acknowledge
    return {"annotations": {labels.ACKNOWLEDGED: ",".join(named)}} if named else {}


def _driver(env: Environment) -> Values:
    if env.ownership.driver != "operator":
        return {"enabled": False}
    spec = env.gpu_operator
    own = {"image": spec.driver_image, "repository": spec.driver_repository}
    return {
        "enabled": True,
        **{key: value for key, value in own.items() if value},
        "kernelModuleType": spec.kernel_modules,
        "upgradePolicy": _upgrade_policy(spec.upgrade),
        "version": driver_version(env),
    }


def _upgrade_policy(upgrade: Upgrade) -> Values:
    drain: Values = {"enable": upgrade.drain is not None}
    if upgrade.drain:
        drain |= {
            "deleteEmptyDir": upgrade.drain.delete_empty_dir,
            "force": upgrade.drain.force,
            "timeoutSeconds": upgrade.drain.timeout_seconds,
        }
    return {
        "autoUpgrade": upgrade.auto,
        "drain": drain,
        "maxParallelUpgrades": upgrade.max_parallel,
        "maxUnavailable": upgrade.max_unavailable,
    }


def _toolkit(env: Environment) -> Values:
    if env.ownership.toolkit != "operator":
        return {"enabled": False}
    # A pod that requests no GPU must not get one by setting NVIDIA_VISIBLE_DEVICES.
    found = [{"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}]
    if not env.cdi:  # a pod that requests one then gets it by volume mounts
        found.append({"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "value": "true"})
    declared = env.gpu_operator.toolkit_env.model_dump(exclude_none=True)
    found += [{"name": name, "value": value} for name, value in declared.items()]
    version = env.gpu_operator.toolkit_version
    return {"enabled": True, "env": found, **({"version": _toolkit_tag(version)} if version else {})}


def _toolkit_tag(version: str) -> str:
    return f"v{version}" + ("-ubuntu20.04" if numbers(version) < _FIRST_PLAIN_TAG else "")


def _dcgm_exporter(env: Environment) -> Values:
    config_map = scraping.config_map(env)
    if env.monitoring is None or config_map is None:
        return {}
    return {
        "dcgmExporter": {
            "config": {"name": config_map["metadata"]["name"]},
            "env": scraping.exporter_interval(env.monitoring),
            "serviceMonitor": scraping.service_monitor(env.monitoring),
        }
    }


def _device_plugin(env: Environment) -> Values:
    if env.ownership.device_plugin == "image":
        return {"enabled": False}
    found: Values = {"enabled": True}
    if not env.cdi:
        found["env"] = [{"name": "DEVICE_LIST_STRATEGY", "value": env.ownership.device_list}]
    config_map = sharing.device_plugin_config_map(env)
    if config_map is not None:
        found["config"] = {"name": config_map["metadata"]["name"], "default": sharing.DEFAULT_KEY}
    return found


def _mig_manager(env: Environment) -> Values:
    config_map = sharing.mig_parted_config_map(env)
    if config_map is None:
        return {"enabled": False}
    reboots = relayout.reboots(env.cluster.kind, env.pools)
    return {
        "enabled": True,
        "config": {"name": config_map["metadata"]["name"], "default": sharing.MIG_DISABLED},
        **({"env": [{"name": "WITH_REBOOT", "value": "true"}]} if reboots else {}),
    }

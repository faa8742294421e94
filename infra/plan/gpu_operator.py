"""The GPU operator's release: which chart, and the values that follow from the pools."""

from __future__ import annotations

from infra import versions
from infra.model.base import labels
from infra.model.base.quantities import version_numbers
from infra.model.environment import Environment
from infra.model.gpu import drivers
from infra.model.placement import driver_upgrade
from infra.model.platform import installed
from infra.model.platform.operator import Drain
from infra.model.pool import plugin_config, reset
from infra.plan import scraping, sharing, startup
from infra.plan.charts import ChartRelease, Values, plan_release
from infra.plan.manifest import tolerate, unique

Toleration = dict[str, str]

_CONTROL_PLANE: Toleration = tolerate(labels.CONTROL_PLANE)
_FIRST_PLAIN_TAG = (1, 18)
"""Before this version the toolkit's image tags name a distribution [the operator's values, each release]."""


def release(env: Environment) -> ChartRelease:
    """The release on this cluster: NVIDIA's chart, or ours with stand-ins for simulated nodes."""
    repository = env.gpu_operator.repository or versions.GPU_OPERATOR_REPOSITORY
    version = installed.chart_version(env.gpu_operator)
    target = sharing.NAMESPACE, "gpu-operator"
    return plan_release(
        env, target[1], repository, version, target, values(env), simulated="gpu-operator-sim"
    )


def values(env: Environment) -> Values:
    """Chart values that differ from the chart's defaults, or are pinned.

    What the operator owns decides them: infra/model/platform/operator.py.
    """
    tolerations = gpu_tolerations(env)
    system = system_tolerations(env)
    return {
        "cdi": {"enabled": env.cdi, "nriPluginEnabled": False},
        # The chart accepts both this and gpuCluster, but the operator works with only one of them.
        "clusterPolicy": {"deployCR": True},
        "daemonsets": {"tolerations": tolerations, **_acknowledged(env)},
        **_dcgm_exporter(env),
        "devicePlugin": _device_plugin(env),
        "driver": _driver(env),
        "gpuCluster": {"deployCR": False},
        "mig": {"strategy": env.operator_strategy or ""},  # empty if each node's configuration sets it
        "migManager": _mig_manager(env),
        **({} if env.gpu_operator.nfd else {"nfd": {"enabled": False}}),
        "node-feature-discovery": {
            "gc": {"tolerations": system},
            "master": {"tolerations": system},
            "worker": {"tolerations": all_nodes_tolerations(env)},
        },
        # Helm never upgrades CRDs; the chart's own hook does.
        "operator": {"tolerations": system, "upgradeCRD": True},
        "psa": {"enabled": True},
        "toolkit": _toolkit(env),
    }


def all_nodes_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of pods on every node; Helm replaces lists, so the charts' defaults are repeated."""
    return [_CONTROL_PLANE, *gpu_tolerations(env)]


def system_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of pods that may run anywhere: off the GPU nodes, unless there are no other nodes."""
    if env.ownership.system_nodes:
        return [_CONTROL_PLANE, tolerate(labels.CRITICAL_ADDONS)]
    return all_nodes_tolerations(env) if all(pool.gpus for pool in env.pools) else [_CONTROL_PLANE]


def gpu_tolerations(env: Environment) -> list[Toleration]:
    """Tolerations of every taint of a pool with GPUs, each once: GPU taint, startup taint, own taints."""
    taint = env.gpu_operator.taint
    tolerations = [tolerate(taint.key)] if taint else []
    tolerations += startup.tolerations(env, env.pools)
    if env.health or env.monitoring:  # what reports the fault, and what a repaired node needs, keeps running;
        # a removed health loop leaves its taints behind
        tolerations.append(tolerate(labels.GPU_UNHEALTHY))
    pool_taints = (taint for pool in env.pools if pool.gpus for taint in pool.taints)
    return unique([*tolerations, *(tolerate(taint.key, taint.effect) for taint in pool_taints)])


def driver_version(env: Environment) -> str:
    """Version of the operator's driver: one for all nodes."""
    return installed.driver_version(env.gpu_operator, env.pools)


def _acknowledged(env: Environment) -> Values:
    """The accepted vulnerabilities as an annotation, visible on the operands and to the policies."""
    cves = env.gpu_operator.acknowledge
    return {"annotations": {labels.ACKNOWLEDGED: ",".join(cves)}} if cves else {}


def _driver(env: Environment) -> Values:
    if env.ownership.driver != "operator":
        return {"enabled": False}
    spec = env.gpu_operator
    declared = {"image": spec.driver_image, "repository": spec.driver_repository}
    return {
        "enabled": True,
        **{key: value for key, value in declared.items() if value},
        "kernelModuleType": spec.kernel_modules,
        **_peermem(env),
        "upgradePolicy": _upgrade_policy(env),
        "version": driver_version(env),
    }


def _peermem(env: Environment) -> Values:
    """nvidia_peermem for pools with RDMA, only for modules without DMA-BUF; the open ones have it.

    NVIDIA recommends DMA-BUF, which needs no module [the operator's page "GPUDirect RDMA and GPUDirect
    Storage"]. ``useHostMofed``: the module is built for the hosts' own network driver, and by default for the
    one that an existing network operator installs.
    """
    pools, modules = [pool for pool in env.pools if pool.rdma and pool.gpus], env.gpu_operator.kernel_modules
    version = driver_version(env)
    flavours = {
        drivers.recommended_modules(gpu, version) if modules == "auto" else modules
        for pool in pools
        for gpu in pool.gpus
    }
    if "proprietary" not in flavours:
        return {}
    return {
        "rdma": {
            "enabled": True,
            "useHostMofed": any(pool.rdma.mode == "shared" for pool in pools if pool.rdma),
        }
    }


def _upgrade_policy(env: Environment) -> Values:
    upgrade = env.gpu_operator.upgrade
    drain: Values = {"enable": upgrade.drain is not None}
    if upgrade.drain:
        drain |= {**_flags(env, upgrade.drain), "timeoutSeconds": upgrade.drain.timeout_seconds}
    return {
        "autoUpgrade": upgrade.auto,
        "drain": drain,
        "gpuPodDeletion": _flags(env),
        "maxParallelUpgrades": upgrade.max_parallel,
        "maxUnavailable": upgrade.max_unavailable,
    }


def _flags(env: Environment, drain: Drain | None = None) -> Values:
    flags = driver_upgrade.flags(env, drain)
    return {"deleteEmptyDir": flags["delete_empty_dir"], "force": flags["force"]}


def _toolkit(env: Environment) -> Values:
    if env.ownership.toolkit != "operator":
        return {"enabled": False}
    # A pod that requests no GPU must not get one by setting NVIDIA_VISIBLE_DEVICES.
    variables = [{"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}]
    if not env.cdi:  # a pod that requests one then gets it by volume mounts
        variables.append({"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS", "value": "true"})
    declared = env.gpu_operator.toolkit_env.model_dump(exclude_none=True)
    variables += [{"name": name, "value": value} for name, value in declared.items()]
    version = env.gpu_operator.toolkit_version
    return {"enabled": True, "env": variables, **({"version": _toolkit_tag(version)} if version else {})}


def _toolkit_tag(version: str) -> str:
    return f"v{version}" + ("-ubuntu20.04" if version_numbers(version) < _FIRST_PLAIN_TAG else "")


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
    # Where pods claim GPUs, no plugin runs, and the validator waits for it for ever, unless it is off for all
    # nodes [v26.7.0, controllers/object_controls.go, TransformValidatorComponent].
    by_claim = {pool.by_claim for pool in env.pools if pool.gpus}
    plugin_values: Values = {"enabled": by_claim != {True}}
    if not env.cdi:
        plugin_values["env"] = [{"name": "DEVICE_LIST_STRATEGY", "value": env.ownership.device_list}]
    config_map = sharing.device_plugin_config_map(env)
    if config_map is not None:
        plugin_values["config"] = {"name": config_map["metadata"]["name"], "default": plugin_config.DEFAULT}
    return plugin_values


def _mig_manager(env: Environment) -> Values:
    config_map = sharing.mig_parted_config_map(env)
    if config_map is None:
        return {"enabled": False}
    reboots = reset.rebooting_pools(env.pools)
    return {
        "enabled": True,
        "config": {"name": config_map["metadata"]["name"], "default": sharing.MIG_DISABLED},
        **({"env": [{"name": "WITH_REBOOT", "value": "true"}]} if reboots else {}),
    }

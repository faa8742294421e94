"""ConfigMaps of the device plugin and the MIG manager, and the labels that select from them on a node.

The operator does not read a ConfigMap again, so each name ends in a hash of the content: a changed
configuration is a new object, and the operands get its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from infra.model.base import labels, namespaces
from infra.model.base.fields import short_digest
from infra.model.environment import Environment
from infra.model.gpu.models import Gpu
from infra.model.pool import allocatable, layouts, mig_config, plugin_config
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps, SliceShare, TimeSlicing
from infra.plan import magnum
from infra.plan.manifest import Manifest, manifest, own_labels, tolerate, unique
from infra.strict_yaml import Dumper

NAMESPACE, PLATFORM_NAMESPACE = namespaces.GPU_OPERATOR, namespaces.PLATFORM
DEVICE_PLUGIN_CONFIG = "nvidia-time-slicing-config"
MIG_CONFIG = "nvidia-mig-config"
MIG_DISABLED = mig_config.DISABLED

mig_config_name = mig_config.config_name


def live_layout(env: Environment, pool: Pool) -> str | None:
    """Name of the layout that the MIG manager sets on live nodes; None if they have none, or join with it."""
    return mig_config_name(pool) if pool.has_live_layout and env.has_mig_manager else None


def namespace(env: Environment) -> str:
    """Namespace of the operator or device plugin of the stack, and of the programs beside it."""
    return PLATFORM_NAMESPACE if env.ownership.device_plugin == "cluster" else NAMESPACE


def to_yaml(value: object) -> str:
    """YAML with the keys in the order given, the same bytes every time."""
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 1000}
    return str(yaml.dump(value, Dumper=Dumper, default_flow_style=False, **options))


def device_plugin_config_map(env: Environment) -> Manifest | None:
    """ConfigMap with one key per way of sharing; None if the plugin needs none."""
    if not env.plugin_configs:
        return None
    data = {plugin_config.DEFAULT: to_yaml(_plugin_config(env.gpu_operator.mig_strategy, None))}
    data |= {key: to_yaml(_plugin_config(pool.strategy, pool)) for key, pool in env.plugin_configs.items()}
    return config_map(env, DEVICE_PLUGIN_CONFIG, data)


def _plugin_config(strategy: str, pool: Pool | None) -> Manifest:
    config: Manifest = {"version": "v1", "flags": {"migStrategy": strategy}}
    block = _sharing_block(strategy, pool) if pool else {}
    if block:
        config["sharing"] = block
    return config


def _sharing_block(strategy: str, pool: Pool) -> Manifest:
    sharing = pool.sharing
    if isinstance(sharing, Mps):
        return {"mps": {"resources": [{"name": labels.NVIDIA_GPU, "replicas": sharing.replicas}]}}
    share = sharing.share if isinstance(sharing, Mig) else sharing
    if not isinstance(share, TimeSlicing | SliceShare):
        return {}
    names = [labels.NVIDIA_GPU]
    if isinstance(share, SliceShare) and strategy == "mixed":
        names = sorted(allocatable.mig_resource(profile) for profile in pool.profiles)
    return {
        "timeSlicing": {
            "renameByDefault": share.rename,
            "failRequestsGreaterThanOne": share.fail_requests_greater_than_one,
            "resources": [{"name": name, "replicas": share.replicas} for name in names],
        }
    }


def mig_parted_config_map(env: Environment) -> Manifest | None:
    """ConfigMap with every layout the pools use, and ``all-disabled``; None without a MIG-capable GPU.

    Two GPU models may have different layouts under one name (all-1g.10gb); then each entry names its devices.
    None if the node image applies the layout itself, at boot, or if nothing does.
    """
    config = mig_parted_config(env.pools) if env.has_mig_manager else None
    return config_map(env, MIG_CONFIG, {"config.yaml": to_yaml(config)}) if config else None


def pool_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels of the pool's nodes, with the declared ones, sorted.

    Without ``nvidia.com/mig.config``: it is set once the operands run, node by node.
    """
    result = {**pool.labels, labels.POOL: pool.name, labels.ENVIRONMENT: env.name}
    if pool.trust == "multi":
        result[labels.TRUST] = pool.trust
    if pool.by_claim:
        result |= {labels.DEPLOY_DEVICE_PLUGIN: "false", labels.PCI_PRESENT: "true"}
    elif pool.gpus and env.plugin_configs:
        result[labels.DEVICE_PLUGIN_CONFIG] = plugin_config.key(pool)
    if pool.gpus and env.ownership.device_plugin == "chart":
        result[labels.NVIDIA_GPU] = "true"  # the plugin's chart needs it; the operator finds GPU nodes itself
    return dict(sorted(result.items()))


def device_plugin_change(env: Environment, pool: Pool) -> dict[str, Any] | None:
    """Label that selects the device plugin's configuration on live nodes, and what each node then offers.

    None without GPUs, and if the cluster brings the plugin. With MIG, ``layout`` and ``content`` identify
    the layout: a node that gets another layout is drained anyway, so shares are at stake only on a node that
    keeps its layout. ``refuses``: nothing may be evicted, so a node in use gets no new configuration before
    its new layout.
    """
    if not pool.gpus or env.ownership.device_plugin == "cluster":
        return None
    change: dict[str, Any] = {"label": labels.DEVICE_PLUGIN_CONFIG, "offers": allocatable.summary(pool)}
    if pool.cuts:
        content = layout_content(pool)
        change |= {"layout": mig_config_name(pool)} | ({"content": content} if content else {})
    if pool.relayout is not None and pool.relayout.in_use == "refuse":
        change["refuses"] = True
    return change


def pool_taints(env: Environment, pool: Pool) -> list[dict[str, str]]:
    """Taints of the pool's nodes: the GPU taint first, where it has GPUs, then its own.

    Its own may give the GPU taint another value, as GKE's nvidia.com/gpu=present.
    """
    taint = env.gpu_operator.taint if pool.gpus else None
    gpu = [{"key": taint.key, "value": taint.value, "effect": "NoSchedule"}] if taint else []
    own = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in pool.taints]
    return list({(taint["key"], taint["effect"]): taint for taint in gpu + own}.values())


def tolerations(env: Environment, pools: Iterable[Pool]) -> list[dict[str, str]]:
    """Tolerations of these pools' taints with any value, each once: for a DaemonSet on their nodes."""
    taints = (taint for pool in pools for taint in pool_taints(env, pool))
    return unique(tolerate(taint["key"], taint["effect"]) for taint in taints)


def pod_tolerations(env: Environment, pools: Iterable[Pool]) -> list[dict[str, str]]:
    """Tolerations of these pools' taints with their values, each once: for pods that use the GPUs."""
    return unique(
        tolerate(taint["key"], taint["effect"])
        if has_any_value(env, taint["key"])
        else {"key": taint["key"], "operator": "Equal", "value": taint["value"], "effect": taint["effect"]}
        for pool in pools
        for taint in pool_taints(env, pool)
    )


def has_any_value(env: Environment, taint: str) -> bool:
    """Whether the value of a taint is not known: GKE sets NVIDIA's with another one."""
    return env.cluster.kind == "existing" and taint == labels.NVIDIA_GPU


def node_selector(env: Environment, pool: Pool) -> str | None:
    """Selector of nodes that this program does not create; None for other pools.

    The pool's own, that of its node group, or its hosts by name.
    """
    if pool.hosts:
        return f"{labels.HOSTNAME} in ({','.join(sorted(host.name for host in pool.hosts))})"
    selector = magnum.selector(env, pool) if env.cluster.kind == "openstack" else pool.selector or {}
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or None


def config_map(env: Environment, base: str, data: dict[str, str], namespace: str = NAMESPACE) -> Manifest:
    """A ConfigMap, by default in the operator's namespace; its name ends in a hash of its content."""
    name = f"{base}-{short_digest(json.dumps(data, sort_keys=True))}"
    return manifest("ConfigMap", {"name": name, "namespace": namespace, "labels": own_labels(env)}, data=data)


Entries = list[Manifest]


def mig_parted_config(pools: Iterable[Pool]) -> Manifest | None:
    """The pools' layouts in mig-parted's own format; None without a MIG-capable GPU."""
    pools = list(pools)
    names: dict[str, dict[str, Entries]] = {mig_config.DISABLED: {}}
    for pool in pools:
        name = mig_config.config_name(pool)
        if name is not None and name != mig_config.DISABLED:
            for gpu in pool.gpus:
                names.setdefault(name, {})[gpu.device_filter] = _mig_entries(gpu, pool)
    if not any(gpu.mig_capable for pool in pools for gpu in pool.gpus):
        return None
    configs = {name: _per_device(entries) for name, entries in sorted(names.items())}
    return {"version": "v1", "mig-configs": configs}


def layout_content(pool: Pool) -> str | None:
    """Hash (eight digits) of the content of a layout with a chosen name; else None."""
    if not (isinstance(pool.sharing, Mig) and pool.sharing.name):
        return None
    return short_digest(json.dumps([[gpu.device_filter, _mig_entries(gpu, pool)] for gpu in pool.gpus]))


def _mig_entries(gpu: Gpu, pool: Pool) -> Entries:
    entries: Entries = [
        {
            "devices": "all" if cut.devices is None else list(cut.devices),
            "mig-enabled": True,
            "mig-devices": dict(sorted(cut.layout.items())),
        }
        for cut in layouts.cuts(gpu, pool.sharing)
    ]
    if pool.whole_gpus:
        entries.append({"devices": list(pool.whole_gpus), "mig-enabled": False})
    return entries


def _per_device(models: Mapping[str, Entries]) -> Entries:
    if not models:
        return [{"devices": "all", "mig-enabled": False}]
    groups: dict[str, list[str]] = {}
    for device in sorted(models):
        groups.setdefault(json.dumps(models[device]), []).append(device)
    if len(groups) == 1:
        return list(json.loads(next(iter(groups))))
    return [
        {"device-filter": devices, **entry} for text, devices in groups.items() for entry in json.loads(text)
    ]

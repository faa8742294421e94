"""The device plugin's and the MIG manager's ConfigMaps, and what chooses from them on a node.

The operator does not look at a ConfigMap again once it has read it, so each name ends in a hash of the
content: a changed configuration is another object, and the operands are told its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from infra.model import labels, offer
from infra.model.environment import Environment
from infra.model.gpu import Gpu
from infra.model.pool import Pool, resolve
from infra.model.sharing import Exclusive, Mig, Mps, TimeSlicing

NAMESPACE = "gpu-operator"
DEVICE_PLUGIN_CONFIG = "nvidia-time-slicing-config"
MIG_CONFIG = "nvidia-mig-config"
DEFAULT_KEY = "default"
"""Key for nodes without a label: without one the config manager would take none and give up."""
MIG_DISABLED = "all-disabled"

Manifest = dict[str, Any]


def to_yaml(value: object) -> str:
    """YAML with the keys in the order given, the same bytes every time."""
    return yaml.safe_dump(value, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1000)


def config_key(pool: Pool) -> str:
    """The pool's key in the device plugin's ConfigMap: one per way of sharing, not one per pool."""
    sharing = pool.sharing
    if isinstance(sharing, TimeSlicing):
        name = "" if sharing.rename else "-keep-name"
        several = "" if sharing.fail_requests_greater_than_one else "-allow-several"
        return f"slice-{sharing.replicas}{name}{several}"
    if isinstance(sharing, Mps):
        return f"mps-{sharing.replicas}"
    return DEFAULT_KEY


def device_plugin_config_map(env: Environment) -> Manifest | None:
    """ConfigMap with one key per way of sharing; None where every GPU is exclusive or cut by MIG.

    None, too, where the node image has a device plugin of its own, which reads no ConfigMap.
    """
    if env.image_ships_device_plugin:
        return None
    pools = {config_key(pool): pool for pool in env.pools if isinstance(pool.sharing, TimeSlicing | Mps)}
    if not pools:
        return None
    data = {DEFAULT_KEY: to_yaml(_plugin_config(env, None))}
    for key in sorted(pools):
        data[key] = to_yaml(_plugin_config(env, pools[key]))
    return config_map(env, DEVICE_PLUGIN_CONFIG, data)


def _plugin_config(env: Environment, pool: Pool | None) -> Manifest:
    """One configuration in the device plugin's format v1."""
    strategy: str = env.gpu_operator.mig_strategy
    sharing = pool.sharing if pool else Exclusive()
    block: Manifest = {}
    if isinstance(sharing, TimeSlicing):
        block["timeSlicing"] = {
            "renameByDefault": sharing.rename,
            "failRequestsGreaterThanOne": sharing.fail_requests_greater_than_one,
            "resources": [{"name": labels.NVIDIA_GPU, "replicas": sharing.replicas}],
        }
    if isinstance(sharing, Mps):
        block["mps"] = {"resources": [{"name": labels.NVIDIA_GPU, "replicas": sharing.replicas}]}
    config: Manifest = {"version": "v1", "flags": {"migStrategy": strategy}}
    if block:
        config["sharing"] = block
    return config


def mig_config_name(pool: Pool) -> str | None:
    """The MIG manager's configuration that the pool's nodes shall have; None for GPUs without MIG.

    A MIG-capable pool that is not cut has one too, ``all-disabled``: it may have been cut before.
    """
    if not any(gpu.mig_capable for gpu in pool.gpus):
        return None
    layout = pool.layout
    if layout is None:
        return MIG_DISABLED
    geometry = pool.gpus[0].geometry
    assert geometry is not None
    order = {profile.name: index for index, profile in enumerate(geometry.profiles)}
    parts = sorted(layout.items(), key=lambda item: -order[item[0]])
    spelled = [(name.replace("+", "."), count) for name, count in parts]
    if len(parts) == 1 and parts[0][1] == geometry.most(parts[0][0]):
        return f"all-{spelled[0][0]}"
    name = "-".join(part if count == 1 else f"{count}x{part}" for part, count in spelled)
    return name if len(name) <= 63 else f"{name[:54].rstrip('-.')}-{_digest(name)}"


def mig_parted_config_map(env: Environment) -> Manifest | None:
    """ConfigMap with every layout the pools use, and ``all-disabled``; None without a MIG-capable GPU.

    Two GPU models may mean different layouts by one name (all-1g.10gb); then each entry names its devices.
    None where the node image cuts its GPUs itself, at boot.
    """
    config = None if env.image_ships_device_plugin else mig_parted_config(env.pools)
    return config_map(env, MIG_CONFIG, {"config.yaml": to_yaml(config)}) if config else None


def mig_parted_config(pools: Iterable[Pool]) -> Manifest | None:
    """The pools' layouts in mig-parted's own format; None without a MIG-capable GPU."""
    pools = list(pools)
    names: dict[str, dict[str, Manifest]] = {MIG_DISABLED: {}}
    for pool in pools:
        name = mig_config_name(pool)
        if name is not None and name != MIG_DISABLED and isinstance(pool.sharing, Mig):
            for gpu in pool.gpus:
                names.setdefault(name, {})[gpu.device_filter] = _mig_entry(gpu, pool.sharing)
    if not any(gpu.mig_capable for pool in pools for gpu in pool.gpus):
        return None
    configs = {name: _per_device(entries) for name, entries in sorted(names.items())}
    return {"version": "v1", "mig-configs": configs}


def _mig_entry(gpu: Gpu, sharing: Mig) -> Manifest:
    layout = dict(sorted(resolve(gpu, sharing.layout).items()))
    return {"devices": "all", "mig-enabled": True, "mig-devices": layout}


def _per_device(entries: Mapping[str, Manifest]) -> list[Manifest]:
    if not entries:
        return [{"devices": "all", "mig-enabled": False}]
    groups: dict[str, list[str]] = {}
    for device in sorted(entries):
        groups.setdefault(json.dumps(entries[device]), []).append(device)
    if len(groups) == 1:
        return [json.loads(next(iter(groups)))]
    return [{"device-filter": devices, **json.loads(entry)} for entry, devices in groups.items()]


def pool_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels of the pool's nodes, the pool's own among them, sorted.

    ``nvidia.com/mig.config`` is not one of them: it is set once the operands run, node by node.
    """
    found = {**pool.labels, labels.POOL: pool.name, labels.ENVIRONMENT: env.name}
    if pool.by_claim:
        found |= {labels.DEPLOY_DEVICE_PLUGIN: "false", labels.PCI_PRESENT: "true"}
    elif pool.gpus and device_plugin_config_map(env) is not None:
        found[labels.DEVICE_PLUGIN_CONFIG] = config_key(pool)
    return dict(sorted(found.items()))


def pool_taints(env: Environment, pool: Pool) -> list[dict[str, str]]:
    """Taints of the pool's nodes: the GPU taint first, where it has GPUs, then its own."""
    gpu = [{"key": env.gpu_operator.gpu_taint, "value": "true", "effect": "NoSchedule"}] if pool.gpus else []
    own = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in pool.taints]
    return gpu + own


def tolerations(env: Environment, pools: Iterable[Pool]) -> list[dict[str, str]]:
    """Tolerations of these pools' taints whatever their values, each once: what a DaemonSet there needs."""
    found: list[dict[str, str]] = []
    for pool in pools:
        for taint in pool_taints(env, pool):
            entry = {"key": taint["key"], "operator": "Exists", "effect": taint["effect"]}
            if entry not in found:
                found.append(entry)
    return found


def node_selector(pool: Pool) -> str | None:
    """The selector of nodes that nobody here makes: the pool's own, or its hosts by name; None for others."""
    if pool.hosts:
        return f"{labels.HOSTNAME} in ({','.join(sorted(host.name for host in pool.hosts))})"
    return ",".join(f"{key}={value}" for key, value in sorted((pool.selector or {}).items())) or None


def offered(env: Environment, pool: Pool, gpus: int | None = None) -> dict[str, int]:
    """Extended resources of a node with ``gpus`` GPUs once the operands have acted; what is not named is 0.

    The number may be left out where all nodes of the pool have as many (ValueError where they may differ).
    """
    return offer.offered(env.gpu_operator.mig_strategy, pool, gpus)


def summary(env: Environment, pool: Pool) -> dict[str, Any]:
    """What each node offers, for people; where they differ, by its number of GPUs: ``{"1": {...}, ...}``."""
    if len(pool.gpu_counts) == 1:
        return dict(offered(env, pool))
    return {str(gpus): offered(env, pool, gpus) for gpus in pool.gpu_counts}


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def config_map(env: Environment, base: str, data: dict[str, str]) -> Manifest:
    """A ConfigMap in the operator's namespace, whose name ends in a hash of its content."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{base}-{_digest(json.dumps(data, sort_keys=True))}",
            "namespace": NAMESPACE,
            "labels": {labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform"},
        },
        "data": data,
    }

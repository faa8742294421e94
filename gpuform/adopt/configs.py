"""The ConfigMaps that say how a cluster's GPUs are shared: those of NVIDIA's device plugin and MIG manager.

A node's label names the entry that is used there; else it is the default one (k8s-device-plugin, README,
"Multiple Config Files"; gpu-operator, api/nvidia/v1, DevicePluginConfig and MIGPartedConfigSpec).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuform.kubernetes.controllers import DEVICE_PLUGINS, has_image, is_operator_owned
from gpuform.manifests.documents import entries, mapping_at, mapping_in

Json = Mapping[str, Any]
ConfigMaps = Callable[[str, str], Json | None]
_DEFAULT_LAYOUTS = "default-mig-parted-config"
"""The operator's own ConfigMap of layouts, if the ClusterPolicy names no other."""


def named(policies: Sequence[Json], daemon_sets: Sequence[Json]) -> Iterator[tuple[str, str]]:
    """Namespace and name of each ConfigMap that configures a device plugin or a MIG manager."""
    for policy in policies:
        for space in _operand_namespaces(daemon_sets):
            layouts = mapping_at(policy, ("spec", "migManager", "config"))
            yield space, str(layouts.get("name") or _DEFAULT_LAYOUTS)
            if name := mapping_at(policy, ("spec", "devicePlugin", "config")).get("name"):
                yield space, str(name)
    for item in daemon_sets:
        if is_plugin(item) and not is_operator_owned(item):
            for name in _mounted(item):
                yield str(item["metadata"].get("namespace")), name


def is_plugin(item: Json) -> bool:
    """Whether a DaemonSet is NVIDIA's device plugin."""
    spec = mapping_at(item, ("spec", "template", "spec"))
    valid = [one for one in entries(spec, "containers") if isinstance(one, Mapping) and "image" in one]
    return bool(valid) and len(valid) == len(entries(spec, "containers")) and has_image(item, DEVICE_PLUGINS)


def plugin_config(
    policies: Sequence[Json],
    daemon_sets: Sequence[Json],
    config_map: ConfigMaps,
    name: str,
) -> Json:
    """The device plugin's configuration of that name, or the default one; empty if none can be read."""
    default = ""
    for policy in policies:
        default = str(mapping_at(policy, ("spec", "devicePlugin", "config")).get("default") or "")
    chosen = name or default
    for data in _data(named(policies, daemon_sets), config_map):
        key = chosen or ("default" if "default" in data else next(iter(data)) if len(data) == 1 else "")
        config = mapping_in(data.get(key))
        if "sharing" in config or "flags" in config:
            return config
    return {}


def mig_layout(
    policies: Sequence[Json], daemon_sets: Sequence[Json], config_map: ConfigMaps, name: str
) -> Sequence[Json]:
    """The entries of a named layout of the MIG manager, in mig-parted's format; none if it is unknown."""
    for data in _data(named(policies, daemon_sets), config_map):
        for text in data.values():
            found = entries(mapping_at(mapping_in(text), ("mig-configs",)), name)
            if found and all(isinstance(entry, Mapping) for entry in found):
                return found
    return ()


def _data(keys: Iterable[tuple[str, str]], config_map: ConfigMaps) -> Iterator[Mapping[str, Any]]:
    for namespace, name in dict.fromkeys(keys):
        if data := mapping_at(config_map(namespace, name), ("data",)):
            yield data


def _operand_namespaces(daemon_sets: Iterable[Json]) -> list[str]:
    owned = [item for item in daemon_sets if is_operator_owned(item)]
    return list(dict.fromkeys(str(item["metadata"].get("namespace")) for item in owned))


def _mounted(item: Json) -> Iterator[str]:
    for volume in entries(mapping_at(item, ("spec", "template", "spec")), "volumes"):
        if name := mapping_at(volume, ("configMap",)).get("name"):
            yield str(name)

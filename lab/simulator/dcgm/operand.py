"""dcgm-exporter as an operand: which counters its pod asks for, and why it crash-loops."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from lab.simulator import driver, faults
from lab.simulator.dcgm import counters
from lab.simulator.dcgm.counters import CountersError
from lab.simulator.dcgm.fields import DEFAULT, Counter
from lab.simulator.objects import Pod
from lab.simulator.world import Broken, World

OPERAND = "dcgm-exporter"
NO_DRIVER = "Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND: no driver on this node"
DOWN = "Failed to initialize DCGM: the hostengine has stopped (injected fault: exporter-down)"

ConfigMaps = Mapping[tuple[str, str], dict[str, str]]


def asked(pod: Pod, maps: ConfigMaps) -> tuple[Counter, ...]:
    """Counters that an exporter's pod serves; raises CountersError if the exporter would exit.

    An edited ConfigMap takes effect at once; on a real node it takes a minute and a reload of the exporter.
    """
    if not pod.template.config_map:
        return DEFAULT
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        raise CountersError(f'configmap "{pod.template.config_map}" not found')
    return _read(tuple(sorted(data.items())))


@lru_cache(maxsize=32)
def _read(data: tuple[tuple[str, str], ...]) -> tuple[Counter, ...]:
    return counters.of(dict(data))


def wrong(pod: Pod, maps: ConfigMaps) -> Broken | None:
    """Error in the pod's counters, or None. Mounted files stay when their ConfigMap is deleted."""
    there = not pod.template.config_map or (pod.namespace, pod.template.config_map) in maps
    if not there and pod.start == "granted":
        return None
    try:
        asked(pod, maps)
    except CountersError as error:
        return Broken(str(error), mount=not there)
    return None


def problem(world: World, pod: Pod) -> str | None:
    config = world.configs.get(pod.uid)
    if isinstance(config, Broken):
        return config.message
    if pod.start != "granted" and driver.version(world) is None:
        return NO_DRIVER
    return DOWN if faults.breaks(world.node, faults.EXPORTER_DOWN) else None

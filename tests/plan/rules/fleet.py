"""A fleet of MIG GPUs: scrapes of its exporters and kube-state-metrics."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.model.environment import Environment
from lab.simulator.dcgm import device
from lab.simulator.hardware import GPUS
from tests.plan.environments import on

PROFILE, RESOURCE = "1g.10gb", "nvidia_com_mig_1g_10gb"
_A100 = GPUS["20b2"]  # SXM4, 80 GB
_MIB = 10240


@dataclass(frozen=True)
class Fleet:
    """``nodes`` nodes of ``gpus`` GPUs, each with ``slices`` MIG slices and one pod on each slice."""

    nodes: int
    gpus: int
    slices: int
    pool: str = "a100"

    @property
    def names(self) -> list[str]:
        return [f"{self.pool}-{number}" for number in range(self.nodes)]

    def pods(self, node: str) -> Iterator[tuple[str, str, int, int]]:
        number = int(node.rpartition("-")[2])
        for gpu in range(self.gpus):
            for part in range(self.slices):
                yield f"team-{(number + gpu) % 20}", f"work-{node}-{gpu}-{part}", gpu, part


def environment(fleet: Fleet) -> Environment:
    sharing = {"kind": "mig", "layout": "all-1g.10gb"}
    pool = {"name": fleet.pool, "machine": "p4de.24xlarge", "nodes": fleet.nodes, "sharing": sharing}
    return on("embedded", pool, name="fleet", gpu_operator={"mig_strategy": "mixed"}, monitoring={})


class Exporters:
    """Serves ``/<node>`` as that node's dcgm-exporter, with changing values, and ``/state``."""

    def __init__(self, fleet: Fleet, counters: Sequence[tuple[str, str]], state: str) -> None:
        """``counters`` are names and types; ``state`` is the constant scrape of kube-state-metrics."""
        self._random = random.Random(20261122)
        self._state = state
        self._began = time.monotonic()
        values = _values()
        known = [(name, kind) for name, kind in counters if kind != "label" and name in values]
        self._samples = {
            node: [
                (f"{name}{{{head}}} ", values[name], kind)
                for name, kind in known
                for head in _heads(fleet, node)
            ]
            for node in fleet.names
        }

    def page(self, path: str) -> str:
        """Text of one target: ratios vary, counters grow, error counters stay 0."""
        if path == "state":
            return self._state
        chance, seconds = self._random.random, time.monotonic() - self._began
        return "".join(
            f"{head}{value * (0.5 + chance()):.6f}\n"
            if kind == "gauge" and value
            else f"{head}{int(value * (1 + seconds))}\n"
            for head, value, kind in self._samples[path]
        )


def _values() -> dict[str, float]:
    """Every field with a value for a MIG instance, as the simulator models it, half busy."""
    state = device.State()
    for second in (0.0, 60.0):
        device.advance(state, _A100, 0.5, 0.0, {}, 1e9 + second)
    own = device.device_values(0.5, _MIB, _MIB // 2, instance=True)
    none = {
        "DCGM_FI_DEV_XID_ERRORS": 0.0,
        "DCGM_EXP_XID_ERRORS_COUNT": 0.0,
        "DCGM_EXP_CLOCK_EVENTS_COUNT": 0.0,
    }
    return device.gpu_values(state, _A100, 0.5, {}) | own | none


def _heads(fleet: Fleet, node: str) -> Iterator[str]:
    for namespace, pod, gpu, part in fleet.pods(node):
        yield (
            f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}",'
            f'modelName="NVIDIA A100-SXM4-80GB",Hostname="{node}",GPU_I_PROFILE="{PROFILE}",'
            f'GPU_I_ID="{part + 7}",DCGM_FI_DRIVER_VERSION="595.91.07",container="work",'
            f'namespace="{namespace}",pod="{pod}"'
        )


def cluster_state(fleet: Fleet) -> str:
    """Scrape of kube-state-metrics for the nodes and pods: only what our rules read."""
    lines = []
    count = fleet.gpus * fleet.slices
    unit = f'resource="{RESOURCE}",unit="integer"'
    for node in fleet.names:
        lines.append(f'kube_node_info{{node="{node}"}} 1')
        lines.append(
            f'kube_node_labels{{node="{node}",label_gpuform_io_pool="{fleet.pool}",'
            'label_nvidia_com_mig_config_state="success"} 1'
        )
        lines.append(f'kube_node_status_condition{{node="{node}",condition="Ready",status="true"}} 1')
        lines.append(f'kube_node_spec_unschedulable{{node="{node}"}} 0')
        for word in ("allocatable", "capacity"):
            lines.append(f'kube_node_status_{word}{{node="{node}",{unit}}} {count}')
            lines.append(f'kube_node_status_{word}{{node="{node}",resource="cpu",unit="core"}} 96')
            lines.append(
                f'kube_node_status_{word}{{node="{node}",resource="memory",unit="byte"}} {1152 * 2**30}'
            )
        for namespace, pod, _, _ in fleet.pods(node):
            names = f'namespace="{namespace}",pod="{pod}",uid="{pod}"'
            lines += [
                f'kube_pod_info{{{names},node="{node}",created_by_kind="Job",created_by_name="{pod}"}} 1',
                f'kube_pod_owner{{{names},owner_kind="Job",owner_name="{pod}",owner_is_controller="true"}} 1',
                *(
                    f'kube_pod_status_phase{{{names},phase="{phase}"}} {int(phase == "Running")}'
                    for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")
                ),
                *(
                    f'kube_pod_container_resource_{word}{{{names},container="work",node="{node}",{asks}'
                    for word in ("requests", "limits")
                    for asks in (
                        f"{unit}}} 1",
                        'resource="cpu",unit="core"} 1',
                        'resource="memory",unit="byte"} 8e9',
                    )
                ),
                f'kube_pod_container_status_restarts_total{{{names},container="work"}} 0',
            ]
    return "\n".join(lines) + "\n"

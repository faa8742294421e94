"""A healthy cluster as Prometheus sees it: three pools with different sharing, and pods on them.

Written by hand with the exporters' own names, so that a rule that expects other names finds no series.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infra.model.environment import Environment
from tests.plan.environments import on
from tests.plan.rules.promtool import selector

ALWAYS = "x300"
MIB = 1024 * 1024


def environment(**more: Any) -> Environment:
    """Pools: T4s in four shares, an A100 in slices, whole A100s, and nodes without GPUs."""
    turns = {"kind": "time_slicing", "replicas": 4}
    slices = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
    pools = [
        {"name": "turns", "machine": "g2.5xlarge", "nodes": 2, "sharing": turns},
        {"name": "slices", "machine": "g4.p1.40g", "sharing": slices},
        {"name": "whole", "machine": "g4.p4.40g", "nodes": 2},
        {"name": "plain", "machine": "m6i.xlarge"},
    ]
    return on("embedded", *pools, **{"name": "labs", "gpu_operator": {"mig_strategy": "mixed"}, **more})


@dataclass(frozen=True)
class Node:
    """``instances`` are MIG instance ids and profiles of each GPU; ``offers`` are allocatable amounts."""

    name: str
    pool: str
    model: str = "Tesla T4"
    gpus: int = 1
    instances: tuple[tuple[int, str], ...] = ()
    offers: Mapping[str, int] = field(default_factory=dict)

    def gpu(self, index: int = 0) -> dict[str, Any]:
        """DCGM's labels of one GPU, with those that the scrape adds."""
        return {
            "gpu": index,
            "UUID": f"GPU-{self.name}-{index}",
            "pci_bus_id": f"00000000:0{index}:00.0",
            "device": f"nvidia{index}",
            "modelName": self.model,
            "Hostname": self.name,
            "DCGM_FI_DRIVER_VERSION": "580.95.05",
            "node": self.name,
            "job": "nvidia-dcgm-exporter",
            "instance": f"10.0.0.1:{self.name}",
        }

    def devices(self) -> Iterator[dict[str, Any]]:
        """DCGM's labels of each whole GPU and of each MIG instance."""
        for index in range(self.gpus):
            if not self.instances:
                yield self.gpu(index)
            for number, profile in self.instances:
                yield {**self.gpu(index), "GPU_I_ID": number, "GPU_I_PROFILE": profile}


TURNS = Node("turns-0", "turns", offers={"nvidia_com_gpu_shared": 4})
TURNS_1 = Node("turns-1", "turns", offers={"nvidia_com_gpu_shared": 4})
SLICES = Node(
    "slices-0",
    "slices",
    "NVIDIA A100-PCIE-40GB",
    instances=((1, "3g.20gb"), (5, "2g.10gb"), (6, "2g.10gb")),
    offers={"nvidia_com_mig_3g_20gb": 1, "nvidia_com_mig_2g_10gb": 2, "nvidia_com_gpu": 0},
)
WHOLE = Node("whole-0", "whole", "NVIDIA A100-PCIE-40GB", 4, offers={"nvidia_com_gpu": 4})
WHOLE_1 = Node("whole-1", "whole", "NVIDIA A100-PCIE-40GB", 4, offers={"nvidia_com_gpu": 4})
PLAIN = Node("plain-0", "plain", gpus=0)
NODES = (TURNS, TURNS_1, SLICES, WHOLE, WHOLE_1, PLAIN)
FIELDS = {
    "DCGM_FI_DEV_GPU_TEMP": "60",
    "DCGM_FI_DEV_POWER_USAGE": "55.5",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "6000+3000",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.5",
    "DCGM_FI_DEV_FB_USED": "1000",
    "DCGM_FI_DEV_FB_FREE": "14000",
    "DCGM_FI_DEV_FB_RESERVED": "360",
    "DCGM_FI_DEV_XID_ERRORS": "0",
    "DCGM_EXP_XID_ERRORS_COUNT": "0",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "0",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "0",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "0",
    "DCGM_FI_DEV_POWER_VIOLATION": "0",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "0",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "0",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "0",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "0",
}


def always(value: str) -> str:
    """One value, or a growing counter, for five hours."""
    return f"{value}{ALWAYS}"


def exporter_series(node: Node) -> dict[str, str]:
    found = {up(node): always("1")} if node.gpus else {}
    for labels in node.devices():
        for name, value in FIELDS.items():
            more = {"window_size_in_ms": 300000} if name.startswith("DCGM_EXP") else {}
            found[selector(name, **labels, **more)] = always(value)
    return found


def up(node: Node) -> str:
    instance = f"10.0.0.1:{node.name}"
    return selector("up", job="nvidia-dcgm-exporter", node=node.name, instance=instance)


def node_series(node: Node) -> dict[str, str]:
    found = {
        selector("kube_node_info", node=node.name): "1",
        labelled(node): "1",
        selector("kube_node_spec_unschedulable", node=node.name): "0",
        selector("kube_node_status_allocatable", node=node.name, resource="cpu", unit="core"): "16",
    }
    for status in ("true", "false", "unknown"):
        ready = selector("kube_node_status_condition", node=node.name, condition="Ready", status=status)
        found[ready] = "1" if status == "true" else "0"
    for resource, amount in node.offers.items():
        found[allocatable(node, resource)] = str(amount)
    return {name: always(value) for name, value in found.items()}


def labelled(node: Node, **more: str) -> str:
    names = {"label_gpuform_io_pool": node.pool, "label_nvidia_com_gpu_driver_upgrade_state": "upgrade-done"}
    return selector("kube_node_labels", node=node.name, **{**names, **more})


def allocatable(node: Node, resource: str) -> str:
    return selector("kube_node_status_allocatable", node=node.name, resource=resource, unit="integer")


def pod(
    name: str, node: Node | None, asks: Mapping[str, int], namespace: str = "team", phase: str = "Running"
) -> dict[str, str]:
    """Kube-state-metrics series of a pod; without a node it is unschedulable."""
    who = {"namespace": namespace, "pod": name, "uid": f"{namespace}-{name}"}
    where = {"node": node.name} if node else {}
    found = {selector("kube_pod_info", **who, **where): "1"}
    for each in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
        found[selector("kube_pod_status_phase", **who, phase=each)] = "1" if each == phase else "0"
    for resource, amount in asks.items():
        what = {"container": "main", "resource": resource, "unit": "integer"}
        for kind in ("requests", "limits"):
            found[selector(f"kube_pod_container_resource_{kind}", **who, **where, **what)] = str(amount)
    if node is None:
        found[selector("kube_pod_status_unschedulable", **who)] = "1"
    return {series: always(value) for series, value in found.items()}


PODS = {
    **pod("one", TURNS, {"nvidia_com_gpu_shared": 1}),
    **pod("two", TURNS, {"nvidia_com_gpu_shared": 1}, namespace="other"),
    **pod("large", SLICES, {"nvidia_com_mig_3g_20gb": 1}),
    **pod("train", WHOLE, {"nvidia_com_gpu": 2}),
    **pod("ended", WHOLE, {"nvidia_com_gpu": 2}, phase="Succeeded"),
}


def all_state_series() -> dict[str, str]:
    found: dict[str, str] = {}
    for node in NODES:
        found |= node_series(node)
    return found | PODS


def all_exporter_series() -> dict[str, str]:
    found: dict[str, str] = {}
    for node in NODES:
        found |= exporter_series(node)
    return found


def healthy() -> dict[str, str]:
    return all_state_series() | all_exporter_series()


def with_uuid(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Labels of a GPU by its number alone."""
    return {**labels, **({"UUID": f"GPU-{labels['node']}-{labels['gpu']}"} if "gpu" in labels else {})}


def recorded() -> dict[str, dict[str, float]]:
    """Samples of ``healthy.yaml`` by expression; of a series of ours they have its name."""
    found: dict[str, dict[str, float]] = {}
    file = yaml.safe_load(Path(__file__).with_name("healthy.yaml").read_text(encoding="utf-8"))
    for expression, samples in file.items():
        name = re.match(r"(?:gpuform:[a-z0-9_:]+)?", expression)
        assert name
        found[expression] = {selector(name[0], **with_uuid(labels)): value for value, labels in samples}
    return found

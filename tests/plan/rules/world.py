"""Environments with rules, and a healthy cluster as Prometheus sees it: three pools with different sharing.

Its series are written by hand with the exporters' own names: a rule that expects other names finds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from infra.config import load
from infra.model.environment import Environment
from tests.build import aws_environments
from tests.build.environments import on
from tests.plan.rules.promtool import selector

ALWAYS = "x300"
MIB = 1024 * 1024
ROOT = Path(__file__).parents[3]
_EVERY_DEVICE = "node pool gpu UUID modelName GPU_I_ID GPU_I_PROFILE"
_BY_NAMESPACE = "namespace pool sharing"
CONTRACT = {
    f"gpuform:{name}": labels
    for names, labels in {
        "node:info": "node pool",
        "device:util_ratio device:memory_used_bytes device:memory_total_bytes": _EVERY_DEVICE,
        "gpu:power_watts gpu:energy_joules_total gpu:temperature_celsius": "node pool gpu UUID modelName",
        "pod:gpus_requested pod:gpus_used": "namespace pod node pool sharing resource",
        "namespace:gpus_requested namespace:gpus_used namespace:gpus_idle": _BY_NAMESPACE,
        "namespace:gpu_hours_requested_1h namespace:gpu_hours_used_1h": _BY_NAMESPACE,
        "namespace:gpu_hours_idle_1h": _BY_NAMESPACE,
        "pool:gpus_declared pool:gpus_allocatable pool:gpus_requested pool:gpus_used": "pool sharing",
        "resource:allocatable resource:requested resource:limits": "node pool resource",
        "fault:active": "node pool gpu UUID xid class reason",
    }.items()
    for name in names.split()
}
"""Series that dashboards, reports and the health loop read, and all their labels."""
MIG = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
SHARED = {"name": "turns", "sharing": {"kind": "time_slicing", "replicas": 4}}


def environment(**more: Any) -> Environment:
    """Pools: T4s in four shares, an A100 in slices, whole A100s, and nodes without GPUs."""
    pools = [
        {**SHARED, "machine": "g2.5xlarge", "nodes": 2},
        {"name": "slices", "machine": "g4.p1.40g", "sharing": MIG},
        {"name": "whole", "machine": "g4.p4.40g", "nodes": 2},
        {"name": "plain", "machine": "m6i.xlarge"},
    ]
    return on("embedded", *pools, **{"name": "labs", "gpu_operator": {"mig_strategy": "mixed"}, **more})


def _one_pool(machine: str, **sharing: Any) -> Environment:
    return environment(pools=[{"name": "p0", "machine": machine, "nodes": 1, "sharing": sharing}])


def _elastic() -> Environment:
    """Karpenter's nodes, with spare ones: at most four, by shares and by cores."""
    limits = {"cpu": 18, "nvidia.com/gpu.shared": 16}
    pool = {**SHARED, "machine": "g4dn.xlarge", "elastic": {"max": limits}, "spare": 1}
    return aws_environments.aws(pool)


def _both() -> Environment:
    """On AWS a managed node group of at most two nodes, beside a pool of Karpenter's with the same shares."""
    group = {**SHARED, "machine": "g4dn.xlarge", "nodes": 1, "aws": {"scaling": {"min": 0, "max": 2}}}
    burst = {**SHARED, "name": "burst", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 8}}}
    return aws_environments.aws(group, burst)


def _node_group() -> Environment:
    """The same pool as a Magnum node group of at most two nodes, beside one that does not grow."""
    flavors = {"m2.medium": {"vcpu": 2, "memory_gib": 4}}
    pool = {**SHARED, "machine": "g2.5xlarge", "elastic": {"min": 1, "max": {"nodes": 2}}}
    plain = {"name": "plain", "machine": "m2.medium"}
    return on("openstack", pool, plain, cluster={"flavors": flavors}, name="labs")


def _scaled() -> Environment:
    web = {"name": "web", "namespace": "team", "kind": "inference", "pool": "whole", "image": "a:1"}
    web |= {"scale": {"min": 1, "max": 4, "qps_per_replica": 50}, "start_minutes": 12}
    team = {"name": "science", "namespaces": ["science"], "quota": {"whole": 4}}
    return environment(monitoring={}, queues={"teams": [team]}, workloads=[web])


ENVIRONMENTS = {
    **{file.name: load(file) for file in sorted(ROOT.glob("Pulumi.*.yaml"))},
    "mps": _one_pool("g2.5xlarge", kind="mps", replicas=4),
    "claimed": _one_pool("g4.p1.40g", kind="dra"),
    "claimed slices": _one_pool("g4.p1.40g", kind="dra", layout="all-1g.5gb"),
    "partly cut": _one_pool("g4.p2.40g", **MIG, devices=[0]),
    "shared slices": _one_pool("g4.p2.40g", **MIG, share={"replicas": 2}),
    "single": _one_pool("g4.p1.40g", kind="mig", layout="all-1g.5gb", strategy="single"),
    "without a GPU": on("embedded", {"machine": "m6i.xlarge"}),
    "switched": environment(
        pools=[
            {"name": "turns", "machine": "g2.5xlarge", "nodes": 1},
            {"name": "whole", "machine": "p4d.24xlarge", "nodes": 2},
        ]
    ),
    "existing, perhaps GKE": on("existing", {"name": "gpu", "gpu": {"models": ["T4"], "count": 1}}),
    "elastic": _elastic(),
    "node group": _node_group(),
    "both": _both(),
    "nodes of different sizes": aws_environments.aws(aws_environments.COUNTS),
    "scaled": _scaled(),
    "healthy": environment(),
}


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
TURNS_1 = replace(TURNS, name="turns-1")
SLICES = Node(
    "slices-0",
    "slices",
    "NVIDIA A100-PCIE-40GB",
    instances=((1, "3g.20gb"), (5, "2g.10gb"), (6, "2g.10gb")),
    offers={"nvidia_com_mig_3g_20gb": 1, "nvidia_com_mig_2g_10gb": 2, "nvidia_com_gpu": 0},
)
WHOLE = Node("whole-0", "whole", "NVIDIA A100-PCIE-40GB", 4, offers={"nvidia_com_gpu": 4})
WHOLE_1 = replace(WHOLE, name="whole-1")
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


def without(*words: str) -> dict[str, str]:
    """The healthy cluster without series that have one of these words."""
    return {name: value for name, value in healthy().items() if not any(word in name for word in words)}


def replaced(old: str, new: str, series: Mapping[str, str]) -> dict[str, str]:
    return {name: value.replace(old, new) for name, value in series.items()}


def with_uuid(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Labels of a GPU by its number alone."""
    return {**labels, **({"UUID": f"GPU-{labels['node']}-{labels['gpu']}"} if "gpu" in labels else {})}

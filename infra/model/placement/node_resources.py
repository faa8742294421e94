"""Room for workloads on a node: its machine, less what the kubelet reserves and what DaemonSets request.

The DaemonSets are those that the environment itself brings. Those of a Magnum template or of an existing
cluster are not declared, and neither are the reserves of their kubelets: there the room is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from infra.model.base.errors import InputError
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.pool.allocatable import resources
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mps
from infra.model.workload import matching
from infra.model.workload.workload import Workload

PODS_PER_NODE = 110
"""The kubelet's default."""
_MIB = 2**20
_VM_OVERHEAD = 0.075
"""Share of memory that the hypervisor keeps, as Karpenter assumes (``vmMemoryOverheadPercent``)."""
_CMA_MIB = 64
"""Memory that the kernel of arm64 nodes keeps for CMA, as Karpenter assumes (types.go, memory)."""
_EVICTION_MIB = 100
"""The kubelet's default for memory.available."""


@dataclass(frozen=True)
class DaemonSet:
    """A DaemonSet with one pod per node, and what that requests: millicores and MiB."""

    name: str
    cpu: int = 0
    memory: int = 0


EKS_DAEMON_SETS = (
    DaemonSet("aws-node", 50),  # amazon-vpc-cni-k8s v1.21.1, chart values: 25m for each of two containers
    DaemonSet("ebs-csi-node", 30, 120),  # aws-ebs-csi-driver v1.54.0, chart values: three of 10m and 40Mi
    DaemonSet("eks-node-monitoring-agent", 10, 30),  # its repository, v1.6.0 (the first public one), values
    DaemonSet("eks-pod-identity-agent"),  # its repository, chart values: resources {}
    DaemonSet("kube-proxy", 100),  # as EKS installs it: eksctl, pkg/addons/default/testdata/sample-1.25.json
)
"""DaemonSets of the add-ons; they tolerate every taint."""
DCGM_SERVER = DaemonSet("dcgm-server")  # eks-node-monitoring-agent, chart values: resources {}
EFA_PLUGIN = DaemonSet("aws-efa-k8s-device-plugin", 10, 20)  # eks-charts, chart values
NFD_WORKER = DaemonSet("node-feature-discovery-worker", 5, 64)  # v0.19.0, chart values
EXPORTER = DaemonSet(
    "dcgm-exporter", 100, 128
)  # its own chart 4.8.2, values; the operator's requests nothing
NODE_EXPORTER = DaemonSet("prometheus-node-exporter")  # prometheus-community's chart, values: resources {}
DRA_DRIVER = DaemonSet("dra-driver-nvidia-gpu-kubelet-plugin")  # 0.5.0, chart values: resources {}


@dataclass(frozen=True)
class NodeResources:
    """Millicores, MiB and number of pods."""

    cpu: int
    memory: int
    pods: int

    def fits(self, work: Workload) -> bool:
        return self.cpu >= cpu_millis(work.cpu) and self.memory * _MIB >= memory_bytes(work.memory)


def allocatable(
    machine: Machine, pods: int, reserved_for: int | None = None, hypervisor: float = _VM_OVERHEAD
) -> NodeResources:
    """What the kubelet of an EKS image leaves for pods; ``reserved_for``: pods that count for its reserve.

    Reserved: 6 % of the first core, 1 % of the second, 0.5 % of each of the next two, 0.25 % of each further
    one; 255 MiB, and 11 MiB per pod (Karpenter's pkg/providers/instancetype/types.go, nodeadm, Bottlerocket).
    """
    steps = [60, 10, 5, 5]
    cpu = math.ceil(sum(steps[: machine.vcpu]) + 2.5 * max(0, machine.vcpu - len(steps)))
    reserved = 255 + 11 * (pods if reserved_for is None else reserved_for) + _EVICTION_MIB
    memory = capacity_mib(machine, hypervisor) - reserved
    return NodeResources(machine.vcpu * 1000 - cpu, memory, pods)


def capacity_mib(machine: Machine, hypervisor: float = _VM_OVERHEAD) -> int:
    """MiB of memory that the kernel of an EKS image sees, and the kubelet reports as capacity."""
    reserved = _CMA_MIB if machine.arch == "arm64" else 0
    return math.floor((machine.memory * 1024 - reserved) * (1 - hypervisor))


def huge_pages_mib(pool: Pool) -> int:
    """MiB in huge pages of each node of the pool; the kubelet subtracts them from the allocatable memory."""
    return memory_bytes(pool.hugepages or "0Mi") // _MIB


def node_machines(env: Environment, pool: Pool) -> tuple[Machine, ...]:
    """The machines that a node of the pool may be; empty if they are not known."""
    if env.cluster.kind == "aws":
        return pool.machines
    machine = pool.node_machine if env.cluster.kind == "embedded" else pool.flavor
    return (machine,) if machine else ()


def node_allocatable(pool: Pool, machine: Machine, hypervisor: float = _VM_OVERHEAD) -> NodeResources:
    """What the kubelet of a node of the pool leaves for pods, DaemonSets' included; AWS only."""
    pods = pool.aws_settings.max_pods or machine.pods
    # Bottlerocket reserves for the declared number of pods, AL2023's nodeadm for that of the interfaces.
    reserved_for = pods if pool.image.family == "Bottlerocket" else machine.pods
    left = allocatable(machine, pods, reserved_for, hypervisor)
    return replace(left, memory=left.memory - huge_pages_mib(pool))


def free_resources(env: Environment, pool: Pool, machine: Machine) -> NodeResources:
    """Room for workloads on an empty node of the pool on that machine.

    Before a type of its own has joined, Karpenter takes off its assumption of the hypervisor's memory; how
    much that really keeps is not known for the nodes of a node group, so nothing is taken off there.
    """
    if env.cluster.kind == "aws":
        total = node_allocatable(pool, machine, _VM_OVERHEAD if pool.by_karpenter else 0)
    else:
        total = NodeResources(
            machine.vcpu * 1000, machine.memory * 1024 - huge_pages_mib(pool), PODS_PER_NODE
        )
    pod_sets = list(daemon_sets(env, pool))
    return NodeResources(
        total.cpu - sum(daemon_set.cpu for daemon_set in pod_sets),
        total.memory - sum(daemon_set.memory for daemon_set in pod_sets),
        total.pods - len(pod_sets),
    )


def daemon_sets(env: Environment, pool: Pool) -> Iterator[DaemonSet]:
    """The DaemonSets of the environment that have a pod on each node of the pool."""
    if env.cluster.kind == "aws":
        yield from EKS_DAEMON_SETS
        # Only then does it tolerate the taint of nodes with GPUs.
        if pool.gpus and env.health and env.health.repair:
            yield DCGM_SERVER
        if pool.aws_settings.efa:
            yield EFA_PLUGIN
    if env.installs_prometheus:
        yield NODE_EXPORTER
    if pool.gpus or all(taint.effect == "PreferNoSchedule" for taint in pool.taints):
        yield NFD_WORKER
    if pool.gpus:
        yield from _operands(env, pool)


def _operands(env: Environment, pool: Pool) -> Iterator[DaemonSet]:
    """Parts of NVIDIA's charts; unless they are named above, their charts request nothing (resources: {})."""
    ownership, is_plugin_only = env.ownership, env.gpu_operator.mode == "device_plugin"
    if ownership.driver == "operator":
        yield DaemonSet("nvidia-driver-daemonset")
    if ownership.toolkit == "operator":
        yield DaemonSet("nvidia-container-toolkit-daemonset")
    if ownership.device_plugin != "image" and not pool.by_claim:
        yield DaemonSet("nvidia-device-plugin")
        if isinstance(pool.sharing, Mps):
            yield DaemonSet("mps-control-daemon")
    yield DaemonSet("gpu-feature-discovery")
    if pool.by_claim:
        yield DRA_DRIVER
    if is_plugin_only:
        yield from [EXPORTER] if env.monitoring else []
        return
    yield DaemonSet("nvidia-dcgm-exporter")
    yield DaemonSet("nvidia-operator-validator")
    if env.has_mig_manager and any(gpu.mig_capable for gpu in pool.gpus):
        yield DaemonSet("nvidia-mig-manager")


def check(env: Environment) -> None:
    """Refuse nodes on which only DaemonSets have room, and pods for which no node has room."""
    for index, pool in enumerate(env.pools):
        names = [daemon_set.name for daemon_set in daemon_sets(env, pool)]
        if (max_pods := pool.aws_settings.max_pods) and max_pods <= len(names):
            fact = f"{len(names)} DaemonSets have a pod on each node ({', '.join(names)})"
            raise InputError(f"pools[{index}].aws.max_pods", fact, f"use {len(names) + 1} or more")
        for machine in node_machines(env, pool):
            free = free_resources(env, pool, machine)
            if not pool.hugepages and min(free.cpu, free.memory, free.pods) <= 0:
                fact = f"kubelet and DaemonSets leave no room for pods on {machine.name}"
                remedy = "use a larger machine, or correct its values"
                raise InputError(f"pools[{index}].machine", fact, remedy)
            if free.memory <= 0:
                fact = (
                    f"{pool.hugepages} of the {machine.memory}Gi of {machine.name} leave no memory for pods"
                )
                raise InputError(f"pools[{index}].hugepages", fact, "use less, or a larger machine")
    for index, work in enumerate(env.workloads):
        _check_pod(env, work, f"workloads[{index}]")


def _check_pod(env: Environment, work: Workload, path: str) -> None:
    """Not checked if the machine of a pool is not known."""
    pools = matching.pools_of(env.pools, work) or list(env.pools)
    if not all(node_machines(env, pool) for pool in pools):
        return
    name = matching.requested_resource(pools, work) if work.selects_pools else None
    candidates = [
        (free_resources(env, pool, machine), machine)
        for pool in pools
        for machine in node_machines(env, pool)
        if not name or resources(pool, machine.gpus).get(name, 0) >= work.device_count
    ]
    if not candidates or any(free.fits(work) for free, _ in candidates):
        return
    free, machine = max(candidates, key=lambda candidate: candidate[0].cpu)
    if free.cpu < cpu_millis(work.cpu):
        key, maximum = "cpu", f"{free.cpu / 1000:g}"
        available = f"{maximum} cores for it: {machine.vcpu}"
    else:
        with_cpu = [candidate for candidate in candidates if candidate[0].cpu >= cpu_millis(work.cpu)]
        free, machine = max(with_cpu, key=lambda candidate: candidate[0].memory)
        key, maximum = "memory", f"{free.memory}Mi"
        available = f"{maximum} for it: {machine.memory}Gi"
    overhead = "kubelet, huge pages" if any(pool.hugepages for pool in pools) else "kubelet"
    fact = f"the largest node it may run on has {available} of {machine.name}, less {overhead} and DaemonSets"
    raise InputError(f"{path}.{key}", fact, f"request {maximum} or less per pod")


def warnings(env: Environment) -> Iterator[str]:
    """Pools with nodes that offer more shares or slices than they have room for pods."""
    for index, pool in enumerate(env.pools):
        for machine in node_machines(env, pool):
            units = sum(resources(pool, machine.gpus).values())
            most, daemons = free_resources(env, pool, machine).pods, len(list(daemon_sets(env, pool)))
            if units > most:
                fact = (
                    f"{machine.name} offers {units}, and has room for {most} pods beside {daemons} DaemonSets"
                )
                remedy = "offer fewer" + (", or raise aws.max_pods" if env.cluster.kind == "aws" else "")
                yield f"pools[{index}].sharing: a node of {fact}; {remedy}"
                break

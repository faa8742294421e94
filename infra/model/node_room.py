"""Room for workloads on a node: its machine, less what the kubelet reserves and what DaemonSets request.

The DaemonSets are those that the environment itself brings. Those of a Magnum template or of an existing
cluster are not declared, and neither are the reserves of their kubelets: there the room is an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.model import checks, choice, offer
from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.errors import InputError
from infra.model.machines import Machine
from infra.model.pool import Pool
from infra.model.sharing import Mps
from infra.model.workload import Workload

if TYPE_CHECKING:
    from infra.model.environment import Environment

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
class Daemon:
    """A DaemonSet with one pod per node, and what that requests: millicores and MiB."""

    name: str
    cpu: int = 0
    memory: int = 0


EKS = (
    Daemon("aws-node", 50),  # amazon-vpc-cni-k8s v1.21.1, chart values: 25m for each of two containers
    Daemon("ebs-csi-node", 30, 120),  # aws-ebs-csi-driver v1.54.0, chart values: three of 10m and 40Mi
    Daemon("eks-node-monitoring-agent", 10, 30),  # its repository, v1.6.0 (the first public one), values
    Daemon("eks-pod-identity-agent"),  # its repository, chart values: resources {}
    Daemon("kube-proxy", 100),  # as EKS installs it: eksctl, pkg/addons/default/testdata/sample-1.25.json
)
"""DaemonSets of the add-ons; they tolerate every taint."""
DCGM_SERVER = Daemon("dcgm-server")  # eks-node-monitoring-agent, chart values: resources {}
EFA_PLUGIN = Daemon("aws-efa-k8s-device-plugin", 10, 20)  # eks-charts, chart values
NFD_WORKER = Daemon("node-feature-discovery-worker", 5, 64)  # v0.19.0, chart values
EXPORTER = Daemon("dcgm-exporter", 100, 128)  # its own chart 4.8.2, values; the operator's requests nothing
NODE_EXPORTER = Daemon("prometheus-node-exporter")  # prometheus-community's chart, values: resources {}
DRA_DRIVER = Daemon("dra-driver-nvidia-gpu-kubelet-plugin")  # 0.5.0, chart values: resources {}


@dataclass(frozen=True)
class Room:
    """Millicores, MiB and number of pods."""

    cpu: int
    memory: int
    pods: int

    def holds(self, work: Workload) -> bool:
        return self.cpu >= cpu_millis(work.cpu) and self.memory * _MIB >= memory_bytes(work.memory)


def allocatable(
    machine: Machine, pods: int, reserved_for: int | None = None, hypervisor: float = _VM_OVERHEAD
) -> Room:
    """What the kubelet of an EKS image leaves for pods; ``reserved_for``: pods that count for its reserve.

    Reserved: 6 % of the first core, 1 % of the second, 0.5 % of each of the next two, 0.25 % of each further
    one; 255 MiB, and 11 MiB per pod (Karpenter's pkg/providers/instancetype/types.go, nodeadm, Bottlerocket).
    """
    steps = [60, 10, 5, 5]
    cpu = math.ceil(sum(steps[: machine.vcpu]) + 2.5 * max(0, machine.vcpu - len(steps)))
    kept = _CMA_MIB if machine.arch == "arm64" else 0
    whole = math.floor((machine.memory * 1024 - kept) * (1 - hypervisor))
    memory = whole - 255 - 11 * (pods if reserved_for is None else reserved_for) - _EVICTION_MIB
    return Room(machine.vcpu * 1000 - cpu, memory, pods)


def huge_pages(pool: Pool) -> int:
    """MiB in huge pages of each node of the pool; the kubelet subtracts them from the allocatable memory."""
    return memory_bytes(pool.hugepages or "0Mi") // _MIB


def machines(env: Environment, pool: Pool) -> tuple[Machine, ...]:
    """The machines that a node of the pool may be; empty if they are not known."""
    if env.cluster.kind == "aws":
        return pool.machines
    machine = pool.node_machine if env.cluster.kind == "embedded" else pool.flavor
    return (machine,) if machine else ()


def left_by_kubelet(pool: Pool, machine: Machine, hypervisor: float = _VM_OVERHEAD) -> Room:
    """What the kubelet of a node of the pool leaves for pods, DaemonSets' included; AWS only."""
    pods = pool.on_aws.max_pods or machine.pods
    # Bottlerocket reserves for the declared number of pods, AL2023's nodeadm for that of the interfaces.
    reserved_for = pods if pool.image.family == "Bottlerocket" else machine.pods
    left = allocatable(machine, pods, reserved_for, hypervisor)
    return replace(left, memory=left.memory - huge_pages(pool))


def room(env: Environment, pool: Pool, machine: Machine) -> Room:
    """Room for workloads on an empty node of the pool on that machine.

    Before a type of its own has joined, Karpenter takes off its assumption of the hypervisor's memory; how
    much that really keeps is not known for the nodes of a node group, so nothing is taken off there.
    """
    if env.cluster.kind == "aws":
        whole = left_by_kubelet(pool, machine, _VM_OVERHEAD if pool.by_karpenter else 0)
    else:
        whole = Room(machine.vcpu * 1000, machine.memory * 1024 - huge_pages(pool), PODS_PER_NODE)
    found = list(daemons(env, pool))
    return Room(
        whole.cpu - sum(one.cpu for one in found),
        whole.memory - sum(one.memory for one in found),
        whole.pods - len(found),
    )


def daemons(env: Environment, pool: Pool) -> Iterator[Daemon]:
    """The DaemonSets of the environment that have a pod on each node of the pool."""
    if env.cluster.kind == "aws":
        yield from EKS
        # Only then does it tolerate the taint of nodes with GPUs.
        if pool.gpus and env.health and env.health.remediator in ("eks", "karpenter"):
            yield DCGM_SERVER
        if pool.on_aws.efa:
            yield EFA_PLUGIN
    if env.monitoring:
        yield NODE_EXPORTER
    if pool.gpus or all(taint.effect == "PreferNoSchedule" for taint in pool.taints):
        yield NFD_WORKER
    if pool.gpus:
        yield from _operands(env, pool)


def _operands(env: Environment, pool: Pool) -> Iterator[Daemon]:
    """Parts of NVIDIA's charts; unless they are named above, their charts request nothing (resources: {})."""
    owner, alone = env.ownership, env.gpu_operator.mode == "device_plugin"
    if owner.driver == "operator":
        yield Daemon("nvidia-driver-daemonset")
    if owner.toolkit == "operator":
        yield Daemon("nvidia-container-toolkit-daemonset")
    if owner.device_plugin != "image" and not pool.by_claim:
        yield Daemon("nvidia-device-plugin")
        if isinstance(pool.sharing, Mps):
            yield Daemon("mps-control-daemon")
    yield Daemon("gpu-feature-discovery")
    if pool.by_claim:
        yield DRA_DRIVER
    if alone:
        yield from [EXPORTER] if env.monitoring else []
        return
    yield Daemon("nvidia-dcgm-exporter")
    yield Daemon("nvidia-operator-validator")
    if env.has_mig_manager and any(gpu.mig_capable for gpu in pool.gpus):
        yield Daemon("nvidia-mig-manager")


def check(env: Environment) -> None:
    """Refuse nodes on which only DaemonSets have room, and pods for which no node has room."""
    for index, pool in enumerate(env.pools):
        found = [one.name for one in daemons(env, pool)]
        if (most := pool.on_aws.max_pods) and most <= len(found):
            fact = f"{len(found)} DaemonSets have a pod on each node ({', '.join(found)})"
            raise InputError(f"pools[{index}].aws.max_pods", fact, f"use {len(found) + 1} or more")
        for machine in machines(env, pool):
            left = room(env, pool, machine)
            if not pool.hugepages and min(left.cpu, left.memory, left.pods) <= 0:
                fact = f"kubelet and DaemonSets leave no room for pods on {machine.name}"
                remedy = "use a larger machine, or correct its values"
                raise InputError(f"pools[{index}].machine", fact, remedy)
            if left.memory <= 0:
                fact = (
                    f"{pool.hugepages} of the {machine.memory}Gi of {machine.name} leave no memory for pods"
                )
                raise InputError(f"pools[{index}].hugepages", fact, "use less, or a larger machine")
    for index, work in enumerate(env.workloads):
        _check_pod(env, work, f"workloads[{index}]")


def _check_pod(env: Environment, work: Workload, path: str) -> None:
    """Not checked if the machine of a pool is not known."""
    strategy = env.gpu_operator.mig_strategy
    pools = choice.pools_of(strategy, env.pools, work) or list(env.pools)
    if not all(machines(env, pool) for pool in pools):
        return
    name = checks.request(strategy, pools, work) if work.pinned else None
    found = [
        (room(env, pool, machine), machine)
        for pool in pools
        for machine in machines(env, pool)
        if not name or offer.offered(strategy, pool, machine.gpus).get(name, 0) >= work.amount
    ]
    if not found or any(has.holds(work) for has, _ in found):
        return
    has, machine = max(found, key=lambda one: one[0].cpu)
    if has.cpu < cpu_millis(work.cpu):
        key, most = "cpu", f"{has.cpu / 1000:g}"
        has_for_it = f"{most} cores for it: {machine.vcpu}"
    else:
        enough = [one for one in found if one[0].cpu >= cpu_millis(work.cpu)]
        has, machine = max(enough, key=lambda one: one[0].memory)
        key, most = "memory", f"{has.memory}Mi"
        has_for_it = f"{most} for it: {machine.memory}Gi"
    less = "kubelet, huge pages" if any(pool.hugepages for pool in pools) else "kubelet"
    fact = f"the largest node it may run on has {has_for_it} of {machine.name}, less {less} and DaemonSets"
    raise InputError(f"{path}.{key}", fact, f"request {most} or less per pod")


def warnings(env: Environment) -> Iterator[str]:
    """Pools with nodes that offer more shares or slices than they have room for pods."""
    for index, pool in enumerate(env.pools):
        for machine in machines(env, pool):
            offers = sum(offer.offered(env.strategy(pool), pool, machine.gpus).values())
            most, taken = room(env, pool, machine).pods, len(list(daemons(env, pool)))
            if offers > most:
                fact = (
                    f"{machine.name} offers {offers}, and has room for {most} pods beside {taken} DaemonSets"
                )
                remedy = "offer fewer" + (", or raise aws.max_pods" if env.cluster.kind == "aws" else "")
                yield f"pools[{index}].sharing: a node of {fact}; {remedy}"
                break

"""Simulated nodes of the embedded cluster, as they join before any operand has run.

A pool of fixed size has its declared number of nodes. An elastic pool has as many as the environment's own
workloads need, and its spare nodes, within its bounds; on AWS on the smallest machine that fits them, while
real Karpenter also compares prices, and may choose larger machines. Nodes of Magnum's groups join with the
group's label and none of gpuform's: the program and the pool keeper set those, as on real nodes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra import versions
from infra.model.base import labels
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.clusters import EmbeddedCluster
from infra.model.environment import Environment
from infra.model.gpu.machines import Machine
from infra.model.gpu.models import Gpu
from infra.model.placement import node_resources
from infra.model.placement.node_resources import PODS_PER_NODE, NodeResources, huge_pages_mib
from infra.model.platform import installed
from infra.model.pool import allocatable, reset
from infra.model.pool.pool import Pool
from infra.model.pool.rdma import Rdma
from infra.model.workload import matching
from infra.model.workload.workload import Workload
from infra.plan import eks, magnum, node_groups, sharing, startup
from infra.plan.manifest import Manifest, label_in, manifest, node_affinity

CONTAINER_RUNTIME = "containerd://2.3.4"
"""Of nodes of which nothing else is declared: the strictest (lab/simulator/container_engine.py)."""


def simulated_nodes(env: Environment, pool: Pool) -> tuple[dict[str, Any], ...]:
    """Node manifests of the pool, numbered from 0; empty on a cluster with nodes of its own."""
    if not isinstance(env.cluster, EmbeddedCluster):
        return ()
    machine = pool.node_machine
    assert machine is not None  # checked when the environment was parsed
    pool_labels = sharing.pool_labels(env, pool)  # once, as the taints: they take a while
    taints = sharing.pool_taints(env, pool)
    names = (f"{pool.name}-{index}" for index in range(pool.nodes or 0))
    nodes = tuple(_with_taints(bare_node(env, pool, machine, name, pool_labels), taints) for name in names)
    if pool.gpus and env.ownership.driver != "operator":
        driver = installed.driver_version(env.gpu_operator, [pool])
        for item in nodes:
            item["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = driver
    return nodes


def gpu_annotations(machine: Machine, resettable: bool = False) -> dict[str, str]:
    """Annotations that tell the simulator a node's GPUs, and which container engine gives them to pods."""
    if machine.model is None:
        return {}
    annotations = {
        labels.SIM_GPU: machine.model.pci,
        labels.SIM_GPU_COUNT: str(machine.gpus),
        labels.SIM_CONTAINER_RUNTIME: CONTAINER_RUNTIME,
    }
    if machine.model.mig_capable and not resettable:
        annotations[labels.SIM_GPU_RESET] = "no"
    return annotations | (
        {labels.SIM_GPU_MODEL: _describe_gpu(machine.model)} if machine.model.is_declared else {}
    )


def _describe_gpu(gpu: Gpu) -> str:
    """A declared model in JSON for the simulator: its own table lacks it."""
    mig = gpu.geometry
    profiles = {
        profile.name: {
            "compute": profile.compute,
            "memory": profile.memory,
            "starts": profile.starts,
            "memory_mib": profile.memory_mib,
            "media": profile.media,
        }
        for profile in (mig.profiles if mig else ())
    }
    facts = {
        "product": gpu.device,
        "memory_mib": gpu.memory_mib,
        "compute": gpu.compute,
        "family": gpu.family,
        "last_branch": gpu.driver.last,
        "linked": gpu.nvlink,
        "mig": {"compute": mig.compute, "memory": mig.memory, "profiles": profiles} if mig else None,
    }
    return json.dumps(facts, sort_keys=True)


def size_annotations(room: NodeResources) -> dict[str, str]:
    """Annotations that tell the simulator what a node has for pods."""
    return {
        labels.SIM_CPU: f"{room.cpu}m",
        labels.SIM_MEMORY: f"{room.memory}Mi",
        labels.SIM_PODS: str(room.pods),
    }


def rdma_annotations(rdma: Rdma | None) -> dict[str, str]:
    """Annotation that tells the simulator what RDMA a node offers, and whether its plugin must run."""
    if rdma is None:
        return {}
    shown = {"resource": rdma.resource, "count": rdma.offered, "plugin": rdma.mode == "shared"}
    return {labels.SIM_RDMA: json.dumps(shown)}


def device_annotations(huge_pages: int, adapters: int) -> dict[str, str]:
    """Annotations that tell the simulator a node's huge pages, in MiB, and Elastic Fabric Adapters."""
    annotations = {labels.SIM_HUGE_PAGES: f"{huge_pages}Mi"} if huge_pages else {}
    return {**annotations, labels.SIM_EFA: str(adapters)} if adapters else annotations


def bare_node(
    env: Environment, pool: Pool | None, machine: Machine, name: str, creator_labels: Mapping[str, str]
) -> dict[str, Any]:
    """A node of that machine type without the platform; ``creator_labels``: those that its creator sets."""
    huge_pages = huge_pages_mib(pool) if pool else 0
    resettable = pool is not None and reset.can_reset(env.cluster.kind, pool)
    annotations = {
        labels.KWOK_NODE: "fake",
        labels.SIM_CPU: str(machine.vcpu),
        labels.SIM_MEMORY: f"{machine.memory * 1024 - huge_pages}Mi" if huge_pages else f"{machine.memory}Gi",
        labels.SIM_PODS: str(PODS_PER_NODE),
        **device_annotations(huge_pages, pool.adapters if pool else 0),
        **rdma_annotations(pool.rdma if pool else None),
        **gpu_annotations(machine, resettable),
    }
    node_labels = {
        **creator_labels,
        labels.HOSTNAME: name,
        labels.OS: "linux",
        labels.ARCH: machine.arch,
        labels.INSTANCE_TYPE: machine.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": dict(sorted(node_labels.items())),
            "annotations": dict(sorted(annotations.items())),
        },
    }


def pool_node(env: Environment, pool: Pool, machine: Machine, name: str) -> dict[str, Any]:
    """A node of the pool on that machine, as it joins the cluster."""
    manifest = bare_node(env, pool, machine, name, sharing.pool_labels(env, pool))
    return _with_taints(manifest, sharing.pool_taints(env, pool))


def _with_taints(manifest: dict[str, Any], taints: list[dict[str, str]]) -> dict[str, Any]:
    return {**manifest, "spec": {"taints": taints}} if taints else manifest


_MIB = 2**20
UNDECLARED_SIZE = (256, 2048)
"""Cores and GiB of nodes of undeclared size; larger than any real node, so that no pod waits for them."""


def aws_nodes(env: Environment, waiting: bool = False, fixed_only: bool = False) -> tuple[Manifest, ...]:
    """The nodes of an AWS environment, pool after pool.

    GPU nodes are as the readiness gate leaves them; with ``waiting`` as they join, with the startup taint
    that only a gate removes. ``fixed_only`` leaves out Karpenter's nodes, for runs with a Karpenter.
    """
    pools = [node_groups.system_pool(env), *env.pools]
    if fixed_only:
        pools = [pool for pool in pools if not pool.by_karpenter]
    return tuple(manifest for pool in pools for manifest in _pool_nodes(env, pool, waiting))


def _pool_nodes(env: Environment, pool: Pool, waiting: bool) -> Iterator[Manifest]:
    machine, count = _machine_and_count(env, pool)
    if machine is None:
        return
    for index in range(count):
        manifest = pool_node(env, pool, machine, f"{pool.name}-{index}")
        manifest["metadata"]["annotations"] |= size_annotations(
            node_resources.node_allocatable(pool, machine)
        )
        if machine.model:  # the image has a driver, so the operator installs none
            manifest["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = versions.GPU_DRIVER
        if machine.model and pool.by_karpenter:  # Karpenter labels nodes by instance type
            manifest["metadata"]["labels"][labels.INSTANCE_GPU_COUNT] = str(machine.gpus)
        if waiting:
            manifest["metadata"]["annotations"].update(startup.offer_annotations(env, pool))
            taints = [*manifest.get("spec", {}).get("taints", []), *startup.startup_taints(env, pool)]
            manifest["spec"] = {"taints": taints}
        yield manifest


def _machine_and_count(env: Environment, pool: Pool) -> tuple[Machine | None, int]:
    machines = sorted(pool.machines, key=lambda item: (item.vcpu, item.memory, item.name))
    if pool.elastic is None:
        return (machines[0] if machines else None), pool.nodes or 0
    works = [item for item in env.workloads if pool.name == (item.pool or first_fitting_pool(env, item))]
    for machine in machines:
        fits = [pods_per_node(env, pool, machine, item) for item in works]
        if (works or pool.spare) and all(fits):
            count = sum(math.ceil(item.pods / fit) for item, fit in zip(works, fits, strict=True))
            count += pool.spare or 0
            limit = allocatable.max_nodes(pool, machine) * len(pool.capacity)
            return machine, min(count, limit)
    return None, 0


def first_fitting_pool(env: Environment, work: Workload) -> str | None:
    """First pool that satisfies the workload's GPU need; None if there is none, or no need is declared."""
    matched = matching.matches(env.pools, work.gpu, work.slice) if work.gpu else ()
    return matched[0].pool.name if matched else None


def pods_per_node(env: Environment, pool: Pool, machine: Machine, work: Workload) -> int:
    """Pods of a workload that one empty node takes."""
    free = node_resources.free_resources(env, pool, machine)
    bounds = [free.pods, free.cpu // cpu_millis(work.cpu), free.memory * _MIB // memory_bytes(work.memory)]
    resource = matching.requested_resource([pool], work)
    if resource:
        bounds.append(allocatable.resources(pool, machine.gpus)[resource] // work.device_count)
    if work.efa:
        bounds.append(pool.adapters // work.efa)
    if work.hugepages:
        bounds.append(memory_bytes(pool.hugepages or "0Mi") // memory_bytes(work.hugepages))
    return min(bounds)


def magnum_nodes(env: Environment, proven: bool = False) -> tuple[Manifest, ...]:
    """The nodes of an OpenStack environment: Magnum's default workers, then pool after pool.

    ``proven`` nodes carry the readiness gate's proof, for runs without a gate.
    """
    manifests = [*_workers(env)]
    for pool in env.pools:
        manifests += [
            magnum_node(env, pool, f"{pool.name}-{index}", proven) for index in range(group_size(env, pool))
        ]
    return tuple(manifests)


def magnum_node(env: Environment, pool: Pool, name: str, proven: bool = False) -> Manifest:
    """A node of the pool's group as it joins the cluster."""
    machine = pool.flavor
    assert machine is not None  # checked when the environment was parsed
    manifest = bare_node(env, pool, machine, name, magnum.selector(env, pool))
    if pool.gpus and env.ownership.driver != "operator":
        driver = installed.driver_version(env.gpu_operator, [pool])
        manifest["metadata"]["annotations"][labels.SIM_HOST_DRIVER] = driver
    if pool.gpus and proven:
        manifest["metadata"]["annotations"][labels.GPU_READY] = "played"
    return manifest


def group_size(env: Environment, pool: Pool) -> int:
    """Number of nodes once the group has scaled for the environment's workloads, within its bounds."""
    machine = pool.flavor
    if pool.elastic is None or machine is None:
        return pool.min_nodes
    works = [work for work in env.workloads if pool.name == (work.pool or first_fitting_pool(env, work))]
    fits = [max(1, pods_per_node(env, pool, machine, work)) for work in works]
    needed = sum(math.ceil(work.pods / fit) for work, fit in zip(works, fits, strict=True)) + (
        pool.spare or 0
    )
    return min(max(needed, pool.min_nodes), pool.max_nodes)


def unknown_workers(env: Environment) -> str:
    """Message that the default workers' size is not declared; empty if their flavor is known."""
    declared = magnum.cluster_of(env)
    if declared.machine(declared.workers.flavor):
        return ""
    flavor = declared.workers.flavor or "the template's flavor"
    return f"cores and memory of {magnum.DEFAULT_WORKERS} ({flavor}) are not declared"


def _workers(env: Environment) -> Iterator[Manifest]:
    declared = magnum.cluster_of(env)
    cores, gib = UNDECLARED_SIZE
    flavor = declared.workers.flavor or magnum.DEFAULT_WORKERS
    machine = declared.machine(declared.workers.flavor) or Machine(flavor, "openstack", cores, gib)
    label = {magnum.GROUP_LABELS[declared.driver]: magnum.DEFAULT_WORKERS}
    for index in range(declared.workers.nodes):
        yield bare_node(env, None, machine, f"{magnum.DEFAULT_WORKERS}-{index}", label)


def daemon_sets(env: Environment) -> tuple[Manifest, ...]:
    """The DaemonSets of a rehearsed EKS cluster that no simulated chart brings: the add-ons'.

    With the requests and tolerations of the real ones: Karpenter takes what DaemonSets request off each node
    that it may buy.
    """
    manifests = [_daemon_set(daemon, [{"operator": "Exists"}]) for daemon in node_resources.EKS_DAEMON_SETS]
    agent = eks.add_on_settings(env).get(eks.MONITORING_AGENT)
    if agent:
        gpu_types = [
            daemon.name
            for daemon in env.catalogue.machines.values()
            if daemon.seller == "ec2" and daemon.gpus
        ]
        tolerations = agent["dcgmAgent"]["tolerations"]
        manifests.append(_daemon_set(node_resources.DCGM_SERVER, tolerations, gpu_types))
    return tuple(manifests)


def _daemon_set(
    daemon: node_resources.DaemonSet, tolerations: list[Mapping[str, str]], types: Sequence[str] = ()
) -> Manifest:
    """A DaemonSet on all nodes, or on those of the instance ``types``."""
    name, selector = daemon.name, {labels.APP_NAME: daemon.name}
    requests = {"cpu": f"{daemon.cpu}m", "memory": f"{daemon.memory}Mi"}
    container = {"name": name, "image": f"simulated.gpuform.io/{name}:0", "resources": {"requests": requests}}
    pod: Manifest = {
        "containers": [container],
        "priorityClassName": "system-node-critical",
        "tolerations": tolerations,
    }
    if types:
        pod["affinity"] = node_affinity(label_in(labels.INSTANCE_TYPE, types))
    template = {"metadata": {"labels": selector}, "spec": pod}
    metadata = {"name": name, "namespace": "kube-system", "labels": selector}
    return manifest(
        "DaemonSet", metadata, "apps/v1", spec={"selector": {"matchLabels": selector}, "template": template}
    )

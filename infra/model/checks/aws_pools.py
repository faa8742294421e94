"""Checks of one AWS pool: machine, image, zones, network cards, capacity types, limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra import versions
from infra.facts import FIRST_IMAGES
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.images import IMAGES, is_alias
from infra.model.base.errors import InputError
from infra.model.base.fields import MAX_EKS_NODES, listing
from infra.model.base.labels import NVIDIA_GPU
from infra.model.gpu.machines import MACHINES
from infra.model.gpu.models import GPUS
from infra.model.pool import allocatable
from infra.model.pool.elastic import CPU, MEMORY_GIB, NODES
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Exclusive, Mig
from infra.model.workload import claims

FIRST_KARPENTER_WITH_CLAIMS = "1.15.0"
"""First version of the AWS provider that expects NVIDIA's devices of a new node (gate DRANVIDIAGPU).

Core allocates claims from 1.14 on (``ignore-dra-requests``), but no earlier provider tells it of a device.
"""


def check(cluster: AwsCluster, pool: Pool, path: str) -> None:
    """Refuse the first setting that AWS does not support; ``path`` is the pool's."""
    _check_machines(pool, path)
    _check_image(cluster, pool, path)
    _check_claims(cluster, pool, path)
    _check_bottlerocket(pool, path)
    _check_disks_and_zones(cluster, pool, path)
    _check_network_cards(pool, path)
    _check_capacity(pool, path)
    _check_limits(pool, path)


def _check_machines(pool: Pool, path: str) -> None:
    for count in pool.gpu_counts if pool.gpu else ():
        if all(machine.gpus != count for machine in pool.machines):
            fact = f"no EC2 type has {count} of {' or '.join(pool.gpu.models if pool.gpu else ())}"
            raise InputError(f"{path}.gpu", fact, "name a machine, or another count")
    sold = {machine.gpu for machine in pool.machines}
    for index, model in enumerate((pool.gpu.named or ()) if pool.gpu else ()):
        if model not in sold:
            fact = f"no EC2 type has {' or '.join(map(str, pool.gpu_counts))} of {model}"
            raise InputError(f"{path}.gpu.models[{index}]", fact, "leave it out")
    if pool.machines:
        return
    ec2 = {name: machine for name, machine in MACHINES.items() if machine.seller == "ec2"}
    models = {gpu.name for gpu in pool.gpus}
    alternatives = [name for name, machine in ec2.items() if machine.gpu in models]
    fact = f"{pool.machine} is not an EC2 instance type"
    raise InputError(f"{path}.machine", fact, f"use {', '.join(alternatives or ec2)}")


def _check_image(cluster: AwsCluster, pool: Pool, path: str) -> None:
    image, path = pool.image, f"{path}.aws.image"
    mismatch = next((machine for machine in pool.machines if machine.arch != image.arch), None)
    arch = mismatch.arch if mismatch else image.arch
    keys = [key for key, item in IMAGES.items() if item.arch == arch and item.ships_driver == bool(pool.gpus)]
    if mismatch:
        fact = f"{image.key} is for {image.arch}, and {mismatch.name} is {arch}"
        raise InputError(path, fact, f"use {' or '.join(keys)}")
    if image.ships_driver != bool(pool.gpus):
        fact = (
            f"{image.key} has no NVIDIA driver, and gpuform installs none on EKS images"
            if pool.gpus
            else f"{image.key} is for GPUs, and {pool.machines[0].name} has none"
        )
        raise InputError(path, fact, f"use {' or '.join(keys)}")
    pin = cluster.images.get(image.key, "")
    for first, gpu in ((FIRST_IMAGES[gpu.name], gpu) for gpu in pool.gpus if gpu.name in FIRST_IMAGES):
        if image.family == "Bottlerocket":
            raise InputError(path, f"Bottlerocket has no driver for {gpu.name}", "use an AL2023 image")
        if is_alias(pin) and pin < first.image:
            fact = f"{pin} has no driver for {gpu.name} (pool {pool.name})"
            raise InputError(f"cluster.images.{image.key}", fact, f"use {first.image} or newer")


def _check_claims(cluster: AwsCluster, pool: Pool, path: str) -> None:
    """Claims need the DRA API, a fixed number of nodes, and no device plugin that offers the same GPUs."""
    if not pool.by_claim:
        return
    if pool.elastic:
        raise InputError(
            f"{path}.sharing.kind",
            f"Karpenter {versions.KARPENTER} starts no node for a pod with only a claim, so the pool would "
            f"stay empty ({FIRST_KARPENTER_WITH_CLAIMS} is the first that does, for whole GPUs)",
            "give the pool nodes: N, or use another kind",
        )
    claims.require_api(cluster.version, path)
    if pool.image.ships_device_plugin:
        fact = f"the device plugin in {pool.image.key} would allocate the same GPUs as claims"
        raise InputError(f"{path}.sharing.kind", fact, "use an AL2023 image, or another kind")


def _check_bottlerocket(pool: Pool, path: str) -> None:
    """Bottlerocket has settings, not scripts or ConfigMaps: MIG at boot, one profile, all slices that fit."""
    if pool.image.family != "Bottlerocket":
        return
    if pool.aws_settings.prepull:
        fact = "Bottlerocket runs no script at boot that could pull images"
        raise InputError(f"{path}.aws.prepull", fact, "leave it out, or use an AL2023 image")
    if not isinstance(pool.sharing, Mig):
        return
    for key in ("layouts", "name", "devices", "share", "strategy"):
        if getattr(pool.sharing, key) is not None:
            fact = "Bottlerocket's settings partition all GPUs of a node alike, one pod per slice"
            fact += ", and have no configuration by name"
            raise InputError(f"{path}.sharing.{key}", fact, "leave it out, or use an AL2023 image")
    if len(pool.profiles) > 1:
        fact = "Bottlerocket partitions all GPUs of a node by one profile"
        raise InputError(f"{path}.sharing.layout", fact, "use one profile, or an AL2023 image")
    if pool.strategy != "single":
        fact = f"Bottlerocket's device plugin offers slices as nvidia.com/gpu (pool {pool.name})"
        raise InputError("gpu_operator.mig_strategy", fact, "use single, or an AL2023 image")
    for gpu in pool.gpus:
        if gpu.bottlerocket is None:
            supported = ", ".join(sorted(item.name for item in GPUS.values() if item.bottlerocket))
            remedy = f"use one of {supported}, or an AL2023 image"
            raise InputError(f"{path}.sharing.kind", f"Bottlerocket does not partition {gpu.name}", remedy)
        assert gpu.geometry is not None
        for profile, count in pool.slices(1).items():
            if count != gpu.geometry.max_slices(profile):
                fact = "Bottlerocket partitions each GPU into as many slices of one profile as fit"
                raise InputError(f"{path}.sharing.layout", fact, f"use all-{profile}, or an AL2023 image")


def _check_disks_and_zones(cluster: AwsCluster, pool: Pool, path: str) -> None:
    machines_without = [machine.name for machine in pool.machines if not machine.nvme]
    if pool.aws_settings.instance_store and machines_without:
        fact = f"{', '.join(machines_without)} has no NVMe disks of its own"
        remedy = "leave it out, or use a machine with them, for example g4dn.xlarge or p4d.24xlarge"
        raise InputError(f"{path}.aws.instance_store", fact, remedy)
    for index, zone in enumerate(pool.zones):
        if zone not in cluster.network.zones:
            fact = f"unknown zone {zone!r}"
            raise InputError(f"{path}.zones[{index}]", fact, listing(cluster.network.zones, zone))


def _check_network_cards(pool: Pool, path: str) -> None:
    settings = pool.aws_settings
    machines_without = [machine.name for machine in pool.machines if not machine.efa]
    if settings.efa and machines_without:
        models = {gpu.name for gpu in pool.gpus}
        same_gpu = [name for name, machine in MACHINES.items() if machine.efa and machine.gpu in models]
        alternatives = same_gpu or [name for name, machine in MACHINES.items() if machine.efa]
        fact = f"{', '.join(machines_without)} has no Elastic Fabric Adapter"
        raise InputError(f"{path}.aws.efa", fact, f"leave it out, or use {', '.join(alternatives)}")
    if settings.efa and len({machine.efa_from for machine in pool.machines}) > 1:
        names = ", ".join(machine.name for machine in pool.machines if machine.efa_from)
        fact = f"the first network card of {names} supports no EFA, and that of the others does"
        raise InputError(f"{path}.aws.efa", fact, "name a machine, or fewer GPU models")
    if settings.placement_group and pool.by_karpenter:
        fact = "nodes that start one by one may find no capacity in a cluster placement group"
        remedy = "leave it out" if pool.by_claim else "leave it out, or give the pool nodes: N"
        raise InputError(f"{path}.aws.placement_group", fact, remedy)
    if settings.placement_group and len(pool.zones) != 1:
        fact = "a cluster placement group lies in one zone"
        raise InputError(f"{path}.aws.placement_group", fact, "give the pool zones: [ZONE]")


def _check_capacity(pool: Pool, path: str) -> None:
    settings, capacity_types = pool.aws_settings, pool.capacity
    if not pool.elastic and len(capacity_types) > 1:
        fact = f"{'a static NodePool' if pool.by_claim else 'a managed node group'} has one capacity type"
        remedy = "name one type" if pool.by_claim else "name one type, or make the pool elastic"
        raise InputError(f"{path}.capacity", fact, remedy)
    if "reserved" in capacity_types and not settings.reservations:
        fact = "missing, and capacity is reserved"
        raise InputError(f"{path}.aws.reservations", fact, "name the reservation: [cr-...]")
    if settings.reservations and "reserved" not in capacity_types:
        fact = "capacity does not include reserved, so nothing would use them"
        raise InputError(f"{path}.aws.reservations", fact, "add reserved to capacity, or leave them out")
    if len(settings.reservations) > 1 and not pool.by_karpenter:
        fact = "a managed node group launches into one reservation"
        raise InputError(f"{path}.aws.reservations", fact, "name one, or make a pool for each")
    if settings.capacity_block and pool.by_karpenter:
        fact = "Karpenter detects capacity blocks itself"
        raise InputError(f"{path}.aws.capacity_block", fact, "leave it out")
    if settings.capacity_block and capacity_types != ("reserved",):
        fact = "a capacity block is a reservation"
        raise InputError(f"{path}.aws.capacity_block", fact, "use capacity: [reserved], or leave it out")


def _check_limits(pool: Pool, path: str) -> None:
    if scaling := pool.aws_settings.scaling:
        scaling_path = f"{path}.aws.scaling"
        if pool.by_karpenter:
            fact = "Karpenter makes the pool's nodes, and scaling is for a managed node group"
            remedy = "leave it out" if pool.by_claim else "leave it out, or give the pool nodes: N"
            raise InputError(scaling_path, fact, remedy)
        if not scaling.min <= (pool.nodes or 0) <= scaling.max:
            fact = f"the pool starts with {pool.nodes} nodes, and these are {scaling.min} to {scaling.max}"
            raise InputError(scaling_path, fact, "change nodes, or min and max")
    if pool.elastic is None:
        return
    if pool.elastic.min:
        fact = "Karpenter keeps no idle nodes in a pool that scales"
        raise InputError(f"{path}.elastic.min", fact, "leave it out, or give the pool nodes: N")
    offered = allocatable.max_resources(pool)
    known = [CPU, MEMORY_GIB, *offered]
    for key, limit in pool.elastic.max.items():
        key_path = f"{path}.elastic.max.{key}"
        if key not in known:
            fact = (
                f"started nodes of the pool offer {' and '.join(offered)} instead, so this limits nothing"
                if key == NVIDIA_GPU and offered
                else f"nodes of the pool have no {key}"
            )
            if key == NODES:
                fact = "on AWS the limits of an elastic pool count what its nodes have"
            raise InputError(key_path, fact, listing(known, key))
        usage = {count: _usage(pool, count, key) for count in pool.gpu_counts}
        for count, minimum in usage.items():
            if limit < minimum:
                suffix = f" with {count} GPU{'s' if count > 1 else ''}" if len(pool.gpu_counts) > 1 else ""
                fact = f"one node{suffix} already has {minimum}, so the limit allows no node"
                raise InputError(key_path, fact, f"use {max(usage.values())} or more")
        per_node = max(usage.values())
        if limit // per_node > MAX_EKS_NODES:
            fact = f"allows {limit // per_node} nodes, and a cluster of EKS has at most {MAX_EKS_NODES}"
            raise InputError(key_path, fact, f"use {MAX_EKS_NODES * per_node} or less")


def warnings(pools: Sequence[Pool]) -> Iterator[str]:
    """Limits that whole nodes do not fill, groups that stay empty, and EFA with nodes in several zones.

    Karpenter buys no node that would exceed a limit (filterByRemainingResources, scheduler.go). Of a group
    without nodes cluster-autoscaler knows the instance type's resources, and those of tags (README of its
    AWS provider).
    """
    for index, pool in enumerate(pools):
        if pool.aws_settings.efa and len(pool.zones) != 1:
            fact = (
                "traffic of an Elastic Fabric Adapter does not leave its subnet, and nodes may be in several"
            )
            yield f"pools[{index}].aws.efa: {fact}; give the pool zones: [ZONE]"
        if pool.bounds and not pool.min_nodes and pool.gpus and not isinstance(pool.sharing, Exclusive):
            resource = next(iter(allocatable.max_resources(pool)))
            fact = f"cluster-autoscaler does not know that nodes of an empty group offer {resource}"
            tag = f"k8s.io/cluster-autoscaler/node-template/resources/{resource}"
            remedy = f"use 1, or give its Auto Scaling group the tag {tag}"
            yield f"pools[{index}].aws.scaling.min: {fact}; {remedy}"
        limits = pool.elastic.max if pool.elastic else {}
        usage = {key: min(_usage(pool, count, key) for count in pool.gpu_counts) for key in limits}
        nodes = min((limit // usage[key] for key, limit in limits.items()), default=0)
        unused = {
            key: limit - nodes * usage[key] for key, limit in limits.items() if limit // usage[key] == nodes
        }
        if not unused or not all(unused.values()):
            continue
        key = max(unused)  # what the nodes offer comes after cpu and memory_gib
        suffix = " of each capacity type" if len(pool.capacity) > 1 else ""
        subject = f"{nodes} nodes{suffix} have" if nodes > 1 else f"1 node{suffix} has"
        fact = f"{subject} {nodes * usage[key]}, and the other {unused[key]} are never bought"
        remedy = f"use {nodes * usage[key]} or {(nodes + 1) * usage[key]}"
        yield f"pools[{index}].elastic.max.{key}: {fact}; {remedy}"


def _usage(pool: Pool, gpus: int, key: str) -> int:
    """Amount of ``key`` on the smallest of the pool's machines with that many GPUs."""
    offered = allocatable.resources(pool, gpus)
    machines = [machine for machine in pool.machines if machine.gpus == gpus]
    return min({CPU: machine.vcpu, MEMORY_GIB: machine.memory, **offered}[key] for machine in machines)

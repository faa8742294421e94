"""What an AWS environment may not ask for: each with the reason, before anything is asked of AWS."""

from __future__ import annotations

from collections.abc import Sequence

from infra.model import addresses, offer
from infra.model.aws import AwsCluster
from infra.model.base import listing
from infra.model.elastic import CPU, MEMORY_GIB
from infra.model.errors import InputError
from infra.model.images import IMAGES
from infra.model.labels import NVIDIA_GPU
from infra.model.machines import MACHINES
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.sharing import Mig
from infra.model.workload import Workload

SYSTEM_IMAGE = "al2023"
"""The system nodes' image; it needs a pin in every AWS environment."""


def check(
    cluster: AwsCluster, strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]
) -> None:
    """Refuse the first thing that AWS, EKS, Karpenter or the node images would not do."""
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        _check_machines(pool, path)
        _check_image(pool, path)
        _check_zones(cluster, pool, path)
        _check_network_cards(pool, path)
        _check_capacity(pool, path)
        _check_limits(strategy, pool, path)
    _check_pins(cluster, pools)
    _check_one_family(pools)
    _check_apart(strategy, pools)
    _check_pinned(strategy, pools, workloads)
    addresses.check(cluster, pools, [offer.offered(strategy, pool) for pool in pools])


def _check_machines(pool: Pool, path: str) -> None:
    if pool.machines:
        return
    if pool.gpu:
        fact = f"no EC2 type has {pool.gpu.count} of {' or '.join(pool.gpu.models)}"
        raise InputError(f"{path}.gpu", fact, "name a machine, or another count")
    ec2 = [name for name, machine in MACHINES.items() if machine.seller == "ec2"]
    raise InputError(
        f"{path}.machine", f"{pool.machine} is no EC2 instance type", listing(ec2, pool.machine or "")
    )


def _check_image(pool: Pool, path: str) -> None:
    """The image fits the machine's architecture and has a driver exactly where there is a GPU."""
    image, path = pool.image, f"{path}.aws.image"
    arch = pool.machines[0].arch
    fitting = [key for key, one in IMAGES.items() if one.arch == arch and one.gpu == bool(pool.gpus)]
    if image.arch != arch:
        fact = f"{image.key} is for {image.arch}, and {pool.machines[0].name} is {arch}"
        raise InputError(path, fact, f"use {' or '.join(fitting)}")
    if image.gpu != bool(pool.gpus):
        fact = (
            f"{image.key} has no NVIDIA driver, and nobody else installs one on EKS images"
            if pool.gpus
            else f"{image.key} is for GPUs, and {pool.machines[0].name} has none"
        )
        raise InputError(path, fact, f"use {' or '.join(fitting)}")
    if image.family == "Bottlerocket" and isinstance(pool.sharing, Mig) and len(pool.layout or {}) > 1:
        raise InputError(
            f"{path.removesuffix('.aws.image')}.sharing.layout",
            "Bottlerocket cuts every GPU of a node by one profile, at boot",
            "use one profile, or aws: {image: al2023-nvidia}",
        )


def _check_zones(cluster: AwsCluster, pool: Pool, path: str) -> None:
    for index, zone in enumerate(pool.zones):
        if zone not in cluster.network.zones:
            raise InputError(
                f"{path}.zones[{index}]",
                f"unknown zone {zone!r}",
                listing(cluster.network.zones, zone),
            )
        if zone in pool.zones[:index]:
            raise InputError(f"{path}.zones[{index}]", f"{zone!r} is given twice", "name each zone once")


def _check_network_cards(pool: Pool, path: str) -> None:
    settings = pool.on_aws
    without = [machine.name for machine in pool.machines if not machine.efa]
    if settings.efa and without:
        models = {gpu.name for gpu in pool.gpus}
        same = [name for name, one in MACHINES.items() if one.efa and one.gpu in models]
        able = same or [name for name, one in MACHINES.items() if one.efa]
        raise InputError(
            f"{path}.aws.efa",
            f"{', '.join(without)} has no Elastic Fabric Adapter",
            f"leave it out, or use {', '.join(able)}",
        )
    if settings.placement_group and pool.elastic:
        raise InputError(
            f"{path}.aws.placement_group",
            "nodes that come one by one find no room in a cluster placement group",
            "leave it out, or give the pool nodes: N",
        )
    for key, fact in (
        ("efa", "what goes through an Elastic Fabric Adapter does not leave its subnet"),
        ("placement_group", "a cluster placement group lies in one zone"),
    ):
        if getattr(settings, key) and len(pool.zones) != 1:
            raise InputError(f"{path}.aws.{key}", fact, "give the pool zones: [ZONE]")


def _check_capacity(pool: Pool, path: str) -> None:
    settings, kinds = pool.on_aws, pool.capacity
    if len(set(kinds)) < len(kinds):
        raise InputError(f"{path}.capacity", "a kind is given twice", "name each once")
    if pool.nodes and len(kinds) > 1:
        raise InputError(
            f"{path}.capacity",
            "a managed node group is bought in one way",
            "name one kind, or make the pool elastic",
        )
    if "reserved" in kinds and not settings.reservations:
        raise InputError(
            f"{path}.aws.reservations", "missing, and capacity is reserved", "name the reservation: [cr-...]"
        )
    if settings.reservations and "reserved" not in kinds:
        raise InputError(
            f"{path}.aws.reservations",
            "capacity does not say reserved, so nothing would use them",
            "add reserved to capacity, or leave them out",
        )
    if pool.nodes and len(settings.reservations) > 1:
        raise InputError(
            f"{path}.aws.reservations",
            "a managed node group launches into one reservation",
            "name one, or make a pool for each",
        )
    if settings.capacity_block and pool.elastic:
        raise InputError(
            f"{path}.aws.capacity_block",
            "Karpenter sees by itself which reservation is a capacity block",
            "leave it out",
        )
    if settings.capacity_block and kinds != ("reserved",):
        raise InputError(
            f"{path}.aws.capacity_block",
            "a capacity block is a reservation",
            "use capacity: [reserved], or leave it out",
        )


def _check_limits(strategy: MigStrategy, pool: Pool, path: str) -> None:
    if pool.elastic is None:
        return
    offered = offer.offered(strategy, pool)
    known = [CPU, MEMORY_GIB, *offered]
    for key, limit in pool.elastic.max.items():
        here = f"{path}.elastic.max.{key}"
        if key not in known:
            fact = (
                f"started nodes of the pool offer {' and '.join(offered)} instead, so this limits nothing"
                if key == NVIDIA_GPU and offered
                else f"nodes of the pool have no {key}"
            )
            raise InputError(here, fact, listing(known, key))
        least = min(
            {CPU: machine.vcpu, MEMORY_GIB: machine.memory, **offered}[key] for machine in pool.machines
        )
        if limit < least:
            raise InputError(here, f"one node has {least}, so none may come", f"use {least} or more")


def _check_pins(cluster: AwsCluster, pools: Sequence[Pool]) -> None:
    used = dict.fromkeys([SYSTEM_IMAGE, *(pool.image.key for pool in pools)])
    for key in used:
        if key not in cluster.images:
            raise InputError(
                f"cluster.images.{key}",
                "missing, and nodes are made of it",
                "pin it: an AMI id or a dated alias",
            )
    for key in cluster.images:
        if key not in used:
            raise InputError(f"cluster.images.{key}", "no pool uses it", "leave it out")


def _check_one_family(pools: Sequence[Pool]) -> None:
    """One release of the operator serves all nodes, and who runs the device plugin depends on the image."""
    first: dict[str, Pool] = {}
    for index, pool in enumerate(pools):
        if pool.gpus:
            first.setdefault(pool.image.family, pool)
        if len(first) > 1:
            other = next(one for family, one in first.items() if family != pool.image.family)
            raise InputError(
                f"pools[{index}].aws.image",
                f"pool {other.name} is {other.image.family} and pool {pool.name} is {pool.image.family}: "
                "Bottlerocket's own device plugin reads no ConfigMap, AL2023 gets the operator's",
                "use one family for all pools with GPUs",
            )


def _check_apart(strategy: MigStrategy, pools: Sequence[Pool]) -> None:
    """A pod that names no pool must not fit two elastic ones alike: Karpenter would take either.

    Workloads of the environment are pinned by the pool's label, so this is about everybody else's pods, which
    say only what they ask for and what they tolerate.
    """
    seen: dict[tuple[str, frozenset[tuple[str, str, str]]], str] = {}
    for index, pool in enumerate(pools):
        if pool.elastic is None:
            continue
        hard = frozenset((t.key, t.value, t.effect) for t in pool.taints if t.effect != "PreferNoSchedule")
        for resource in offer.offered(strategy, pool) or ("no GPU",):
            other = seen.setdefault((resource, hard), pool.name)
            if other != pool.name:
                raise InputError(
                    f"pools[{index}].taints",
                    f"a pod that asks for {resource} fits pool {other} and pool {pool.name} alike, "
                    "so Karpenter takes either",
                    "give one of them a taint of its own",
                )


def _check_pinned(strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    for index, workload in enumerate(workloads):
        product = workload.gpu_product
        found = [pool for pool in pools if product and product in offer.products(strategy, pool)]
        if found and all(pool.elastic for pool in found):
            raise InputError(
                f"workloads[{index}].gpu_product",
                "Karpenter starts no node for a label that discovery sets after the node has started",
                f"pin by pool: {' or '.join(pool.name for pool in found)}",
            )

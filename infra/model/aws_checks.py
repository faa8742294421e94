"""Checks of an AWS environment, with the reason for each refusal; without calls to AWS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.model import addresses, aws_pools, offer
from infra.model.aws import AwsCluster
from infra.model.errors import InputError
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.values import MAX_NODES
from infra.model.workload import Workload

SYSTEM_IMAGE = "al2023"
"""The system nodes' image; it needs a pin in every AWS environment."""

SYSTEM_POOL = "system"
LONGEST_NAME = 40
"""IAM role names have at most 64 characters; the rest is for the role's suffix and what Pulumi adds."""


def check(
    name: str,
    cluster: AwsCluster,
    strategy: MigStrategy,
    pools: Sequence[Pool],
    workloads: Sequence[Workload],
) -> None:
    """Refuse the first setting that AWS, EKS, Karpenter or the node images do not support."""
    if len(name) > LONGEST_NAME:
        fact = f"{name!r} is too long for the names of IAM roles that begin with it"
        raise InputError("name", fact, f"use at most {LONGEST_NAME} characters")
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        if pool.name == SYSTEM_POOL:
            fact = f"{SYSTEM_POOL!r} is the name of the cluster's own nodes"
            raise InputError(f"{path}.name", fact, "use another name")
        aws_pools.check(cluster, strategy, pool, path)
    _check_names(pools)
    _check_pins(cluster, pools)
    _check_image_family(pools)
    _check_distinguishable(strategy, pools)
    _check_products(strategy, pools, workloads)
    addresses.check(cluster, pools, strategy)


def warnings(strategy: MigStrategy, pools: Sequence[Pool]) -> Iterator[str]:
    """Limits that whole nodes do not fill, and pools that one zone without a machine stops."""
    yield from aws_pools.warnings(strategy, pools)
    total = sum(min(addresses.max_nodes(strategy, pool, item) for item in pool.machines) for pool in pools)
    if total > MAX_NODES:
        fact = f"they may have {total} nodes, and EKS has more than {MAX_NODES} in its ultra scale tier alone"
        yield f"pools: {fact}; agree on it with AWS before"
    for index, pool in enumerate(pools):
        is_bound = (
            pool.aws_settings.efa or pool.aws_settings.placement_group or pool.aws_settings.reservations
        )
        if len(pool.zones) == 1 and pool.gpus and not is_bound:
            machines = " or ".join(machine.name for machine in pool.machines)
            fact = f"EC2 may have no {machines} in {pool.zones[0]}, and its nodes may start nowhere else"
            yield f"pools[{index}].zones: {fact}; leave it out, or name another zone of the network"


def _check_names(pools: Sequence[Pool]) -> None:
    """Each capacity type and each static pool has a NodePool; no two pools may yield the same name."""
    pool_of_name: dict[str, Pool] = {}
    for index, pool in enumerate(pools):
        for name in pool.node_pools:
            other = pool_of_name.setdefault(name, pool)
            if other is not pool:
                fact = f"a NodePool {name!r} would be both pool {other.name}'s and pool {pool.name}'s"
                raise InputError(f"pools[{index}].name", fact, "use another name")


def _check_pins(cluster: AwsCluster, pools: Sequence[Pool]) -> None:
    used = dict.fromkeys([SYSTEM_IMAGE, *(pool.image.key for pool in pools)])
    for key in used:
        if key not in cluster.images:
            fact = "missing, and nodes boot from it"
            raise InputError(f"cluster.images.{key}", fact, "pin it: an AMI id or a dated alias")
    for key in cluster.images:
        if key not in used:
            raise InputError(f"cluster.images.{key}", "no pool uses it", "leave it out")


def _check_image_family(pools: Sequence[Pool]) -> None:
    """One operator release serves all nodes, and the image decides who runs the device plugin."""
    first_pools: dict[str, Pool] = {}
    for index, pool in enumerate(pools):
        if pool.gpus:
            first_pools.setdefault(pool.image.family, pool)
        if len(first_pools) > 1:
            other = next(item for family, item in first_pools.items() if family != pool.image.family)
            raise InputError(
                f"pools[{index}].aws.image",
                f"pool {other.name} is {other.image.family} and pool {pool.name} is {pool.image.family}: "
                "Bottlerocket's own device plugin reads no ConfigMap, AL2023 gets the operator's",
                "use one family for all pools with GPUs",
            )


def _check_distinguishable(strategy: MigStrategy, pools: Sequence[Pool]) -> None:
    """A pod that names no pool must not fit two elastic pools: Karpenter would choose either.

    The environment's workloads are pinned by the pool's label, so this is about all other pods, which state
    only their requests and tolerations.
    """
    pool_names: dict[tuple[str, frozenset[tuple[str, str, str]]], str] = {}
    for index, pool in enumerate(pools):
        if pool.elastic is None:
            continue
        hard_taints = frozenset(
            (t.key, t.value, t.effect) for t in pool.taints if t.effect != "PreferNoSchedule"
        )
        for resource in offer.max_resources(strategy, pool) or ("no GPU",):
            other = pool_names.setdefault((resource, hard_taints), pool.name)
            if other != pool.name:
                raise InputError(
                    f"pools[{index}].taints",
                    f"a pod that requests {resource} fits pool {other} and pool {pool.name}, "
                    "so Karpenter may use either",
                    "give one of them a taint of its own",
                )


def _check_products(strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    for index, workload in enumerate(workloads):
        product = workload.gpu_product
        pools_with_product = [pool for pool in pools if product and product in offer.products(strategy, pool)]
        if pools_with_product and all(pool.elastic for pool in pools_with_product):
            fact = "Karpenter starts no node for a label that discovery sets after the node has started"
            remedy = f"pin by pool: {' or '.join(pool.name for pool in pools_with_product)}"
            raise InputError(f"workloads[{index}].gpu_product", fact, remedy)

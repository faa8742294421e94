"""Checks and warnings of an AWS environment, with the reason for each; without calls to AWS.

``karpenter.sh/do-not-disrupt`` (labels.KEPT) stops consolidation; expiry and interruptions it does not stop,
drift only where there is no grace period [Karpenter's page "Disruption"].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.facts import EKS_VERSIONS
from infra.model.aws.cluster import AwsCluster
from infra.model.base.errors import InputError
from infra.model.base.fields import MAX_NODES
from infra.model.base.prices import OtherPrices
from infra.model.base.quantities import seconds
from infra.model.checks import aws_pools
from infra.model.environment import Environment
from infra.model.platform import unused
from infra.model.pool import addresses, allocatable
from infra.model.pool.elastic import DISRUPTION
from infra.model.pool.pool import Pool
from infra.model.workload import matching
from infra.model.workload.workload import JobWorkload, NotebookWorkload, PodWorkload, Workload

SYSTEM_IMAGE = "al2023"
"""The system nodes' image; it needs a pin in every AWS environment."""

SYSTEM_POOL = "system"
LONGEST_NAME = 40
"""IAM role names have at most 64 characters; the rest is for the role's suffix and what Pulumi adds."""

_PRICES = OtherPrices()


def check(name: str, cluster: AwsCluster, pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    """Refuse the first setting that AWS, EKS, Karpenter or the node images do not support."""
    if len(name) > LONGEST_NAME:
        fact = f"{name!r} is too long for the names of IAM roles that begin with it"
        raise InputError("name", fact, f"use at most {LONGEST_NAME} characters")
    for index, pool in enumerate(pools):
        path = f"pools[{index}]"
        if pool.name == SYSTEM_POOL:
            fact = f"{SYSTEM_POOL!r} is the name of the cluster's own nodes"
            raise InputError(f"{path}.name", fact, "use another name")
        aws_pools.check(cluster, pool, path)
    _check_names(pools)
    _check_pins(cluster, pools)
    _check_image_family(pools)
    _check_products(pools, workloads)
    addresses.check(cluster, pools)


def warnings(cluster: AwsCluster, pools: Sequence[Pool]) -> Iterator[str]:
    """Limits that whole nodes do not fill, pools that one zone without a machine stops, small networks, pools
    that pods cannot tell apart, and a version that costs more.
    """
    ends = EKS_VERSIONS[cluster.version]
    if cluster.support == "standard" and ends.standard and ends.standard <= ends.date:
        usual = _PRICES.control_plane
        rate = f"{usual + _PRICES.extended_support:.2f} instead of {usual:.2f} USD per hour"
        fact = f"{cluster.version} is in extended support, at {rate}, until {ends.extended}"
        yield f"cluster.version: {fact}; use a newer version, or cluster.support: extended"
    yield from addresses.warnings(cluster, pools)
    yield from _indistinguishable(pools)
    yield from aws_pools.warnings(pools)
    total = sum(min(addresses.max_nodes(pool, item) for item in pool.machines) for pool in pools)
    if total > MAX_NODES:
        fact = f"they may have {total} nodes, and EKS has more than {MAX_NODES} in its ultra scale tier alone"
        yield f"pools: {fact}; agree on it with AWS before"
    for index, pool in enumerate(pools):
        if pool.workload_class != "inference" and not pool.by_karpenter:
            yield f"pools[{index}].class: {'; '.join(unused.NO_CLASS)}"
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


def _indistinguishable(pools: Sequence[Pool]) -> Iterator[str]:
    """Elastic pools between which Karpenter chooses for a pod with requests and tolerations only.

    The environment's workloads are pinned by the pool's label; others may select by labels of the pools.
    """
    pool_names: dict[object, str] = {}
    for index, pool in enumerate(pools):
        hard = {(t.key, t.value, t.effect) for t in pool.taints if t.effect != "PreferNoSchedule"}
        marks = frozenset(hard), frozenset(pool.labels.items())
        for resource in (allocatable.max_resources(pool) or ("no GPU",)) if pool.elastic else ():
            other = pool_names.setdefault((resource, marks), pool.name)
            if other != pool.name:
                fact = (
                    f"a pod that requests {resource} and names no pool fits pool {other} and pool {pool.name}"
                )
                yield f"pools[{index}].taints: {fact}; give one of them a taint or a label of its own"


def _check_products(pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    for index, workload in enumerate(workloads):
        product = workload.gpu_product
        pools_with_product = [pool for pool in pools if product and product in allocatable.products(pool)]
        if pools_with_product and all(pool.elastic for pool in pools_with_product):
            fact = "Karpenter starts no node for a label that discovery sets after the node has started"
            remedy = f"pin by pool: {' or '.join(pool.name for pool in pools_with_product)}"
            raise InputError(f"workloads[{index}].gpu_product", fact, remedy)


_BUFFERS = {"FI_EFA_FORK_SAFE", "FI_EFA_USE_HUGE_PAGE"}
"""Without them libfabric's buffers are in huge pages [libfabric, man/fi_efa.7.md; EKS user guide, EFA]."""


def use_warnings(env: Environment) -> Iterator[str]:
    """Nodes that end under their workloads, adapters and huge pages that are not requested."""
    pools_of = [(work, matching.pools_of(env.pools, work)) for work in env.workloads]
    for index, pool in enumerate(env.pools):
        here = [(work, pools) for work, pools in pools_of if pool in pools]
        per_node = max((*allocatable.max_resources(pool).values(), *pool.gpu_counts))
        slow = [
            work
            for work, pools in here
            if _is_distributed(work) and work.pods * work.device_count > per_node
            if not work.efa and all(item.adapters for item in pools)
        ]
        if slow:
            share = max(1, pool.adapters * slow[0].device_count // max(*pool.gpu_counts, 1))
            fact = f"{_named(slow)} requests no adapter, so NCCL uses TCP between nodes"
            yield f"pools[{index}].aws.efa: {fact}; give the workload efa: {share}"
        for text in _unsuited(pool, [work for work, _ in here]):
            yield f"pools[{index}].{text}"


def _unsuited(pool: Pool, works: Sequence[Workload]) -> Iterator[str]:
    row = DISRUPTION[pool.workload_class]
    fragile = [work for work in works if isinstance(work, NotebookWorkload) or _is_distributed(work)]
    jobs = [work for work in works if isinstance(work, JobWorkload) and row.grace]
    long = [work for work in jobs if 60 * (work.wait_minutes or 0) > seconds(row.expire_after)]
    lost = [*fragile, *(work for work in works if isinstance(work, PodWorkload))]
    if lost and "spot" in pool.capacity:
        fact = f"EC2 ends spot nodes two minutes after its notice, with {_named(lost)}"
        yield f"capacity: {fact}; leave spot out"
    if (fragile or long) and row.grace and pool.by_karpenter:
        fact = f"Karpenter ends nodes {row.grace} after they are {row.expire_after} old"
        yield f"class: {fact}, with {_named(fragile or long)}; use training, which ends only empty nodes"
    bare = [work for work in works if work.efa and not work.hugepages and not _BUFFERS & work.env.keys()]
    if bare:
        fact = f"libfabric allocates its buffers there, and {_named(bare)} requests none"
        yield f"hugepages: {fact}; use 5Gi in both, or env: {{FI_EFA_USE_HUGE_PAGE: 0}} in the workload"
    elif pool.hugepages and works and not any(work.hugepages for work in works):
        fact = f"each node reserves {pool.hugepages} at boot, and {_named(works)} requests none"
        yield f"hugepages: {fact}; leave it out, or request hugepages"


def _is_distributed(work: Workload) -> bool:
    """Whether several pods run at the same time and need each other."""
    return isinstance(work, JobWorkload) and work.parallelism > 1 and (work.gang or work.has_rendezvous)


def _named(works: Sequence[Workload]) -> str:
    more = f" and {len(works) - 1} more" if works[1:] else ""
    return f"{works[0].kind} {works[0].name}{more}"

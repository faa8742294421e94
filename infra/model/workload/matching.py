"""Pools that meet a workload's GPU requirements, in a cluster with several GPU models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.model.base import labels
from infra.model.base.errors import InputError
from infra.model.gpu.choice import GpuNeed
from infra.model.gpu.mig import Profile
from infra.model.gpu.models import Gpu
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig, Mps
from infra.model.workload.workload import Workload

_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Match:
    """One extended resource of a pool's nodes, and the pool's GPU models that satisfy the need."""

    pool: Pool
    resource: str
    models: tuple[Gpu, ...]

    @property
    def products(self) -> tuple[str, ...]:
        """Values of nvidia.com/gpu.product on the nodes that satisfy the need."""
        all_products = allocatable.products(self.pool)
        return tuple(
            product for gpu, product in zip(self.pool.gpus, all_products, strict=True) if gpu in self.models
        )

    @property
    def all_nodes(self) -> bool:
        """Whether every GPU model of the pool satisfies the need."""
        return len(self.models) == len(self.pool.gpus)


def matches(pools: Sequence[Pool], need: GpuNeed, slice: str | None = None) -> tuple[Match, ...]:
    """The resources that satisfy the need (only those of ``slice``, if given), in the pools' order.

    An elastic pool counts only if all its models satisfy the need: discovery labels the model once a node
    runs, and Karpenter starts no node for that label. GPUs that are allocated by claim are not resources.
    """
    matched = []
    for pool in pools:
        for resource in resources_of(pool, slice):
            models = tuple(gpu for gpu in pool.gpus if not list(_unmet(need, pool, gpu, resource)))
            if models and (len(models) == len(pool.gpus) or pool.elastic is None):
                matched.append(Match(pool, resource, models))
    return tuple(matched)


def pools_of(pools: Sequence[Pool], workload: Workload) -> list[Pool]:
    """Pools that the workload selects by pool, gpu or gpu_product; empty if it sets none of the three."""
    if workload.pool:
        return [pool for pool in pools if pool.name == workload.pool]
    if workload.gpu:
        return [match.pool for match in matches(pools, workload.gpu, workload.slice)]
    product = workload.gpu_product
    return [pool for pool in pools if product and product in allocatable.products(pool)]


def resources_of(pool: Pool, slice: str | None) -> list[str]:
    return [name for name in allocatable.max_resources(pool) if slice is None or _is_slice(name, slice)]


def nearest_match(pools: Sequence[Pool], need: GpuNeed, slice: str | None = None) -> str | None:
    """The offered resource closest to the need and what it lacks, in words; None if nothing is offered."""
    ranked = []
    for pool in pools:
        for resource in resources_of(pool, slice):
            unmet_by_gpu = {gpu: list(_unmet(need, pool, gpu, resource)) for gpu in pool.gpus}
            unsuitable = " or ".join(gpu.name for gpu, unmet in unmet_by_gpu.items() if unmet)
            for gpu, unmet in unmet_by_gpu.items():
                memory = memory_mib(pool, gpu, resource)
                reason = ", ".join(unmet) or f"a new node may have {unsuitable} instead"
                description = f"{resource} of pool {pool.name} ({gpu.name}): {reason}"
                ranked.append((-len(unmet), memory, gpu.compute, description))
    return max(ranked, key=lambda entry: entry[:3])[3] if ranked else None


def memory_mib(pool: Pool, gpu: Gpu, resource: str) -> int:
    """Memory of one unit of the resource, in MiB; for a slice of unknown memory its share of the GPU's.

    With time-slicing it is the whole GPU's: each pod can take all of it, and no pod is guaranteed any.
    """
    profile = profile_of(pool, gpu, resource)
    if profile is not None:
        return gpu.slice_mib(profile)
    return gpu.memory_mib // (pool.sharing.replicas if isinstance(pool.sharing, Mps) else 1)


def profile_of(pool: Pool, gpu: Gpu, resource: str) -> Profile | None:
    """The MIG profile of a pool's resource; None for a whole GPU."""
    if not isinstance(pool.sharing, Mig) or gpu.geometry is None:
        return None
    for name in pool.profiles:
        if pool.strategy == "single" or _is_slice(resource, name):
            return gpu.geometry.profile(name)
    return None


def _is_slice(resource: str, profile: str) -> bool:
    return resource.removesuffix(labels.SHARED) == allocatable.mig_resource(profile)


def unmet_needs(need: GpuNeed, gpu: Gpu, memory: int) -> Iterator[str]:
    """What a GPU with that much memory (MiB) lacks of the need, in words; NVLink is not checked."""
    if need.memory_gib and memory < need.memory_gib * _MIB_PER_GIB:
        yield f"{memory / _MIB_PER_GIB:.3g} GiB"
    if need.compute and gpu.compute < tuple(int(part) for part in need.compute.split(".")):
        yield f"compute capability {gpu.compute[0]}.{gpu.compute[1]}"
    if need.family and gpu.family != need.family:
        yield f"family {gpu.family}"


def _unmet(need: GpuNeed, pool: Pool, gpu: Gpu, resource: str) -> Iterator[str]:
    yield from unmet_needs(need, gpu, memory_mib(pool, gpu, resource))
    if need.nvlink:
        if profile_of(pool, gpu, resource) is not None:
            yield "a MIG slice has no NVLink"
        elif not gpu.nvlink or pool.gpu_counts[0] < 2:
            yield "no NVLink" if not gpu.nvlink else "one GPU alone on its node"


def require_pools(pools: Sequence[Pool], need: GpuNeed, slice: str | None, path: str) -> list[Pool]:
    """The pools that satisfy the need; InputError if no pool does, or if their resource names differ.

    A pod requests one resource name, so it cannot choose between pools that use two names.
    """
    matched = matches(pools, need, slice)
    if not matched:
        request = f"a slice {slice} with {need.description}" if slice else need.description
        claimed = [pool.name for pool in pools if pool.by_claim]
        nearest = nearest_match(pools, need, slice)
        remedy = f"the nearest is {nearest}" if nearest else f"no pool offers {'it' if slice else 'a GPU'}"
        if claimed:
            remedy += f"; to claim GPUs (DRA), set pool: {' or '.join(claimed)}"
        raise InputError(path, f"no pool has {request}", remedy)
    names = {match.resource for match in matched}
    if len(names) > 1:
        listed = ", ".join(f"pool {match.pool.name} {match.resource}" for match in matched)
        fact = f"matching devices have different resource names, and a pod requests one: {listed}"
        raise InputError(path, fact, "name the pool instead, or the slice")
    return [match.pool for match in matched]


def requested_resource(candidates: Sequence[Pool], workload: Workload) -> str | None:
    """The resource that a pod of the workload requests; None if ambiguous or not offered.

    If some GPUs are whole, a workload without ``slice`` gets one of those.
    """
    if workload.gpu:
        offered = {match.resource for match in matches(candidates, workload.gpu, workload.slice)}
        return offered.pop() if len(offered) == 1 else None
    names = sorted({name for pool in candidates for name in allocatable.gpu_resources(pool)})
    if workload.slice:
        unshared = allocatable.mig_resource(workload.slice)
        return next((name for name in (unshared, unshared + labels.SHARED) if name in names), None)
    if labels.NVIDIA_GPU in names:
        return labels.NVIDIA_GPU
    return names[0] if len(names) == 1 else None

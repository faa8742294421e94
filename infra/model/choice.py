"""Which pools have what a workload needs of a GPU, in a cluster with several models of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.model import labels, offer
from infra.model.errors import InputError
from infra.model.gpu import Gpu
from infra.model.mig import Profile
from infra.model.need import GpuNeed
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.sharing import Mig, Mps
from infra.model.workload import Workload

_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Unit:
    """One resource of a pool's nodes, as a pod may ask for it, and the models of the pool that satisfy."""

    pool: Pool
    resource: str
    models: tuple[Gpu, ...]
    strategy: MigStrategy

    @property
    def products(self) -> tuple[str, ...]:
        """What nvidia.com/gpu.product says on the nodes that satisfy."""
        every = offer.products(self.strategy, self.pool)
        return tuple(
            product for gpu, product in zip(self.pool.gpus, every, strict=True) if gpu in self.models
        )

    @property
    def every_node(self) -> bool:
        """Whether all models that the pool's nodes may have do."""
        return len(self.models) == len(self.pool.gpus)


def units(
    strategy: MigStrategy, pools: Sequence[Pool], need: GpuNeed, slice: str | None = None
) -> tuple[Unit, ...]:
    """The resources that satisfy the need, of ``slice`` alone where one is named, in the pools' order.

    A pool that comes and goes counts only if all its models satisfy: discovery tells them apart when a node
    runs, and Karpenter starts none for that. GPUs that are had by claim are no resource.
    """
    found = []
    for pool in pools:
        for resource in _resources(strategy, pool, slice):
            models = tuple(gpu for gpu in pool.gpus if not list(_lacks(strategy, need, pool, gpu, resource)))
            if models and (len(models) == len(pool.gpus) or pool.elastic is None):
                found.append(Unit(pool, resource, models, strategy))
    return tuple(found)


def pools_of(strategy: MigStrategy, pools: Sequence[Pool], workload: Workload) -> list[Pool]:
    """The pools whose nodes the workload names; none for a workload that asks for nothing special."""
    if workload.pool:
        return [pool for pool in pools if pool.name == workload.pool]
    if workload.gpu:
        return [unit.pool for unit in units(strategy, pools, workload.gpu, workload.slice)]
    product = workload.gpu_product
    return [pool for pool in pools if product and product in offer.products(strategy, pool)]


def _resources(strategy: MigStrategy, pool: Pool, slice: str | None) -> list[str]:
    return [name for name in offer.most(strategy, pool) if slice is None or _is_slice(name, slice)]


def nearest(
    strategy: MigStrategy, pools: Sequence[Pool], need: GpuNeed, slice: str | None = None
) -> str | None:
    """What comes closest to the need, in words with what it lacks; None where nothing is offered."""
    ranked = []
    for pool in pools:
        for resource in _resources(strategy, pool, slice):
            every = {gpu: list(_lacks(strategy, need, pool, gpu, resource)) for gpu in pool.gpus}
            others = " or ".join(gpu.name for gpu, lacks in every.items() if lacks)
            for gpu, lacks in every.items():
                memory = memory_mib(strategy, pool, gpu, resource)
                short = ", ".join(lacks) or f"a new node may have {others} instead"
                what = f"{resource} of pool {pool.name} ({gpu.name}): {short}"
                ranked.append((-len(lacks), memory, gpu.compute, what))
    return max(ranked, key=lambda one: one[:3])[3] if ranked else None


def memory_mib(strategy: MigStrategy, pool: Pool, gpu: Gpu, resource: str) -> int:
    """Memory behind one of the resource, in MiB; of a slice its share, of which the driver keeps some.

    Under time-slicing it is the whole GPU's: each pod can take all of it, and none has any for sure.
    """
    profile = _profile(strategy, pool, gpu, resource)
    if profile is not None:
        assert gpu.geometry is not None
        return gpu.memory_mib * profile.memory // gpu.geometry.memory
    return gpu.memory_mib // (pool.sharing.replicas if isinstance(pool.sharing, Mps) else 1)


def _profile(strategy: MigStrategy, pool: Pool, gpu: Gpu, resource: str) -> Profile | None:
    """The slice behind the resource; None for a whole GPU."""
    if not isinstance(pool.sharing, Mig) or gpu.geometry is None:
        return None
    for name in pool.layout or {}:
        if offer.own_strategy(strategy, pool) == "single" or _is_slice(resource, name):
            return gpu.geometry.profile(name)
    return None


def _is_slice(resource: str, profile: str) -> bool:
    """Whether it is of that MIG profile; a slice that is shared by time has a name of its own."""
    return resource.removesuffix(labels.SHARED) == offer.mig_resource(profile)


def lacks(need: GpuNeed, gpu: Gpu, memory: int) -> Iterator[str]:
    """What a GPU with that much memory (MiB) does not have of the need, in words; NVLink is not looked at."""
    if need.memory_gib and memory < need.memory_gib * _MIB_PER_GIB:
        yield f"{memory / _MIB_PER_GIB:.3g} GiB"
    if need.compute and gpu.compute < tuple(int(part) for part in need.compute.split(".")):
        yield f"compute capability {gpu.compute[0]}.{gpu.compute[1]}"
    if need.family and gpu.family != need.family:
        yield f"family {gpu.family}"


def _lacks(strategy: MigStrategy, need: GpuNeed, pool: Pool, gpu: Gpu, resource: str) -> Iterator[str]:
    """What one of the resource on this GPU does not have of the need, in words."""
    yield from lacks(need, gpu, memory_mib(strategy, pool, gpu, resource))
    if need.nvlink:
        if _profile(strategy, pool, gpu, resource) is not None:
            yield "a MIG slice has no NVLink"
        elif not gpu.nvlink or pool.gpu_counts[0] < 2:
            yield "no NVLink" if not gpu.nvlink else "one GPU alone on its node"


def check(
    strategy: MigStrategy, pools: Sequence[Pool], need: GpuNeed, slice: str | None, path: str
) -> list[Pool]:
    """The pools that satisfy the need; InputError where none does, or a pod could not say what it asks for.

    A pod asks for a resource by one name, so pools that offer theirs under two names are no choice.
    """
    found = units(strategy, pools, need, slice)
    if not found:
        what = f"a slice {slice} with {need.words}" if slice else need.words
        claimed = [pool.name for pool in pools if pool.by_claim]
        close = nearest(strategy, pools, need, slice)
        remedy = f"the nearest is {close}" if close else f"no pool offers {'it' if slice else 'a GPU'}"
        if claimed:
            remedy += f"; GPUs to claim are had by pool: {' or '.join(claimed)}"
        raise InputError(path, f"no pool has {what}", remedy)
    names = {unit.resource for unit in found}
    if len(names) > 1:
        listed = ", ".join(f"pool {unit.pool.name} {unit.resource}" for unit in found)
        fact = f"what satisfies it has different names, and a pod asks for one: {listed}"
        raise InputError(path, fact, "name the pool instead, or the slice")
    return [unit.pool for unit in found]

"""Claims (DRA) of workloads, network adapters and huge pages: what a pool offers, what a workload requests.

A claim is for devices of one device class: whole GPUs, or MIG slices of one profile. The scheduler decides
which devices it gets, so nothing here depends on a node.
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.model.base.errors import InputError
from infra.model.base.quantities import memory_bytes, version_numbers
from infra.model.gpu.choice import GpuNeed
from infra.model.gpu.machines import MACHINES
from infra.model.pool import allocatable
from infra.model.pool.layouts import listing_profiles
from infra.model.pool.pool import Pool
from infra.model.workload import matching
from infra.model.workload.workload import Workload


def claimed_profile(pool: Pool, workload: Workload) -> str | None:
    """The MIG profile that the workload's claim names; None for whole GPUs, or if ambiguous."""
    if workload.slice:
        return workload.slice if workload.slice in pool.profiles else None
    return pool.profiles[0] if len(pool.profiles) == 1 else None


def max_devices(pool: Pool, workload: Workload) -> int | None:
    """Devices of one node that can meet the workload's claim; None if its profile is unknown or ambiguous."""
    if not pool.cuts and not workload.slice:
        return sum(allocatable.claimable(pool).values())
    profile_name = claimed_profile(pool, workload)
    return None if profile_name is None else pool.slices(pool.gpu_counts[-1])[profile_name]


def claimed_parts(pool: Pool) -> dict[str, float]:
    """Fraction of a GPU that a claimed slice of each profile is, by compute slices; empty for whole GPUs."""
    return allocatable.slice_parts(pool) if pool.by_claim else {}


def describe_devices(pool: Pool) -> str:
    """What a node offers for claims, in words: whole GPUs, or its profiles."""
    return " and ".join(pool.profiles) or "whole GPUs"


def check(pool: Pool, workload: Workload, path: str) -> None:
    """Refuse a claim that no node of the pool can meet; ``path`` is the workload's own."""
    subject, available = f"pool {pool.name}", max_devices(pool, workload)
    if workload.gpu:
        _check_need(pool, workload.gpu, f"{path}.gpu")
    if available is None and not pool.cuts:
        fact = f"{subject} has whole GPUs to claim, no slice {workload.slice!r}"
        raise InputError(f"{path}.slice", fact, "leave it out, or give the pool's sharing a layout")
    if available is None:
        fact = f"no slice {workload.slice!r}" if workload.slice else "several kinds of slice"
        remedy = listing_profiles(pool.profiles, workload.slice or "")
        raise InputError(f"{path}.slice", f"{subject} has {fact} to claim", remedy)
    if workload.device_count > available:
        kind = claimed_profile(pool, workload) or "GPUs"
        fact = f"a node of {subject} has {available} {kind} to claim"
        raise InputError(f"{path}.count", fact, f"request {available} at most per pod")


def _check_need(pool: Pool, need: GpuNeed, path: str) -> None:
    if need.nvlink:
        remedy = "leave it out, and name a pool with such GPUs"
        fact = "a claim cannot request it: the driver publishes no NVLink"
        raise InputError(f"{path}.nvlink", fact, remedy)
    if need.memory_gib and pool.cuts:
        fact = "a claim for slices names their profile, which determines their memory"
        raise InputError(f"{path}.memory_gib", fact, "leave it out")
    if not meets_need(pool, need):
        models = ", ".join(gpu.name for gpu in pool.gpus)
        raise InputError(
            path, f"pool {pool.name} has no GPU with {need.description}", f"its models are {models}"
        )


def meets_need(pool: Pool, need: GpuNeed) -> bool:
    """Whether a model of the pool meets the need."""
    return any(not list(matching.unmet_needs(need, gpu, gpu.memory_mib)) for gpu in pool.gpus)


def require_api(kubernetes: str, path: str) -> None:
    """Raises InputError for a version without resource.k8s.io/v1, stable from 1.34 on (release notes)."""
    if version_numbers(kubernetes) < (1, 34):
        fact = f"Kubernetes {kubernetes} does not serve resource.k8s.io/v1, which claims need"
        raise InputError(f"{path}.sharing.kind", fact, "use version 1.34 or newer, or another kind")


def check_devices(pools: Sequence[Pool], candidates: Sequence[Pool], work: Workload, path: str) -> None:
    """Refuse adapters and huge pages that a pool lacks on which the workload may run.

    Nodes that exist have adapters as their owner decides.
    """
    for key in ("efa", "rdma", "hugepages"):
        if getattr(work, key) is not None and not candidates:
            fact = "the workload may run on any node, and not every node has them"
            raise InputError(f"{path}.{key}", fact, "name the pool of the nodes that do")
    for pool in candidates:
        pool_path = f"pools[{pools.index(pool)}]"
        if work.efa and work.efa > pool.adapters and not pool.selector:
            raise InputError(f"{path}.efa", *_too_many(pool, pool_path))
        if work.rdma:
            _check_rdma(candidates[0], pool, work.rdma, (f"{path}.rdma", pool_path))
        if work.hugepages and memory_bytes(pool.hugepages or "0Mi") < memory_bytes(work.hugepages):
            fact = f"a node of pool {pool.name} has {pool.hugepages or 'none'}"
            remedy = f"give {pool_path} hugepages: {work.hugepages} or more, or request less"
            raise InputError(f"{path}.hugepages", fact, remedy)


def _check_rdma(first: Pool, pool: Pool, wanted: int, paths: tuple[str, str]) -> None:
    path, pool_path = paths
    if pool.rdma is None:
        remedy = f"leave it out, or give {pool_path} rdma: {{}}; on AWS request efa"
        raise InputError(path, f"pool {pool.name} has no rdma", remedy)
    if first.rdma and first.rdma.resource != pool.rdma.resource:
        fact = f"pool {first.name} offers {first.rdma.resource}, and pool {pool.name} {pool.rdma.resource}"
        raise InputError(path, fact, "name one of the pools")
    if wanted > pool.rdma.offered:
        fact = f"a node of pool {pool.name} has {pool.rdma.offered}"
        raise InputError(path, fact, f"request {pool.rdma.offered} at most per pod")


def _too_many(pool: Pool, pool_path: str) -> tuple[str, str]:
    if pool.adapters:
        fact = f"a node of pool {pool.name} has {pool.adapters}"
        return fact, f"request {pool.adapters} at most per pod"
    if pool.machines and all(machine.efa for machine in pool.machines):
        remedy = f"leave it out, or on AWS give {pool_path} aws: {{efa: true}}"
        return f"pool {pool.name} has no aws.efa", remedy
    models = {gpu.name for gpu in pool.gpus}
    types = [name for name, machine in MACHINES.items() if machine.efa and machine.gpu in models]
    remedy = f"leave it out, or use a pool of {', '.join(types)} on AWS" if types else "leave it out"
    return f"nodes of pool {pool.name} have no Elastic Fabric Adapter", remedy

"""Checks of workloads against each other and the pools: names, unknown pools, unmet requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.model import claims, gpu_matching, labels, namespaces, offer
from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.sharing import Mps
from infra.model.workload import DeploymentWorkload, JobWorkload, NotebookWorkload, Workload


def check_workloads(strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    """Refuse duplicate names, and requests that no pool offers; see node_resources for cores and memory."""
    index_of: dict[tuple[str, str], int] = {}
    for index, workload in enumerate(workloads):
        path = f"workloads[{index}]"
        key = (workload.namespace, workload.name)
        if key in index_of:
            fact = f"{workload.name!r} is also workloads[{index_of[key]}] of namespace {workload.namespace!r}"
            raise InputError(f"{path}.name", fact, "give each workload a name of its own")
        index_of[key] = index
        _check_colours(workloads, index)
        namespaces.check(workload.namespace, f"{path}.namespace")
        _check_service(workload, path)
        candidates = _candidates(strategy, pools, workload, path)
        if candidates:
            _check_request(strategy, candidates, workload, path)
        claims.check_devices(pools, candidates, workload, path)


def _check_service(workload: Workload, path: str) -> None:
    """Every cluster has a Service of this name, by which pods reach the API server."""
    has_service = isinstance(workload, NotebookWorkload) or (
        isinstance(workload, DeploymentWorkload) and workload.service
    )
    has_rendezvous = isinstance(workload, JobWorkload) and workload.has_rendezvous
    if (has_service or has_rendezvous) and (workload.namespace, workload.name) == ("default", "kubernetes"):
        fact = "its Service would be that of the API server, default/kubernetes"
        raise InputError(f"{path}.name", fact, "use another name or namespace")


def _check_colours(workloads: Sequence[Workload], index: int) -> None:
    """A blue-green workload makes a Deployment per colour, with a name that no other may have."""
    work = workloads[index]
    for position, item in enumerate(workloads):
        coloured = (
            isinstance(item, DeploymentWorkload) and item.blue_green and work.namespace == item.namespace
        )
        if (
            coloured
            and isinstance(work, DeploymentWorkload)
            and work.name in (f"{item.name}-{colour}" for colour in labels.COLOURS)
        ):
            fact = f"{work.name!r} is also a colour of workloads[{position}] of namespace {item.namespace!r}"
            raise InputError(f"workloads[{index}].name", fact, "give each workload a name of its own")


def _candidates(strategy: MigStrategy, pools: Sequence[Pool], workload: Workload, path: str) -> list[Pool]:
    """The pools that the workload may run on; empty if it names no GPU and no pool."""
    if workload.pool and workload.gpu_product:
        raise InputError(f"{path}.gpu_product", "pool is given too", "pin by one of the two")
    if workload.gpu and not any(pool.by_claim and pool.name == workload.pool for pool in pools):
        if workload.pool or workload.gpu_product:
            other = "pool" if workload.pool else "gpu_product"
            raise InputError(f"{path}.gpu", f"{other} is given too", "use one of the two")
        return gpu_matching.require_pools(strategy, pools, workload.gpu, workload.slice, f"{path}.gpu")
    if workload.pool:
        selected = [pool for pool in pools if pool.name == workload.pool]
        if not selected:
            fact = f"unknown pool {workload.pool!r}"
            raise InputError(f"{path}.pool", fact, listing((pool.name for pool in pools), workload.pool))
        return selected
    if workload.gpu_product:
        selected = [pool for pool in pools if workload.gpu_product in offer.products(strategy, pool)]
        if not selected:
            _check_claimed(pools, workload.gpu_product, path)
            known = sorted({product for pool in pools for product in offer.products(strategy, pool)})
            fact = f"no pool has product {workload.gpu_product!r}"
            raise InputError(f"{path}.gpu_product", fact, listing(known, workload.gpu_product))
        return selected
    for key in ("slice", "count"):
        if getattr(workload, key) is not None:
            fact = "the workload requests no GPU"
            raise InputError(f"{path}.{key}", fact, "name a pool, a gpu_product or a gpu")
    return []


def _check_claimed(pools: Sequence[Pool], product: str, path: str) -> None:
    """A pod that is pinned by product requests a resource, which GPUs allocated by claim are not."""
    claimed = [pool.name for pool in pools if pool.by_claim and product in {gpu.product for gpu in pool.gpus}]
    if claimed:
        fact = f"the GPUs of pool {' or '.join(claimed)} are allocated by claim (DRA)"
        raise InputError(f"{path}.gpu_product", fact, f"pin by pool: {' or '.join(claimed)}")


def requested_resource(strategy: MigStrategy, candidates: Sequence[Pool], workload: Workload) -> str | None:
    """The resource that a pod of the workload requests; None if ambiguous or not offered.

    If some GPUs are whole, a workload without ``slice`` gets one of those.
    """
    if workload.gpu:
        offered = {
            match.resource
            for match in gpu_matching.matches(strategy, candidates, workload.gpu, workload.slice)
        }
        return offered.pop() if len(offered) == 1 else None
    names = sorted({name for pool in candidates for name in offer.gpu_resources(strategy, pool)})
    if workload.slice:
        unshared = offer.mig_resource(workload.slice)
        return next((name for name in (unshared, unshared + labels.SHARED) if name in names), None)
    if labels.NVIDIA_GPU in names:
        return labels.NVIDIA_GPU
    return names[0] if len(names) == 1 else None


def _check_request(strategy: MigStrategy, candidates: Sequence[Pool], workload: Workload, path: str) -> None:
    names = "pool " + " or ".join(pool.name for pool in candidates)
    if not any(pool.gpus for pool in candidates):
        for key in ("slice", "count"):
            if getattr(workload, key) is not None:
                raise InputError(f"{path}.{key}", f"{names} has no GPU", "leave it out, or name another pool")
        return
    if any(pool.by_claim for pool in candidates):
        (pool,) = candidates  # it is named: no product selects GPUs allocated by claim
        claims.check(pool, workload, path)
        return
    mixed = [pool for pool in candidates if offer.pool_strategy(strategy, pool) == "mixed"]
    profiles = [name for pool in mixed for name in pool.layout or {}]
    name = requested_resource(strategy, candidates, workload)
    if name is None and workload.slice:
        fact = f"{names} offers no slice {workload.slice!r}"
        remedy = listing(profiles, workload.slice) if profiles else "leave it out"
        raise InputError(f"{path}.slice", fact, remedy)
    if name is None:
        raise InputError(f"{path}.slice", f"{names} offers several kinds of slice", listing(profiles))
    amounts = [offer.max_resources(strategy, pool).get(name, 0) for pool in candidates]
    maximum = max(amounts)
    # One such pool is enough: the pod may be scheduled to its nodes, and fails there.
    refusing_pools = [
        pool
        for pool, amount in zip(candidates, amounts, strict=True)
        if offer.one_per_pod(pool, name) and amount >= min(workload.device_count, maximum)
    ]
    if workload.device_count > maximum:
        fact = f"a node of {names} offers {maximum} {name}"
        raise InputError(f"{path}.count", fact, f"request {1 if refusing_pools else maximum} at most per pod")
    if workload.device_count > 1 and refusing_pools:
        remedy = "request 1, or set fail_requests_greater_than_one: false"
        if any(isinstance(pool.sharing, Mps) for pool in refusing_pools):
            remedy = "request 1 (a share is larger with fewer replicas)"
        refusers = "pool " + " or ".join(pool.name for pool in refusing_pools)
        fact = f"{refusers} refuses pods that request more than one share (UnexpectedAdmissionError)"
        raise InputError(f"{path}.count", fact, remedy)


def warnings(strategy: MigStrategy, pools: Sequence[Pool], workloads: Sequence[Workload]) -> Iterator[str]:
    """Several slices in a container: CUDA enumerates one [MIG user guide, mig-device-names.html]."""
    for index, work in enumerate(workloads):
        candidates = gpu_matching.pools_of(strategy, pools, work)
        resource = requested_resource(strategy, candidates, work)
        if work.device_count > 1 and any(offer.offers_slices(pool, resource) for pool in candidates):
            fact = f"a CUDA process uses one MIG slice, the first of the {work.device_count} in its container"
            remedy = "request 1, with more pods or a larger profile, or start one process for each slice"
            yield f"workloads[{index}].count: {fact}; {remedy} (CUDA_VISIBLE_DEVICES)"

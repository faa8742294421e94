"""Checks of workloads against each other, the pools and the rest of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infra.model.base import labels, namespaces
from infra.model.base.errors import InputError
from infra.model.base.fields import listing
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.pool import allocatable
from infra.model.pool.layouts import listing_profiles
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mps
from infra.model.workload import claims, matching
from infra.model.workload.base import MIN_CPU, MIN_MEMORY, RESERVED_VARIABLES
from infra.model.workload.matching import requested_resource
from infra.model.workload.queues import Queues
from infra.model.workload.workload import (
    DeploymentWorkload,
    InferenceWorkload,
    JobWorkload,
    NotebookWorkload,
    Workload,
)


def check_workloads(pools: Sequence[Pool], workloads: Sequence[Workload]) -> None:
    """Refuse duplicate names, and requests that no pool offers; see node_resources for cores and memory."""
    index_of: dict[tuple[str, str], int] = {}
    for index, workload in enumerate(workloads):
        path = f"workloads[{index}]"
        key = (workload.namespace, workload.name)
        if key in index_of:
            fact = f"{workload.name!r} is also workloads[{index_of[key]}] of namespace {workload.namespace!r}"
            raise InputError(f"{path}.name", fact, "give each workload a name of its own")
        index_of[key] = index
        namespaces.check(workload.namespace, f"{path}.namespace")
        _check_service(workload, path)
        candidates = _candidates(pools, workload, path)
        if candidates:
            _check_request(candidates, workload, path)
        claims.check_devices(pools, candidates, workload, path)
    _check_colours(workloads)


def _check_service(workload: Workload, path: str) -> None:
    """Every cluster has a Service of this name, by which pods reach the API server."""
    has_service = isinstance(workload, NotebookWorkload) or (
        isinstance(workload, DeploymentWorkload) and workload.service
    )
    has_rendezvous = isinstance(workload, JobWorkload) and workload.has_rendezvous
    if (has_service or has_rendezvous) and (workload.namespace, workload.name) == ("default", "kubernetes"):
        fact = "its Service would be that of the API server, default/kubernetes"
        raise InputError(f"{path}.name", fact, "use another name or namespace")


def _check_colours(workloads: Sequence[Workload]) -> None:
    """A blue-green workload makes a Deployment per colour, with a name that no other may have."""
    coloured = {
        (item.namespace, f"{item.name}-{colour}"): position
        for position, item in enumerate(workloads)
        if isinstance(item, DeploymentWorkload) and item.blue_green
        for colour in labels.COLOURS
    }
    for index, work in enumerate(workloads):
        position = coloured.get((work.namespace, work.name))
        if position is not None and isinstance(work, DeploymentWorkload):
            fact = f"{work.name!r} is also a colour of workloads[{position}] of namespace {work.namespace!r}"
            raise InputError(f"workloads[{index}].name", fact, "give each workload a name of its own")


def _candidates(pools: Sequence[Pool], workload: Workload, path: str) -> list[Pool]:
    """The pools that the workload may run on; empty if it names no GPU and no pool."""
    if workload.pool and workload.gpu_product:
        raise InputError(f"{path}.gpu_product", "pool is given too", "pin by one of the two")
    if workload.gpu and not any(pool.by_claim and pool.name == workload.pool for pool in pools):
        if workload.pool or workload.gpu_product:
            other = "pool" if workload.pool else "gpu_product"
            raise InputError(f"{path}.gpu", f"{other} is given too", "use one of the two")
        return matching.require_pools(pools, workload.gpu, workload.slice, f"{path}.gpu")
    if workload.pool:
        selected = [pool for pool in pools if pool.name == workload.pool]
        if not selected:
            fact = f"unknown pool {workload.pool!r}"
            raise InputError(f"{path}.pool", fact, listing((pool.name for pool in pools), workload.pool))
        return selected
    if workload.gpu_product:
        selected = [pool for pool in pools if workload.gpu_product in allocatable.products(pool)]
        if not selected:
            _check_claimed(pools, workload.gpu_product, path)
            known = sorted({product for pool in pools for product in allocatable.products(pool)})
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


def _check_request(candidates: Sequence[Pool], workload: Workload, path: str) -> None:
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
    mixed = [pool for pool in candidates if pool.strategy == "mixed"]
    profiles = [name for pool in mixed for name in pool.profiles]
    name = requested_resource(candidates, workload)
    if name is None and workload.slice:
        fact = f"{names} offers no slice {workload.slice!r}"
        remedy = listing_profiles(profiles, workload.slice) if profiles else "leave it out"
        raise InputError(f"{path}.slice", fact, remedy)
    if name is None:
        raise InputError(f"{path}.slice", f"{names} offers several kinds of slice", listing(profiles))
    amounts = [allocatable.max_resources(pool).get(name, 0) for pool in candidates]
    maximum = max(amounts)
    # One such pool is enough: the pod may be scheduled to its nodes, and fails there.
    refusing_pools = [
        pool
        for pool, amount in zip(candidates, amounts, strict=True)
        if allocatable.one_per_pod(pool, name) and amount >= min(workload.device_count, maximum)
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


def warnings(pools: Sequence[Pool], workloads: Sequence[Workload]) -> Iterator[str]:
    """Several slices in a container: CUDA enumerates one [MIG user guide, mig-device-names.html]."""
    for index, work in enumerate(workloads):
        candidates = matching.pools_of(pools, work)
        resource = requested_resource(candidates, work)
        if work.device_count > 1 and any(allocatable.offers_slices(pool, resource) for pool in candidates):
            fact = f"a CUDA process uses one MIG slice, the first of the {work.device_count} in its container"
            remedy = "request 1, with more pods or a larger profile, or start one process for each slice"
            yield f"workloads[{index}].count: {fact}; {remedy} (CUDA_VISIBLE_DEVICES)"


def check_inference(env: Environment) -> None:
    """Refuse a number of pods that depends on metrics of no Prometheus, an unknown neighbour, and a name
    that KServe gives its objects.
    """
    for index, work in enumerate(env.workloads):
        if not isinstance(work, InferenceWorkload):
            continue
        path = f"workloads[{index}]"
        if work.scale and env.monitoring is None:
            fact = "nothing is monitored, so nothing counts requests"
            raise InputError(f"{path}.scale", fact, "add monitoring: {}, or give replicas instead")
        others = [
            item.name for item in env.workloads if item.namespace == work.namespace and item is not work
        ]
        if work.deployment_name in others:
            fact = f"KServe makes a Deployment {work.deployment_name!r}, and another workload has that name"
            raise InputError(f"{path}.name", fact, "give one of the two another name")
        if work.near and work.near not in others:
            fact = f"namespace {work.namespace} has no other workload {work.near!r}"
            remedy = listing(others, work.near) if others else "leave it out"
            raise InputError(f"{path}.near", fact, remedy)


def check_notebooks(env: Environment) -> None:
    """Refuse notebooks that are too small or not their user's only one, and volumes never created."""
    index_of: dict[tuple[str, str], int] = {}
    for index, work in enumerate(env.workloads):
        if not isinstance(work, NotebookWorkload):
            continue
        path, key = f"workloads[{index}]", (work.namespace, work.user)
        if key in index_of:
            fact = f"{work.user} has a notebook in namespace {work.namespace}: workloads[{index_of[key]}]"
            raise InputError(f"{path}.user", fact, "leave one of them out, or use another namespace")
        index_of[key] = index
        _check_pod(work, path)
        if work.home:
            _check_storage_class(env, work.home.storage_class, f"{path}.home.storage_class")


def _check_pod(work: NotebookWorkload, path: str) -> None:
    if not re.match("[a-z]", work.name):
        fact = f"{work.name!r} begins with a digit, and the name of its Service may not"
        raise InputError(f"{path}.name", fact, "begin it with a letter")
    if cpu_millis(work.cpu) < cpu_millis(MIN_CPU):
        fact = f"{work.cpu} is less than an editor needs"
        raise InputError(f"{path}.cpu", fact, f"use {MIN_CPU} or more")
    if memory_bytes(work.memory) < memory_bytes(MIN_MEMORY):
        fact = f"{work.memory} is less than an editor needs"
        raise InputError(f"{path}.memory", fact, f"use {MIN_MEMORY} or more")
    if work.command:
        fact = "the editor is what runs"
        raise InputError(f"{path}.command", fact, "leave it out, or build an image on the editor's")
    for name in RESERVED_VARIABLES:
        if name in work.env:
            raise InputError(f"{path}.env.{name}", "secret and cull set it", "leave it out, or use these")


def _check_storage_class(env: Environment, name: str | None, path: str) -> None:
    """EKS has no default class since 1.30."""
    if env.cluster.kind == "embedded" and name:
        raise InputError(path, "the embedded cluster has one class", "leave it out")
    if env.cluster.kind == "aws" and name is None:
        fact = "missing, and the cluster has no default class: the volume would never be created"
        raise InputError(path, fact, "name one that it has, as gp2")


def check_topology(env: Environment, queues: Queues) -> None:
    """Refuse pools in which Kueue's topology-aware scheduling would admit nothing, or too much.

    It places pods on nodes that exist, or on those of a ProvisioningRequest, which Karpenter does not know
    (Kueue, keps/2724-topology-aware-scheduling, Non-Goals). It counts what pods request, and no claims
    (keps/2941-DRA: "does not work with Topology Aware Scheduling").
    """
    pools = {pool.name: pool for pool in env.pools}
    for name in queues.topology:
        path = f"queues.topology.{name}"
        if name not in pools:
            raise InputError(path, f"unknown pool {name!r}", listing(pools, name))
        if not any(name in team.quota for team in queues.teams):
            raise InputError(path, "no team's quota names this pool", "leave it out, or add it to a quota")
        if pools[name].elastic:
            fact = "the pool is elastic, and Kueue places pods only on nodes that exist"
            raise InputError(path, fact, "leave it out, or give the pool nodes: N")
        if pools[name].by_claim:
            fact = "its GPUs are allocated by claim, which Kueue does not count on a node"
            raise InputError(path, fact, "leave it out, or use another sharing")


def check_gang(env: Environment, queues: Queues, work: Workload, names: Sequence[str], path: str) -> None:
    """``names`` are the pools in which the workload's queue may admit it."""
    placed = [name for name in names if name in queues.topology]
    is_gang = isinstance(work, JobWorkload) and work.gang
    if is_gang and not placed:
        which = " or ".join(names)
        fact = (
            f"queues.topology does not name pool {which}, so some of the pods could start without the others"
        )
        fixed = [name for name in names if not env.pool(name).elastic and not env.pool(name).by_claim]
        other = "leave it out, or use a pool that has nodes: N and no claims"
        raise InputError(f"{path}.gang", fact, f"add it, as topology: {{{fixed[0]}: []}}" if fixed else other)
    if not is_gang and placed and len(placed) < len(names):
        others = [name for name in names if name not in placed]
        fact = (
            f"pool {placed[0]} has a topology and pool {others[0]} has none, and Kueue looks at one kind only"
        )
        raise InputError(f"{path}.queue", fact, "name the pool")
    if not isinstance(work, JobWorkload):
        return
    if is_gang:
        _check_gang(env, queues, work, placed, path)
    _check_job_fits(env, work, placed if is_gang else names, path)


def _check_gang(env: Environment, queues: Queues, job: JobWorkload, pools: Sequence[str], path: str) -> None:
    shared = [name for name in pools if allocatable.is_shared(env.pool(name))]
    if shared:
        fact = f"pool {shared[0]} offers shares, and several of the pods could get the same GPU"
        raise InputError(f"{path}.gang", fact, "leave it out, or use a pool of whole GPUs or slices")
    if job.topology is None:
        return
    known = dict.fromkeys(level for name in pools for level in (*queues.topology[name], labels.HOSTNAME))
    if job.topology.level not in known:
        key = "required" if job.topology.required else "preferred"
        fact = f"no level {job.topology.level} in the topology of pool {' or '.join(pools)}"
        raise InputError(f"{path}.topology.{key}", fact, listing(known, job.topology.level))


def _check_job_fits(env: Environment, job: JobWorkload, names: Sequence[str], path: str) -> None:
    """Kueue admits a job with all its pods in one pool; the limit of an elastic pool may still be raised."""
    pools = [env.pool(name) for name in names]
    fitting = [fit.fitting_pods(env, pool, job) for pool in pools]
    known = [number for number in fitting if number is not None]
    if len(known) < len(fitting) or any(pool.elastic for pool in pools):
        return
    if job.pods > max(1, *known):  # one that fits no node: see node_resources
        which = " or ".join(names)
        fact = f"all nodes of pool {which} hold {max(known)} such pods, and a job in a queue runs in one pool"
        raise InputError(f"{path}.parallelism", fact, "use fewer or smaller pods, or more nodes")

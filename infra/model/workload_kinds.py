"""Checks of inference workloads, notebooks and gangs against the rest of the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from infra.model.base import listing
from infra.model.errors import InputError
from infra.model.workload import DeploymentWorkload, InferenceWorkload, Workload

if TYPE_CHECKING:
    from infra.model.environment import Environment

import re
from typing import TYPE_CHECKING

from infra.model.quantities import cpu_millis, memory_bytes
from infra.model.workload import NotebookWorkload
from infra.model.workload_base import MIN_CPU, MIN_MEMORY, RESERVED_VARIABLES

if TYPE_CHECKING:
    from infra.model.environment import Environment

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infra.model import labels, offer, surge
from infra.model.queues import Queues
from infra.model.workload import JobWorkload

if TYPE_CHECKING:
    from infra.model.environment import Environment


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


def with_max_pods(env: Environment) -> Environment:
    """With the most pods of each scaled workload instead of what scales them."""
    return with_pods(env, lambda work: work.pods)


def without_models(env: Environment) -> Environment:
    """With a Deployment of its own instead of KServe's for each workload with a model."""
    works = tuple(
        work.model_copy(update={"model": None}) if isinstance(work, InferenceWorkload) else work
        for work in env.workloads
    )
    return env.model_copy(update={"workloads": works})


def with_pods(env: Environment, pods: Callable[[InferenceWorkload], int]) -> Environment:
    """With a number of pods, which may be 0, of each inference workload instead of what scales them."""
    return env.model_copy(update={"workloads": tuple(_with_pods(work, pods) for work in env.workloads)})


def _with_pods(work: Workload, pods: Callable[[InferenceWorkload], int]) -> Workload:
    if not isinstance(work, InferenceWorkload):
        return work
    fields = {key: getattr(work, key) for key in DeploymentWorkload.model_fields}
    # Not checked again: what fits the most pods, such as a step of an update, may exceed fewer.
    return DeploymentWorkload.model_construct(**{**fields, "kind": "deployment", "replicas": pods(work)})


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
    shared = [name for name in pools if offer.is_shared(env.pool(name))]
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
    fitting = [surge.fitting_pods(env, pool, job) for pool in pools]
    known = [number for number in fitting if number is not None]
    if len(known) < len(fitting) or any(pool.elastic for pool in pools):
        return
    if job.pods > max(1, *known):  # one that fits no node: see node_resources
        which = " or ".join(names)
        fact = f"all nodes of pool {which} hold {max(known)} such pods, and a job in a queue runs in one pool"
        raise InputError(f"{path}.parallelism", fact, "use fewer or smaller pods, or more nodes")

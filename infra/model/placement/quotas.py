"""Quotas in units of what pools offer, and nodes that are kept free; checks of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from infra.model.base import namespaces
from infra.model.base.errors import InputError
from infra.model.base.fields import INT32, listing
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.placement.fit import CLAIM_SUFFIX
from infra.model.platform.scheduling import Namespace
from infra.model.pool import allocatable
from infra.model.pool.elastic import CPU, MEMORY_GIB
from infra.model.pool.layouts import listing_profiles
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig

WHOLE_GPU = "gpu"


def quota_keys(pool: Pool) -> tuple[str, ...]:
    """ResourceQuota keys of everything that the pool offers; empty for a pool without GPUs."""
    extended = [allocatable.quota_key(name) for name in allocatable.gpu_resources(pool)]
    return (*extended, *(device_class + CLAIM_SUFFIX for device_class in allocatable.claimable(pool)))


def hard_limits(pools: Sequence[Pool], namespace: Namespace) -> dict[str, int]:
    """The quota by ResourceQuota key, sorted: the sums of the named pools, and 0 for all others.

    Empty without a quota.
    Raises InputError, with a path relative to the namespace.
    """
    if namespace.quota is None:
        return {}
    limits = {key: 0 for pool in pools for key in quota_keys(pool)}
    for name, amount in namespace.quota.items():
        for key, number in quota_amounts(pools, "quota", name, amount):
            limits[key] += number
    _check_shared_resources(pools, namespace.quota)
    return dict(sorted(limits.items()))


def quota_amounts(
    pools: Sequence[Pool], field: str, name: str, amount: int | Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """ResourceQuota keys and numbers of one pool's entry in ``field``, the key that the errors name."""
    path = f"{field}.{name}"
    pool = next((pool for pool in pools if pool.name == name), None)
    if pool is None:
        raise InputError(path, f"unknown pool {name!r}", listing((pool.name for pool in pools), name))
    keys = quota_keys(pool)
    if not keys:
        raise InputError(path, f"pool {name} has no GPU", "leave it out")
    if isinstance(amount, int):
        if len(keys) > 1:
            kinds = ", ".join(_keys_by_profile(pool))
            fact = f"pool {name} offers several kinds of resource"
            raise InputError(path, fact, f"give a number for each: {{{kinds}}}")
        yield keys[0], amount
        return
    parts = _keys_by_profile(pool)
    for part, number in amount.items():
        if part not in parts:
            one = f"give one number, {field}: {{{name}: {number}}}"
            remedy = listing_profiles(parts, part) if parts else one
            is_known = not parts and part in pool.profiles
            fact = f"every slice as {counted_resource(keys[0])}" if is_known else f"no slice {part!r}"
            raise InputError(f"{path}.{part}", f"pool {name} offers {fact}", remedy)
        yield parts[part], number


def counted_resource(key: str) -> str:
    """What a quota key counts: an extended resource or a device class."""
    return key.removeprefix("requests.").removesuffix(CLAIM_SUFFIX)


def _keys_by_profile(pool: Pool) -> dict[str, str]:
    """Quota key of each MIG profile, and of ``gpu`` if the nodes have whole GPUs beside slices.

    Empty if no resource of the pool is named after a profile.
    """
    share = pool.sharing.share if isinstance(pool.sharing, Mig) else None
    slices = {allocatable.shared_name(allocatable.mig_resource(name), share): name for name in pool.profiles}
    names = allocatable.gpu_resources(pool)
    if not slices.keys() & set(names):
        return {}
    return {slices.get(name, WHOLE_GPU): allocatable.quota_key(name) for name in names}


def _check_shared_resources(pools: Sequence[Pool], quota: Collection[str]) -> None:
    """A quota counts resources, not pools: it applies to all pools that offer the same resource."""
    by_key: dict[str, list[str]] = {}
    for pool in pools:
        for key in quota_keys(pool):
            by_key.setdefault(key, []).append(pool.name)
    for name in quota:
        for key, names in by_key.items():
            missing = [other for other in names if other not in quota]
            if name in names and missing:
                resource = counted_resource(key)
                others = f"pool {missing[0]} offers" if len(missing) == 1 else f"{', '.join(missing)} offer"
                raise InputError(
                    f"quota.{name}",
                    f"{others} {resource}, too, and a quota cannot distinguish them",
                    f"name all of {', '.join(names)} (their numbers add up), or have one offer another name",
                )


def check_namespaces(env: Environment) -> None:
    """Refuse duplicate namespaces, the cluster's own, and quotas that are too small for the workloads."""
    names: set[str] = set()
    for index, namespace in enumerate(env.namespaces):
        path = f"namespaces[{index}]"
        if namespace.name in names:
            fact = f"{namespace.name!r} is declared twice"
            raise InputError(f"{path}.name", fact, "give each namespace one quota")
        names.add(namespace.name)
        namespaces.check(namespace.name, f"{path}.name")
        if namespace.name in namespaces.BUILT_IN and namespace.pod_security != "restricted":
            fact = f"namespace {namespace.name} exists already, and keeps its own level"
            raise InputError(f"{path}.pod_security", fact, "leave it out, or use a namespace of your own")
        if namespace.quota is None:
            continue
        try:
            limits = hard_limits(env.pools, namespace)
        except InputError as error:
            raise InputError(f"{path}.{error.path}", error.fact, error.remedy) from None
        _check_requests(env, namespace.name, limits, f"{path}.quota")


def warnings(env: Environment) -> Iterator[str]:
    """Quotas of more than all nodes offer, if the most nodes of each pool are known."""
    totals = Counter[str]()
    for pool in env.pools:
        kinds = tuple(fit.node_kinds(pool))
        for key in quota_keys(pool):
            totals[key] += sum(count * offered.get(key, 0) for count, offered in kinds) if kinds else INT32
    for index, space in enumerate(env.namespaces):
        for key, number in hard_limits(env.pools, space).items():
            if number > totals[key]:
                fact = (
                    f"{number} {counted_resource(key)}, of which all nodes offer {totals[key]}, limit nothing"
                )
                yield f"namespaces[{index}].quota: {fact}; use {totals[key]} or less"


def _check_requests(env: Environment, name: str, limits: Mapping[str, int], path: str) -> None:
    """The quota must cover the workloads and an update's extra pods, or the update would never end.

    Workloads that are updated at the same time use that room one after the other.
    """
    requested: Counter[str] = Counter()
    extra_of: dict[str, tuple[int, str]] = {}
    for work in env.workloads:
        if work.namespace != name:
            continue
        extra_pods_count = fit.extra_pods(env, work)
        for key, amount in fit.requests_of(env, work).items():
            requested[key] += amount * work.pods
            extra_of[key] = max(extra_of.get(key, (0, "")), (amount * extra_pods_count, work.name))
    for key, total in requested.items():
        resource = counted_resource(key)
        fact = f"the workloads of {name} request {total} {resource}"
        update_extra, workload = extra_of[key]
        if total > limits[key]:
            raise InputError(path, f"{fact}, and the quota allows {limits[key]}", "raise it, or request less")
        if total + update_extra > limits[key]:
            fact += f", {update_extra} more while {workload} is updated, and the quota allows {limits[key]}"
            raise InputError(path, fact, "raise it, request less, or use update: {kind: rolling}")


def check_spare(env: Environment) -> None:
    """Refuse ``spare`` in a pool without GPUs, or beyond the pool's limits."""
    for index, pool in enumerate(env.pools):
        path = f"pools[{index}].spare"
        if pool.spare is None or pool.elastic is None:
            continue
        if not pool.gpus:
            raise InputError(path, "the pool has no GPU to keep free", "leave it out")
        per_node = {
            CPU: min((machine.vcpu for machine in pool.machines), default=0),
            MEMORY_GIB: min((machine.memory for machine in pool.machines), default=0),
        }
        per_node |= allocatable.resources(pool, pool.gpu_counts[0])
        for key, limit in pool.elastic.max.items():
            # Each capacity type has the whole limit.
            if (total := pool.spare * per_node.get(key, 0)) > limit * len(pool.capacity):
                fact = f"{pool.spare} free nodes have {total} {key}, and elastic.max allows {limit}"
                raise InputError(path, fact, "raise elastic.max, or keep fewer free")

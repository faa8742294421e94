"""Quotas in units of what pools offer, and nodes that are kept free; checks of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from infra.model import checks, offer, surge
from infra.model.base import listing
from infra.model.elastic import CPU, MEMORY_GIB
from infra.model.errors import InputError
from infra.model.offer import MigStrategy
from infra.model.pool import Pool
from infra.model.scheduling import Namespace
from infra.model.sharing import Mig
from infra.model.surge import CLAIMED
from infra.model.values import INT32

if TYPE_CHECKING:
    from infra.model.environment import Environment

WHOLE = "gpu"


def keys(strategy: MigStrategy, pool: Pool) -> tuple[str, ...]:
    """ResourceQuota keys of everything that the pool offers; empty for a pool without GPUs."""
    extended = [offer.quota_key(name) for name in offer.gpu_resources(strategy, pool)]
    return (*extended, *(device_class + CLAIMED for device_class in offer.claimable(pool)))


def hard(strategy: MigStrategy, pools: Sequence[Pool], space: Namespace) -> dict[str, int]:
    """The quota by ResourceQuota key, sorted: the sums of the named pools, and 0 for all others.

    Raises InputError, with a path relative to the namespace.
    """
    found = {key: 0 for pool in pools for key in keys(strategy, pool)}
    for name, amount in space.quota.items():
        for key, number in amounts(strategy, pools, "quota", name, amount):
            found[key] += number
    _check_alike(strategy, pools, space)
    return dict(sorted(found.items()))


def amounts(
    strategy: MigStrategy, pools: Sequence[Pool], field: str, name: str, amount: int | Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """ResourceQuota keys and numbers of one pool's entry in ``field``, the key that the errors name."""
    path = f"{field}.{name}"
    pool = next((pool for pool in pools if pool.name == name), None)
    if pool is None:
        raise InputError(path, f"unknown pool {name!r}", listing((one.name for one in pools), name))
    offered = keys(strategy, pool)
    if not offered:
        raise InputError(path, f"pool {name} has no GPU", "leave it out")
    if isinstance(amount, int):
        if len(offered) > 1:
            kinds = ", ".join(_parts(strategy, pool))
            fact = f"pool {name} offers several kinds of resource"
            raise InputError(path, fact, f"give a number for each: {{{kinds}}}")
        yield offered[0], amount
        return
    known = _parts(strategy, pool)
    for part, number in amount.items():
        if part not in known:
            remedy = listing(known, part) if known else f"give one number, {field}: {{{name}: {number}}}"
            alike = not known and part in (pool.layout or {})
            fact = f"every slice as {resource(offered[0])}" if alike else f"no slice {part!r}"
            raise InputError(f"{path}.{part}", f"pool {name} offers {fact}", remedy)
        yield known[part], number


def resource(key: str) -> str:
    """What a quota key counts: an extended resource or a device class."""
    return key.removeprefix("requests.").removesuffix(CLAIMED)


def _parts(strategy: MigStrategy, pool: Pool) -> dict[str, str]:
    """Quota key of each MIG profile, and of ``gpu`` if the nodes have whole GPUs beside slices.

    Empty if no resource of the pool is named after a profile.
    """
    share = pool.sharing.share if isinstance(pool.sharing, Mig) else None
    slices = {offer.shared_name(offer.mig_resource(name), share): name for name in pool.layout or {}}
    names = offer.gpu_resources(strategy, pool)
    if not slices.keys() & set(names):
        return {}
    return {slices.get(name, WHOLE): offer.quota_key(name) for name in names}


def _check_alike(strategy: MigStrategy, pools: Sequence[Pool], space: Namespace) -> None:
    """A quota counts resources, not pools: it applies to all pools that offer the same resource."""
    by_key: dict[str, list[str]] = {}
    for pool in pools:
        for key in keys(strategy, pool):
            by_key.setdefault(key, []).append(pool.name)
    for name in space.quota:
        for key, alike in by_key.items():
            missing = [other for other in alike if other not in space.quota]
            if name in alike and missing:
                what = resource(key)
                others = f"pool {missing[0]} offers" if len(missing) == 1 else f"{', '.join(missing)} offer"
                raise InputError(
                    f"quota.{name}",
                    f"{others} {what}, too, and a quota cannot distinguish them",
                    f"name all of {', '.join(alike)} (their numbers add up), or have one offer another name",
                )


def check_namespaces(env: Environment) -> None:
    """Refuse duplicate namespaces, the cluster's own, and quotas that are too small for the workloads."""
    seen: set[str] = set()
    for index, space in enumerate(env.namespaces):
        path = f"namespaces[{index}]"
        if space.name in seen:
            fact = f"{space.name!r} is declared twice"
            raise InputError(f"{path}.name", fact, "give each namespace one quota")
        seen.add(space.name)
        checks.check_namespace(space.name, f"{path}.name")
        try:
            limits = hard(env.gpu_operator.mig_strategy, env.pools, space)
        except InputError as error:
            raise InputError(f"{path}.{error.path}", error.fact, error.remedy) from None
        _check_asked(env, space.name, limits, f"{path}.quota")


def warnings(env: Environment) -> Iterator[str]:
    """Quotas of more than all nodes offer, if the most nodes of each pool are known."""
    strategy, most = env.gpu_operator.mig_strategy, Counter[str]()
    for pool in env.pools:
        able = tuple(surge.nodes(strategy, pool))
        for key in keys(strategy, pool):
            most[key] += sum(count * has.get(key, 0) for count, has in able) if able else INT32
    for index, space in enumerate(env.namespaces):
        for key, number in hard(strategy, env.pools, space).items():
            if number > most[key]:
                fact = f"{number} {resource(key)}, of which all nodes offer {most[key]}, limit nothing"
                yield f"namespaces[{index}].quota: {fact}; use {most[key]} or less"


def _check_asked(env: Environment, name: str, limits: Mapping[str, int], path: str) -> None:
    """The quota must cover the workloads and an update's extra pods, or the update would never end.

    Workloads that are updated at the same time use that room one after the other.
    """
    asked: Counter[str] = Counter()
    beside: dict[str, tuple[int, str]] = {}
    for work in env.workloads:
        if work.namespace != name:
            continue
        more = surge.pods(env, work)
        for key, each in surge.asks(env, work).items():
            asked[key] += each * work.pods
            beside[key] = max(beside.get(key, (0, "")), (each * more, work.name))
    for key, total in asked.items():
        what = resource(key)
        fact = f"the workloads of {name} request {total} {what}"
        extra, workload = beside[key]
        if total > limits[key]:
            raise InputError(path, f"{fact}, and the quota allows {limits[key]}", "raise it, or request less")
        if total + extra > limits[key]:
            fact += f", {extra} more while {workload} is updated, and the quota allows {limits[key]}"
            raise InputError(path, fact, "raise it, request less, or use update: {kind: rolling}")


def check_spare(env: Environment) -> None:
    """Refuse ``spare`` in a pool without GPUs, or beyond the pool's limits."""
    for index, pool in enumerate(env.pools):
        path = f"pools[{index}].spare"
        if pool.spare is None or pool.elastic is None:
            continue
        if not pool.gpus:
            raise InputError(path, "the pool has no GPU to keep free", "leave it out")
        has = {
            CPU: min((machine.vcpu for machine in pool.machines), default=0),
            MEMORY_GIB: min((machine.memory for machine in pool.machines), default=0),
        }
        has |= offer.offered(env.gpu_operator.mig_strategy, pool, pool.gpu_counts[0])
        for key, most in pool.elastic.max.items():
            # Each capacity type has the whole limit.
            if (needs := pool.spare * has.get(key, 0)) > most * len(pool.capacity):
                fact = f"{pool.spare} free nodes have {needs} {key}, and elastic.max allows {most}"
                raise InputError(path, fact, "raise elastic.max, or keep fewer free")

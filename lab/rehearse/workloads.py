"""A rehearsal's workloads, from the stack or from a file, and why a pool cannot hold one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gpuform.checkout.errors import InputError
from infra import strict_yaml
from infra.config import parse
from infra.model import checks, choice, claims, offer, workload_kinds
from infra.model.amounts import cpu_millis, memory_bytes
from infra.model.clusters import KINDS
from infra.model.environment import Environment
from infra.model.node_room import machines, room
from infra.model.pool import Pool
from infra.model.workload import Workload
from infra.plan.sharing import pool_taints

KEY = "workloads"
_MIB = 2**20


def environment(
    declared: Mapping[str, Any], source: str, file: Path | None = None, scaled: bool = False
) -> Environment:
    """The declared environment, with the workloads of ``file``, if given, instead of its own.

    A workload that requests scale has its most pods, unless ``scaled`` keeps its scale: requests are played.
    One with a model is a Deployment, without KServe.

    Raises InputError. Its path begins with the file's name if the error is in the file. If no pool can hold a
    workload, the error names the reason for each pool.
    """
    found = deepcopy(dict(declared))
    if file is not None:
        found[KEY] = _read(file)
        source = str(file)
        if "kubeconfig" in KINDS[found["cluster"]["kind"]].model_fields:
            # Own hosts need not have joined a cluster: the question is what they would hold.
            found["cluster"].setdefault("kubeconfig", "/rehearsed")
    try:
        env = parse(found, source)
    except InputError as error:
        index = _index(error.path)
        if not error.path.startswith(KEY):
            raise
        path = f"{source}: {error.path}" if file is not None else error.path
        said = _said(found, index) if index is not None else ""
        fact = f"no pool can hold it ({said})" if said else error.fact
        raise InputError(path, fact, error.remedy) from None
    for index, work in enumerate(env.workloads):
        if said := _all_refuse(env, work):
            path = f"{KEY}[{index}]" if file is None else f"{source}: {KEY}[{index}]"
            remedy = "request less per pod, or name a pool that has it"
            raise InputError(path, f"no pool can hold it ({said})", remedy)
    return workload_kinds.without_models(env) if scaled else workload_kinds.at_most(env)


def _read(file: Path) -> Any:
    """The list under ``workloads:``; the file has the form of that part of a stack file."""
    content = strict_yaml.read(file, "name a file with workloads: [...], as in a stack file")
    if not isinstance(content, dict) or set(content) != {KEY}:
        keys = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        fact = f"holds {', '.join(keys) if isinstance(keys, list) else 'no mapping'}"
        raise InputError(str(file), fact, "it must hold only workloads: [...], as in a stack file")
    return content[KEY] if content[KEY] is not None else []


def _index(path: str) -> int | None:
    """The number in ``workloads[2].cpu``."""
    head, _, rest = path.partition("[")
    number = rest.partition("]")[0]
    return int(number) if head == KEY and number.isdigit() else None


def _said(declared: Mapping[str, Any], index: int) -> str:
    """Why each pool cannot hold the workload; empty if the workload is invalid, or a pool can hold it."""
    try:
        adapter: TypeAdapter[Workload] = TypeAdapter(Workload)
        work = adapter.validate_python(declared[KEY][index])
        return _all_refuse(parse({**declared, KEY: []}), work)
    except (InputError, ValidationError, TypeError, IndexError):
        return ""


def _all_refuse(env: Environment, work: Workload) -> str:
    candidates = [pool.name for pool in env.pools if work.pool in (None, pool.name)]
    found = dict(refusals(env, work))
    if not candidates or not all(name in found for name in candidates):
        return ""
    return "; ".join(f"{name}: {found[name]}" for name in candidates)


def refusals(env: Environment, work: Workload) -> Iterator[tuple[str, str]]:
    """``(pool, why)`` for each pool that cannot hold a pod of the workload even with empty nodes.

    For machines that are not known (own hosts, nodes matched by a selector) only the GPUs count.
    """
    for pool in env.pools:
        if work.pool not in (None, pool.name):
            continue
        reason = next(_reasons(env, pool, work), None)
        if reason:
            yield pool.name, reason


def _reasons(env: Environment, pool: Pool, work: Workload) -> Iterator[str]:
    strategy = env.strategy(pool)
    if work.gpu_product and work.gpu_product not in offer.products(strategy, pool):
        products = " or ".join(offer.products(strategy, pool)) or "no GPU"
        yield f"its nodes have {products}, not {work.gpu_product}"
    by_claim = pool.by_claim and work.pool == pool.name
    if work.gpu and not by_claim and not choice.units(strategy, [pool], work.gpu, work.slice):
        close = choice.nearest(strategy, [pool], work.gpu, work.slice)
        yield f"{work.gpu.words}, it has {close}" if close else "GPUs, it offers none"
        return
    if not work.pinned and (taints := pool_taints(env, pool)):
        yield f"taint {taints[0]['key']}, which the workload does not tolerate as it names no pool"
    if work.slice or work.count or work.pinned:
        yield from _gpus(env, pool, work)
    rooms = [room(env, pool, machine) for machine in machines(env, pool)]
    if not rooms:
        return
    if cpu_millis(work.cpu) > (most := max(one.cpu for one in rooms)):
        yield f"cpu, {work.cpu} requested of {most / 1000:g} cores"
    if memory_bytes(work.memory) > (most := max(one.memory for one in rooms)) * _MIB:
        yield f"memory, {work.memory} requested of {most}Mi"
    # Each alone fits a machine, but not the same one.
    if not any(one.holds(work) for one in rooms):
        yield f"cpu and memory, {work.cpu} cores with {work.memory}: none of its machines has both"


def _gpus(env: Environment, pool: Pool, work: Workload) -> Iterator[str]:
    """What the pool's GPUs cannot provide; a workload that names the pool requests them."""
    if not pool.gpus:
        if work.slice or work.count:
            yield "GPUs, it has none"
        return
    if pool.by_claim:
        if (most := claims.most(pool, work)) is None:
            wanted = work.slice or "one of several kinds"
            yield f"slice, it has {claims.spelled(pool)} for claims, not {wanted}"
        elif work.amount > most:
            yield f"GPUs, {work.amount} requested of {most} for claims"
        if work.gpu and not claims.satisfied(pool, work.gpu):
            yield f"{work.gpu.words}, its models are {', '.join(gpu.name for gpu in pool.gpus)}"
        return
    offers = offer.most(env.strategy(pool), pool)
    name = checks.request(env.strategy(pool), [pool], work)
    if name is None:
        asked = offer.mig_resource(work.slice) if work.slice else "one of several kinds of slice"
        yield f"resource name, it offers {', '.join(offers)}, not {asked}"
    elif work.amount > offers.get(name, 0):
        yield f"{name}, {work.amount} requested of {offers.get(name, 0)}"
    elif work.amount > 1 and offer.one_per_pod(pool, name):
        yield f"{name}, a pod can have one share and {work.amount} are requested"

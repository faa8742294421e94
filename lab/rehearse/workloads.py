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
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.clusters import KINDS
from infra.model.environment import Environment
from infra.model.placement import fit
from infra.model.placement.node_resources import free_resources, node_machines
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.workload import claims, matching
from infra.model.workload.workload import Workload
from infra.plan.sharing import pool_taints

KEY = "workloads"
_MIB = 2**20


def environment(
    declared: Mapping[str, Any], source: str, file: Path | None = None, scaled: bool = False
) -> Environment:
    """The declared environment, with the workloads of ``file``, if given, instead of its own.

    A workload that requests scale has its most pods, unless ``scaled`` keeps its scale: requests are played.
    One with a model is a Deployment, without KServe. A Prometheus of others is one of the rehearsal's own.

    Raises InputError. Its path begins with the file's name if the error is in the file. If no pool can hold a
    workload, the error names the reason for each pool.
    """
    values, prefix = deepcopy(dict(declared)), ""
    if file is not None:
        values[KEY] = _read(file)
        source, prefix = str(file), f"{file}: "
        if "kubeconfig" in KINDS[values["cluster"]["kind"]].model_fields:
            # Own hosts need not have joined a cluster: the question is what they would hold.
            values["cluster"].setdefault("kubeconfig", "/rehearsed")
    try:
        env = parse(values, source)
    except InputError as error:
        index = _workload_index(error.path)
        if not error.path.startswith(KEY):
            raise
        reasons = _refusal_text(values, index) if index is not None else ""
        fact = f"no pool can hold it ({reasons})" if reasons else error.fact
        raise InputError(f"{prefix}{error.path}", fact, error.remedy) from None
    for index, work in enumerate(env.workloads):
        if reasons := _joined_refusals(env, work):
            remedy = "request less per pod, or name a pool that has it"
            raise InputError(f"{prefix}{KEY}[{index}]", f"no pool can hold it ({reasons})", remedy)
    if env.monitoring:
        own = env.monitoring.model_copy(update={"prometheus": None})
        env = env.model_copy(update={"monitoring": own})
    return fit.without_models(env) if scaled else fit.with_max_pods(env)


def _read(file: Path) -> Any:
    """The list under ``workloads:``; the file has the form of that part of a stack file."""
    content = strict_yaml.read(file, "name a file with workloads: [...], as in a stack file")
    if not isinstance(content, dict) or set(content) != {KEY}:
        keys = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
        fact = f"holds {', '.join(keys) if isinstance(keys, list) else 'no mapping'}"
        raise InputError(str(file), fact, "it must hold only workloads: [...], as in a stack file")
    return content[KEY] if content[KEY] is not None else []


def _workload_index(path: str) -> int | None:
    """The number in ``workloads[2].cpu``."""
    head, _, index_text = path.partition("[")
    number = index_text.partition("]")[0]
    return int(number) if head == KEY and number.isdigit() else None


def _refusal_text(declared: Mapping[str, Any], index: int) -> str:
    """Why each pool cannot hold the workload; empty if the workload is invalid, or a pool can hold it."""
    try:
        adapter: TypeAdapter[Workload] = TypeAdapter(Workload)
        work = adapter.validate_python(declared[KEY][index])
        return _joined_refusals(parse({**declared, KEY: []}), work)
    except (InputError, ValidationError, TypeError, IndexError):
        return ""


def _joined_refusals(env: Environment, work: Workload) -> str:
    candidates = [pool.name for pool in env.pools if work.pool in (None, pool.name)]
    reasons = dict(refusals(env, work))
    if not candidates or not all(name in reasons for name in candidates):
        return ""
    return "; ".join(f"{name}: {reasons[name]}" for name in candidates)


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
    if work.gpu_product and work.gpu_product not in allocatable.products(pool):
        products = " or ".join(allocatable.products(pool)) or "no GPU"
        yield f"its nodes have {products}, not {work.gpu_product}"
    by_claim = pool.by_claim and work.pool == pool.name
    if work.gpu and not by_claim and not matching.matches([pool], work.gpu, work.slice):
        close = matching.nearest_match([pool], work.gpu, work.slice)
        yield f"{work.gpu.description}, it has {close}" if close else "GPUs, it offers none"
        return
    if not work.selects_pools and (taints := pool_taints(env, pool)):
        yield f"taint {taints[0]['key']}, which the workload does not tolerate as it names no pool"
    if work.slice or work.count or work.selects_pools:
        yield from _gpus(pool, work)
    capacities = [free_resources(env, pool, machine) for machine in node_machines(env, pool)]
    if not capacities:
        return
    if cpu_millis(work.cpu) > (most := max(capacity.cpu for capacity in capacities)):
        yield f"cpu, {work.cpu} requested of {most / 1000:g} cores"
    if memory_bytes(work.memory) > (most := max(capacity.memory for capacity in capacities)) * _MIB:
        yield f"memory, {work.memory} requested of {most}Mi"
    # Each alone fits a machine, but not the same one.
    if not any(capacity.fits(work) for capacity in capacities):
        yield f"cpu and memory, {work.cpu} cores with {work.memory}: none of its machines has both"


def _gpus(pool: Pool, work: Workload) -> Iterator[str]:
    """What the pool's GPUs cannot provide; a workload that names the pool requests them."""
    if not pool.gpus:
        if work.slice or work.count:
            yield "GPUs, it has none"
        return
    if pool.by_claim:
        if (most := claims.max_devices(pool, work)) is None:
            wanted = work.slice or "one of several kinds"
            yield f"slice, it has {claims.describe_devices(pool)} for claims, not {wanted}"
        elif work.device_count > most:
            yield f"GPUs, {work.device_count} requested of {most} for claims"
        if work.gpu and not claims.meets_need(pool, work.gpu):
            yield f"{work.gpu.description}, its models are {', '.join(gpu.name for gpu in pool.gpus)}"
        return
    offers = allocatable.max_resources(pool)
    name = matching.requested_resource([pool], work)
    if name is None:
        requested = allocatable.mig_resource(work.slice) if work.slice else "one of several kinds of slice"
        yield f"resource name, it offers {', '.join(offers)}, not {requested}"
    elif work.device_count > offers.get(name, 0):
        yield f"{name}, {work.device_count} requested of {offers.get(name, 0)}"
    elif work.device_count > 1 and allocatable.one_per_pod(pool, name):
        yield f"{name}, a pod can have one share and {work.device_count} are requested"

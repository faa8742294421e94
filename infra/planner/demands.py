"""Demands of workloads for GPUs, from a file and from a stack."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, model_validator

from infra import strict_yaml
from infra.config import read_model, validate_model
from infra.model.base.errors import InputError
from infra.model.base.fields import (
    Count,
    CpuRequest,
    Flag,
    HugePages,
    Memory,
    Model,
    PodCount,
    Strict,
    each_once,
    matching,
    option,
    required,
)
from infra.model.base.quantities import cpu_millis, memory_bytes
from infra.model.environment import Environment
from infra.model.gpu.choice import GpuName
from infra.model.placement import fit
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Exclusive
from infra.model.workload import matching as workload_matching
from infra.planner import sharing_costs
from infra.planner.candidates import Offer
from infra.planner.need import Class, Need
from infra.planner.serving import Serves, best_throughput

_MIB = 2**20
_KEYS = "demands, and machines without a stack"
_NAME_A_FILE = "name a file of demands"
_NOT_TEXT = ("replicas", "compute", "unbounded", "count", "efa", "interruptible")


_Name = Annotated[
    Strict,
    matching(r"[a-z0-9]([a-z0-9./-]{0,125}[a-z0-9])?", "a name", "use lower-case letters, digits, - and /"),
]


class Demand(Model):
    """One workload's need; of a stack's workload, what differs from its declaration."""

    name: _Name = required("Name; NAMESPACE/NAME of a stack's workload gives what differs from the stack.")
    replicas: PodCount | None = option("Number of pods at a time; 1 if left out.")
    gpu_memory: Memory | None = option("GPU memory of one pod at its peak, on each of its GPUs.")
    compute: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] | None = option(
        "Throughput that a pod must have while its neighbours are busy, as a part of what a whole GPU gives "
        "it, 0 to 1; no requirement if left out."
    )
    unbounded: Flag | None = option(
        "Whether it takes all the GPU memory that it gets, as a notebook that leaks does."
    )
    workload_class: Class | None = option(
        "latency and performance are never time-sliced; interactive and low_priority may be.", alias="class"
    )
    trust: (
        Annotated[Strict, matching(r"[A-Za-z0-9._/-]{1,63}", "a name", "use letters and digits")] | None
    ) = option("Owner: pods of different owners share a GPU only by MIG.")
    models: Annotated[tuple[GpuName, ...], each_once("name each model once")] | None = option(
        "Accepted GPU models; all if left out, of a stack's workload those that it may use now.", min_length=1
    )
    count: Count | None = option("Whole GPUs of each pod; 1, or a part of one, if left out.")
    serves: Serves | None = option("Rate and latency of requests, instead of replicas.")
    cpu: CpuRequest | None = option("CPU request of each pod, in cores.")
    memory: Memory | None = option("Memory request of each pod.")
    interruptible: Flag | None = option("Whether its pods may run on spot nodes, which the cloud takes back.")
    efa: Count | None = option("Elastic Fabric Adapters of each pod.")
    hugepages: HugePages | None = option("Huge pages of 2Mi of each pod, in addition to memory.")

    @model_validator(mode="after")
    def _check_replicas(self) -> Demand:
        if self.serves and self.replicas is not None:
            fact = "serves is given too, and its rate and measurements decide the number"
            raise InputError("replicas", fact, "give one of the two")
        return self


class Demands(Model):
    """A file of demands."""

    machines: Annotated[tuple[Offer, ...], each_once("name each once", key=str)] = option(
        "Machines to choose from, or GPU models; beside the pools of a stack.", ()
    )
    demands: tuple[Demand, ...] = required("What is to be placed.", min_length=1)

    @model_validator(mode="after")
    def _check_names(self) -> Demands:
        seen: dict[str, Demand] = {}
        for index, demand in enumerate(self.demands):
            other = seen.setdefault(demand.name, demand)
            if other is not demand:
                fact = f"{demand.name} is given twice"
                if other.trust != demand.trust:
                    fact += (
                        f", once with trust {other.trust or 'left out'}, once {demand.trust or 'left out'}"
                    )
                raise InputError(f"demands[{index}].name", fact, "give each demand another name")
        return self


def read(file: Path) -> Demands:
    """Demands of a YAML file, or of a csv with the same names as columns (models separated by spaces).

    Raises InputError for bad input, with line and column.
    """
    if file.suffix == ".csv":
        return _read_csv(file)
    return read_model(Demands, file, _KEYS, _NAME_A_FILE)


def _read_csv(file: Path) -> Demands:
    text = strict_yaml.read_text(file, _NAME_A_FILE)
    rows = csv.DictReader(io.StringIO(text))
    found = []
    for row in rows:
        if None in row:
            remedy = "give each row one value per column"
            raise InputError(f"{file}:{rows.line_num}", "has more values than the header", remedy)
        found.append({key: _cell(key, value) for key, value in row.items() if value})
    if not found:
        raise InputError(str(file), "holds no demand", "give a header and one row per demand")
    return validate_model(Demands, {"demands": found}, str(file))


def _cell(key: str, value: str) -> Any:
    if key == "models":
        return value.split()
    return yaml.safe_load(value) if key in _NOT_TEXT else value.strip()


def needs_of(
    env: Environment | None, given: Sequence[Demand], folder: Path, others: Sequence[Need] = ()
) -> tuple[Need, ...]:
    """The stack's workloads with GPUs and ``others``, changed by demands of the same name; other demands.

    ``folder``: that of the file of demands, which names measurements relative to it.

    A workload without a demand needs what it is guaranteed today: the memory and the compute of its GPU,
    slice or share. Workloads that get their GPUs by claim are left out.
    """
    changes = {demand.name: demand for demand in given}
    needs = {need.name: need for need in (*(declared(env) if env else ()), *others)}
    short = Counter(name.rpartition("/")[2] for name in needs)
    found = []
    for name, need in needs.items():
        last = name.rpartition("/")[2]
        change = changes.pop(name, None) or (changes.pop(last, None) if short[last] == 1 else None)
        found.append(_changed(need, change, folder) if change else need)
    return (*found, *(_changed(Need(demand.name), demand, folder) for demand in changes.values()))


def _changed(need: Need, demand: Demand, folder: Path) -> Need:
    if not (need.now or demand.gpu_memory or demand.count or demand.serves):
        fact = "neither gpu_memory nor count nor serves is given"
        raise InputError(demand.name, fact, "give the GPU memory of a pod, or its number of whole GPUs")
    given: dict[str, Any] = {
        "replicas": demand.replicas,
        "memory_mib": demand.gpu_memory and -(-memory_bytes(demand.gpu_memory) // _MIB),
        "compute": demand.compute,
        "unbounded": demand.unbounded,
        "workload_class": demand.workload_class,
        "trust": demand.trust,
        "models": demand.models and frozenset(demand.models),
        "count": demand.count,
        "cpu": demand.cpu and cpu_millis(demand.cpu),
        "ram_mib": demand.memory and memory_bytes(demand.memory) // _MIB,
        "efa": demand.efa,
        "interruptible": demand.interruptible,
        "huge_mib": demand.hugepages and memory_bytes(demand.hugepages) // _MIB,
    }
    if demand.count is not None and demand.compute is None and not need.now:
        given["compute"] = 1.0
    if demand.serves:
        given["rate"] = demand.serves.rate
        given["measured"] = best_throughput(demand.serves, folder, demand.name)
    moves = demand.models, demand.gpu_memory, demand.efa, demand.hugepages, demand.interruptible
    if any(value is not None for value in moves):
        given["pools"] = ()
    changed = replace(need, **{key: value for key, value in given.items() if value is not None})
    return replace(changed, pools=None) if changed.pools == () else changed


def declared(env: Environment) -> Iterator[Need]:
    """What the stack's workloads with GPUs are guaranteed today."""
    for work in env.workloads:
        pools = [pool for pool in fit.workload_pools(env, work) if pool.gpus and not pool.by_claim]
        resource = workload_matching.requested_resource(pools, work) if pools else None
        if resource:
            pod = Need(
                f"{work.namespace}/{work.name}",
                work.pods,
                cpu=cpu_millis(work.cpu),
                ram_mib=memory_bytes(work.memory) // _MIB,
                efa=work.efa or 0,
                huge_mib=memory_bytes(work.hugepages or "0Mi") // _MIB,
            )
            yield need_now(pools, resource, pod, work.device_count)


def need_now(pools: Sequence[Pool], resource: str, pod: Need, units: int) -> Need:
    """What pods are guaranteed by ``units`` of a resource that these pools offer.

    ``pod``: their NAMESPACE/NAME and number, and what each takes of its node.
    """
    offering = [pool for pool in pools if resource in allocatable.max_resources(pool)]
    shared = [sharing_costs.guaranteed(pool, gpu, resource) for pool in offering for gpu in pool.gpus]
    turns = any(part.how == "time_slicing" for part in shared)
    whole = all(isinstance(pool.sharing, Exclusive) for pool in offering)
    owners = {pool.trust for pool in offering}
    parts = 1 if whole else units  # slices of a pod may be of several GPUs
    return replace(
        pod,
        replicas=pod.replicas * parts,
        memory_mib=min(part.memory_mib for part in shared),
        compute=min(part.compute for part in shared),
        workload_class="low_priority" if turns else "performance",
        trust=pod.name.partition("/")[0] if owners == {"multi"} else "",
        models=frozenset(gpu.name for pool in offering for gpu in pool.gpus),
        count=units if whole else 1,
        cpu=pod.cpu // parts,
        ram_mib=pod.ram_mib // parts,
        efa=pod.efa / parts,
        huge_mib=pod.huge_mib / parts,
        interruptible=any("spot" in pool.capacity for pool in pools),
        pools=tuple(pool.name for pool in pools),
        now=resource,
    )


def unplanned(env: Environment) -> tuple[str, ...]:
    """Workloads that get their GPUs by claim: the planner leaves them as they are."""
    return tuple(
        f"{work.namespace}/{work.name}"
        for work in env.workloads
        if any(pool.by_claim for pool in fit.workload_pools(env, work))
    )

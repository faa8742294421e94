"""Checks of what training requests beside GPUs, against the pools: network adapters and huge pages."""

from __future__ import annotations

from collections.abc import Sequence

from infra.model.amounts import memory_bytes
from infra.model.errors import InputError
from infra.model.machines import MACHINES
from infra.model.pool import Pool
from infra.model.workload import Workload


def check(pools: Sequence[Pool], candidates: Sequence[Pool], work: Workload, path: str) -> None:
    """Refuse adapters and huge pages that a pool lacks on which the workload may run."""
    for key in ("efa", "hugepages"):
        if getattr(work, key) is not None and not candidates:
            fact = "the workload may run on any node, and not every node has them"
            raise InputError(f"{path}.{key}", fact, "name the pool of the nodes that do")
    for pool in candidates:
        named = f"pools[{pools.index(pool)}]"
        if work.efa and work.efa > pool.adapters:
            raise InputError(f"{path}.efa", *_too_many(pool, named))
        if work.hugepages and memory_bytes(pool.hugepages or "0Mi") < memory_bytes(work.hugepages):
            fact = f"a node of pool {pool.name} has {pool.hugepages or 'none'}"
            remedy = f"give {named} hugepages: {work.hugepages} or more, or request less"
            raise InputError(f"{path}.hugepages", fact, remedy)


def _too_many(pool: Pool, named: str) -> tuple[str, str]:
    if pool.adapters:
        fact = f"a node of pool {pool.name} has {pool.adapters}"
        return fact, f"request {pool.adapters} at most, or use more pods"
    if pool.machines and all(machine.efa for machine in pool.machines):
        return f"pool {pool.name} has no aws.efa", f"give {named} aws: {{efa: true}}, or leave it out"
    models = {gpu.name for gpu in pool.gpus}
    able = [name for name, one in MACHINES.items() if one.efa and one.gpu in models]
    remedy = f"leave it out, or use a pool of {', '.join(able)} on AWS" if able else "leave it out"
    return f"nodes of pool {pool.name} have no Elastic Fabric Adapter", remedy
